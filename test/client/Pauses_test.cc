#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>

#include "client/RawServer.h"
#include "server/TestServer.h"
#include "support/Tally.h"
#include "util/Clock.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFManualClock.h"

// Time limits around an extract that takes its time, on the manual clock.

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
    task->set_read_timeout(-1);
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
  Download download(server.url(), [](auto* task) { task->set_receive_timeout(1000); });
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
    task->set_receive_timeout(1000);
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

}  // namespace
}  // namespace client_test
