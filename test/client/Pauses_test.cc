#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/RawServer.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "util/Clock.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFManualClock.h"

// The time limits of a response that is taken piece by piece, also around an extract that takes its
// time, on the manual clock.

namespace client_test {
namespace {

using server_test::eventually;
using workflow::kNsPerMs;

constexpr const char* kHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr const char* kPiece = "1\r\nx\r\n";

void pass(int ms) {
  WFManualClock::advance(ms * kNsPerMs);
}

// A request whose response is taken piece by piece; each extract waits to be let go.
class Download {
 public:
  Download(const std::string& url, const std::function<void(WFHttpChunkedTask*)>& change) {
    WFHttpChunkedTask* task = WFHttpChunkedClient::create_chunked_task(
        url, 0,
        [this](WFHttpChunkedTask*) {
          WFFacilities::WaitGroup gate(1);
          gate_ = &gate;
          extracts_++;
          gate.wait();
        },
        [this](WFHttpChunkedTask* ended) {
          error = ended->get_error();
          timeout_reason = ended->get_timeout_reason();
          ended_ = true;
        });
    change(task);
    task->start();
  }
  ~Download() { EXPECT_TRUE(ended()); }

  // Whether the n-th piece is being extracted.
  bool extracts(int n) {
    return eventually([this, n] { return extracts_ == n; });
  }
  void let_go() { gate_.load()->done(); }
  bool has_ended() const { return ended_; }
  bool ended() {
    return eventually([this] { return ended_.load(); });
  }

  int error = 0;
  int timeout_reason = 0;

 private:
  std::atomic<WFFacilities::WaitGroup*> gate_{nullptr};
  std::atomic<int> extracts_{0};
  std::atomic<bool> ended_{false};
};

class ClientPauses : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(WFManualClock::install(), 0);
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.endpoint_params.response_timeout = -1;
    WORKFLOW_library_init(&settings);
  }

  // That it ends after so long, and not before.
  static void expect_end_after(Download& download, int ms) {
    pass(ms - 1);
    EXPECT_FALSE(download.has_ended());
    pass(1);
    ASSERT_TRUE(download.ended());
    EXPECT_EQ(download.error, ETIMEDOUT);
    EXPECT_EQ(download.timeout_reason, TOR_TRANSMIT_TIMEOUT);
  }

  test_support::Tally requested_;
  test_support::Tally go_on_;
  test_support::Tally over_;
};

TEST_F(ClientPauses, AreNotTheSilenceBetweenTwoReads) {
  RawServer server([this](Peer& peer, int) {
    peer.request();
    peer.send(std::string(kHead) + kPiece);
    over_.wait_for(1);
  });
  Download download(server.url(), [](auto* task) { task->set_read_timeout(1000); });
  ASSERT_TRUE(download.extracts(1));
  pass(5000);
  EXPECT_FALSE(download.has_ended());
  download.let_go();
  expect_end_after(download, 1000);
  over_.add();
}

TEST_F(ClientPauses, AreNotTimeOfTheWholeResponseButSilenceIs) {
  RawServer server([this](Peer& peer, int) {
    peer.request();
    requested_.add();
    for (int piece = 1; piece <= 2; piece++) {
      go_on_.wait_for(static_cast<size_t>(piece));
      peer.send((piece == 1 ? std::string(kHead) : "") + kPiece);
    }
    over_.wait_for(1);
  });
  Download download(server.url(), [](auto* task) { task->set_total_timeout(1000); });
  ASSERT_TRUE(requested_.wait_for(1));
  for (int piece = 1; piece <= 2; piece++) {
    pass(300);
    go_on_.add();
    ASSERT_TRUE(download.extracts(piece));
    pass(5000);
    download.let_go();
  }
  expect_end_after(download, 400);
  over_.add();
}

TEST_F(ClientPauses, AreTimeOfNothingWhileTheResponseIsThere) {
  constexpr int kPieces = 4;
  RawServer server([this](Peer& peer, int) {
    peer.request();
    // More than one read brings, so that there are some after extract.
    peer.send(kHead);
    for (int i = 0; i < kPieces; i++) {
      peer.send(test_support::chunk(std::string(60'000, 'x')));
    }
    peer.send("0\r\n\r\n");
    over_.wait_for(1);
  });
  Download download(server.url(), [](auto* task) {
    task->set_read_timeout(1000);
    task->set_receive_timeout(3000);
    task->set_total_timeout(3000);
  });
  for (int piece = 1; piece <= kPieces; piece++) {
    ASSERT_TRUE(download.extracts(piece));
    pass(5000);
    EXPECT_FALSE(download.has_ended());
    download.let_go();
  }
  ASSERT_TRUE(download.ended());
  EXPECT_EQ(download.error, 0);
  over_.add();
}

TEST_F(ClientPauses, AreNotTimeOfSendingButTakingNothingIs) {
  RawServer server([this](Peer& peer, int) {
    for (int piece = 1; piece <= 2; piece++) {
      go_on_.wait_for(static_cast<size_t>(piece));
      peer.send((piece == 1 ? std::string(kHead) : "") + kPiece);
    }
    over_.wait_for(1);
  });
  Download download(server.url(), [](auto* task) {
    task->get_req()->append_output_body(std::string(20'000'000, 'b'));
    task->set_send_timeout(1000);
  });
  ASSERT_TRUE(eventually([&server] { return server.connections() == 1; }));
  for (int piece = 1; piece <= 2; piece++) {
    go_on_.add();
    ASSERT_TRUE(download.extracts(piece));
    pass(5000);
    EXPECT_FALSE(download.has_ended());
    download.let_go();
    if (piece == 1) {
      pass(600);
    }
  }
  expect_end_after(download, 400);
  over_.add();
}

TEST_F(ClientPauses, TheTimeOfTheResponseBeginsWhenSendingEndsInAPause) {
  constexpr size_t kBody = 20'000'000;
  RawServer server([this](Peer& peer, int) {
    peer.send(std::string(kHead) + kPiece);
    go_on_.wait_for(1);
    size_t head = 0;
    std::string seen;
    std::string buffer(1'000'000, '\0');
    while (seen.size() < head + kBody || head == 0) {
      const ssize_t n = ::recv(peer.fd(), buffer.data(), buffer.size(), 0);
      ASSERT_GT(n, 0);
      seen.append(buffer.data(), static_cast<size_t>(n));
      const size_t end = seen.find("\r\n\r\n");
      head = end == std::string::npos ? 0 : end + 4;
    }
    requested_.add();
    over_.wait_for(1);
  });
  Download download(server.url(), [](auto* task) {
    task->get_req()->append_output_body(std::string(kBody, 'b'));
    task->set_total_timeout(1000);
  });
  ASSERT_TRUE(download.extracts(1));
  pass(5000);
  go_on_.add();
  ASSERT_TRUE(requested_.wait_for(1));
  pass(3000);
  download.let_go();
  expect_end_after(download, 1000);
  over_.add();
}

// A server that sends the next of its parts, the head first, each time it is let.
class ClientPieceTimes : public ClientPauses {
 protected:
  void serve(std::vector<std::string> parts) {
    server_.emplace([this, parts = std::move(parts)](Peer& peer, int) {
      peer.request();
      requested_.add();
      for (size_t i = 0; i < parts.size(); i++) {
        go_on_.wait_for(i + 1);
        peer.send(parts[i]);
      }
      over_.wait_for(1);
    });
  }
  void TearDown() override { over_.add(); }

  // The request has been sent, and nothing has come yet.
  std::unique_ptr<Download> begin(const std::function<void(WFHttpChunkedTask*)>& change) {
    auto download = std::make_unique<Download>(server_->url(), [&](WFHttpChunkedTask* task) {
      task->extract_on_header(true);
      change(task);
    });
    EXPECT_TRUE(requested_.wait_for(1));
    return download;
  }
  // Lets a part come, and be extracted.
  void next(Download& download) {
    go_on_.add();
    ASSERT_TRUE(download.extracts(++parts_));
    download.let_go();
  }

  std::optional<RawServer> server_;
  int parts_ = 0;
};

constexpr const char* kHeads[] = {kHead, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
                                  "HTTP/1.1 200 OK\r\n\r\n"};

class ClientPieceTimesOf : public ClientPieceTimes, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Framing, ClientPieceTimesOf, testing::Values(0, 1, 2));

TEST_P(ClientPieceTimesOf, AWatchTimeoutLimitsTheWaitBeforeEach) {
  serve({kHeads[GetParam()], kPiece, kPiece});
  const auto download = begin([](auto* task) { task->set_watch_timeout(1000); });
  for (int part = 0; part < 3; part++) {
    pass(900);
    next(*download);
  }
  expect_end_after(*download, 1000);
}

TEST_P(ClientPieceTimesOf, AReceiveTimeoutLimitsTheWaitForEach) {
  serve({kHeads[GetParam()], kPiece, kPiece});
  const auto download = begin([](auto* task) { task->set_receive_timeout(1000); });
  for (int part = 0; part < 3; part++) {
    pass(900);
    next(*download);
  }
  expect_end_after(*download, 1000);
}

TEST_P(ClientPieceTimesOf, ATotalTimeoutLimitsThemTogether) {
  serve({kHeads[GetParam()], kPiece, kPiece});
  const auto download = begin([](auto* task) {
    task->set_total_timeout(1000);
    task->set_receive_timeout(500);
  });
  for (int part = 0; part < 3; part++) {
    pass(300);
    next(*download);
  }
  expect_end_after(*download, 100);
}

class ClientPatience : public ClientPieceTimesOf {
 protected:
  void expect_patience(const std::function<void(WFHttpChunkedTask*)>& change) {
    serve({kHeads[GetParam()], kPiece, kPiece});
    const auto download = begin([&](WFHttpChunkedTask* task) {
      task->set_read_timeout(500);
      change(task);
    });
    for (int part = 0; part < 3; part++) {
      pass(1'000'000);
      next(*download);
    }
    pass(1'000'000);
    EXPECT_FALSE(download->has_ended());
    over_.add();
  }
};
INSTANTIATE_TEST_SUITE_P(Framing, ClientPatience, testing::Values(0, 1, 2));

TEST_P(ClientPatience, HasNoEndWithoutAWatchTimeout) {
  expect_patience([](auto* task) { task->set_watch_timeout(-1); });
}

TEST_P(ClientPatience, HasNoEndWithoutAReceiveTimeout) {
  expect_patience([](auto* task) { task->set_receive_timeout(-1); });
}

TEST_P(ClientPatience, HasNoEndWithAnyNegativeWatchTimeout) {
  expect_patience([](auto* task) { task->set_watch_timeout(-5); });
}

TEST_P(ClientPatience, HasNoEndWithAnyNegativeReceiveTimeout) {
  expect_patience([](auto* task) { task->set_receive_timeout(-5); });
}

// The bytes of a piece that has begun.
constexpr const char* kBegun = "1\r\nx\r\n5\r\nab";

TEST_F(ClientPieceTimes, AReceiveTimeoutCountsFromTheFirstByteAfterAWatchTimeout) {
  serve({kHead, kPiece, kBegun});
  const auto download = begin([](auto* task) {
    task->set_watch_timeout(5000);
    task->set_receive_timeout(1000);
  });
  for (int part = 0; part < 3; part++) {
    pass(4900);
    next(*download);
  }
  expect_end_after(*download, 1000);
}

TEST_F(ClientPieceTimes, InsideAPieceTheTimeBetweenTwoReadsCounts) {
  serve({kHead, kPiece, kBegun});
  const auto download = begin([](auto* task) {
    task->set_watch_timeout(5000);
    task->set_read_timeout(500);
  });
  for (int part = 0; part < 3; part++) {
    pass(4900);
    next(*download);
  }
  expect_end_after(*download, 500);
}

TEST_F(ClientPieceTimes, WithoutALimitOfPiecesTheTimeBetweenTwoReadsCounts) {
  serve({kHead, kPiece});
  const auto download = begin([](auto* task) { task->set_read_timeout(500); });
  pass(100'000);  // the first byte is the endpoint's business
  for (int part = 0; part < 2; part++) {
    next(*download);
    pass(part == 0 ? 400 : 0);
  }
  expect_end_after(*download, 500);
}

}  // namespace
}  // namespace client_test
