#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/Certificates.h"
#include "support/Fetch.h"
#include "support/RawServer.h"
#include "support/Sanitizers.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpChunkedClient.h"

// Responses that are handed out as they arrive.

namespace client_test {
namespace {

using server_test::TestServer;
using test_support::chunk;

// How a streamed request ended, and what was handed out before.
struct Streamed {
  std::vector<std::string> pieces;  // "<header>" for the call without data
  int state = -2;
  int error = 0;
  int timeout_reason = 0;
  int callbacks = 0;
  std::string status;

  std::string all() const {
    std::string text;
    for (const std::string& piece : pieces) {
      text += piece;
    }
    return text;
  }
};

struct StreamOptions {
  int redirect_max = 0;
  std::function<void(WFHttpChunkedTask*)> change = nullptr;  // before the start
  std::function<void(WFHttpChunkedTask*)> extract = nullptr;
};

std::string chunk_of(WFHttpChunkedTask* task) {
  const void* data = nullptr;
  size_t size = 0;
  return task->get_chunk()->get_chunk_data(&data, &size)
             ? std::string(static_cast<const char*>(data), size)
             : "<header>";
}

Streamed stream(const std::string& url, const StreamOptions& options = {}) {
  Streamed result;
  WFFacilities::WaitGroup group(1);
  WFHttpChunkedTask* task = WFHttpChunkedClient::create_chunked_task(
      url, options.redirect_max,
      [&](WFHttpChunkedTask* extracting) {
        EXPECT_EQ(result.callbacks, 0);
        result.pieces.push_back(chunk_of(extracting));
        if (options.extract) {
          options.extract(extracting);
        }
      },
      [&](WFHttpChunkedTask* ended) {
        result.callbacks++;
        result.state = ended->get_state();
        result.error = ended->get_error();
        result.timeout_reason = ended->get_timeout_reason();
        if (ended->get_resp()->is_header_complete()) {
          ended->get_resp()->get_status_code(result.status);
        }
        group.done();
      });
  if (options.change) {
    options.change(task);
  }
  task->start();
  group.wait();
  return result;
}

const std::string kChunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(ChunkedClient, ChunksAreHandedOutAsTheyAreHoweverTheyCome) {
  const std::string bytes = kChunkedHead + chunk("one") + chunk("and two") + "0\r\n\r\n";
  for (const size_t step : {bytes.size(), size_t{1}, size_t{7}}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      for (size_t at = 0; at < bytes.size(); at += step) {
        peer.send(std::string_view(bytes).substr(at, step));
        if (step < bytes.size()) {
          // So that the bytes come one by one.
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      peer.request();
    });
    const Streamed got = stream(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(got.status, "200");
    EXPECT_EQ(got.callbacks, 1);
    EXPECT_EQ(got.pieces, (std::vector<std::string>{"one", "and two"}));
  }
}

TEST(ChunkedClient, ChunksAreHandedOutBeforeTheNextIsSent) {
  WFFacilities::WaitGroup first(1);
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk("first"));
    first.wait();
    peer.send(chunk("second") + "0\r\n\r\n");
  });
  const Streamed got = stream(server.url(), {.extract = [&](WFHttpChunkedTask* task) {
                                if (chunk_of(task) == "first") {
                                  first.done();
                                }
                              }});
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"first", "second"}));
}

TEST(ChunkedClient, LargeChunksComeInPiecesSmallOnesWhole) {
  const std::string whole(64 * 1024, 'w');
  const std::string large(1'000'000, 'l');
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk(whole) + chunk(large) + "0\r\n\r\n");
    peer.request();
  });
  const Streamed got = stream(server.url());
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  ASSERT_GT(got.pieces.size(), 2U);
  EXPECT_TRUE(got.pieces[0] == whole) << got.pieces[0].size();
  EXPECT_TRUE(got.all() == whole + large);
  for (const std::string& piece : got.pieces) {
    EXPECT_LE(piece.size(), 64U * 1024);
  }
}

TEST(ChunkedClient, BodiesThatAreNotChunkedComeInPieces) {
  const std::string body(500'000, 'b');
  for (const bool has_length : {true, false}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send("HTTP/1.1 200 OK\r\n" +
                (has_length ? "Content-Length: 500000\r\n\r\n" : std::string("\r\n")));
      peer.send(body);
      peer.close();
    });
    const Streamed got = stream(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
    EXPECT_TRUE(got.all() == body);
    EXPECT_GT(got.pieces.size(), 1U);
  }
}

TEST(ChunkedClient, TheHeaderIsHandedOutOnRequest) {
  WFFacilities::WaitGroup told(1);
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 206 Part\r\nContent-Length: 2\r\n\r\n");
    told.wait();
    peer.send("hi");
    peer.request();
  });
  std::string status;
  const Streamed got = stream(server.url(), {.change = [](auto* t) { t->extract_on_header(true); },
                                             .extract =
                                                 [&](auto* t) {
                                                   if (chunk_of(t) == "<header>") {
                                                     status = t->get_resp()->get_status_code();
                                                     told.done();
                                                   }
                                                 }});
  EXPECT_EQ(status, "206");
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"<header>", "hi"}));
}

TEST(ChunkedClient, ResponsesWithoutABodyAreOnlyAHeader) {
  for (const std::string head :
       {"HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send(head);
      peer.request();
    });
    EXPECT_EQ(stream(server.url()).pieces.size(), 0U);
    const Streamed got =
        stream(server.url(), {.change = [](auto* t) { t->extract_on_header(true); }});
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(got.pieces, std::vector<std::string>{"<header>"});
  }
  RawServer server([&](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
  });
  const Streamed got =
      stream(server.url(), {.change = [](auto* t) { t->get_req()->set_method("HEAD"); }});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.pieces.size(), 0U);
}

TEST(ChunkedClient, NothingIsKeptInTheResponse) {
  TestServer server;
  bool has_body = false;
  size_t kept = 1;
  std::string decoded = "x";
  WFFacilities::WaitGroup group(1);
  WFHttpChunkedClient::create_chunked_task(
      "http://127.0.0.1:" + std::to_string(server.port()) + "/", 0, nullptr,
      [&](WFHttpChunkedTask* task) {
        const void* body = nullptr;
        has_body = task->get_resp()->get_parsed_body(&body, &kept);
        decoded = protocol::HttpUtil::decode_chunked_body(task->get_resp());
        EXPECT_EQ(task->get_http_task()->get_state(), WFT_STATE_SUCCESS);
        group.done();
      })
      ->start();
  group.wait();
  EXPECT_TRUE(has_body);
  EXPECT_EQ(kept, 0U);
  EXPECT_EQ(decoded, "");
}

TEST(ChunkedClient, TrailersAreCheckedAndDropped) {
  RawServer server([&](Peer& peer, int number) {
    peer.request();
    peer.send(kChunkedHead + chunk("a") + "0\r\n" +
              (number == 0 ? "Checksum: 1\r\n\r\n" : "Content-Length: 1\r\n\r\n"));
    peer.close();
  });
  EXPECT_EQ(stream(server.url()).state, WFT_STATE_SUCCESS);
  const Streamed refused = stream(server.url());
  EXPECT_EQ(refused.error, EBADMSG);
  EXPECT_EQ(refused.pieces, std::vector<std::string>{"a"});
}

TEST(ChunkedClient, WhatIsWholeBeforeAFailureIsHandedOut) {
  struct Case {
    std::string bytes;
    int error;
  };
  for (const Case& c : {Case{chunk("good") + "x\r\n", EBADMSG}, Case{chunk("good"), ECONNRESET},
                        Case{chunk("good") + "5\r\nab", ECONNRESET},
                        Case{chunk("good") + "2\r\nabc\r\n", EBADMSG}}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send(kChunkedHead + c.bytes);
      peer.close();
    });
    const Streamed got = stream(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR) << c.bytes;
    EXPECT_EQ(got.error, c.error) << c.bytes;
    ASSERT_FALSE(got.pieces.empty());
    EXPECT_EQ(got.pieces[0], "good");
    EXPECT_EQ(server.connections(), 1) << "tried again";
  }
}

TEST(ChunkedClient, ConnectionsAreUsedAgain) {
  RawServer server([&](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.send(kChunkedHead + chunk("x") + "0\r\n\r\n");
    }
  });
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(stream(server.url()).all(), "x");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(ChunkedClient, RedirectsAreFollowedAndNotHandedOut) {
  RawServer server([&](Peer& peer, int) {
    for (std::string request; !(request = peer.request()).empty();) {
      if (request.compare(0, 6, "GET /a") == 0) {
        // It never ends.
        peer.send("HTTP/1.1 302 Found\r\nLocation: /b\r\nTransfer-Encoding: chunked\r\n\r\n" +
                  chunk("moved"));
      } else {
        peer.send(kChunkedHead + chunk("here") + "0\r\n\r\n");
      }
    }
  });
  const auto tell_header = [](auto* t) { t->extract_on_header(true); };
  const Streamed followed = stream(server.url("/a"), {.redirect_max = 1, .change = tell_header});
  EXPECT_EQ(followed.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(followed.pieces, (std::vector<std::string>{"<header>", "here"}));
  const Streamed not_followed =
      stream(server.url("/a"), {.change = tell_header, .extract = [](WFHttpChunkedTask* task) {
                                  if (chunk_of(task) == "moved") {
                                    task->stop();
                                  }
                                }});
  EXPECT_EQ(not_followed.pieces, (std::vector<std::string>{"<header>", "moved"}));
}

TEST(ChunkedClient, StopEndsAnEndlessResponse) {
  std::atomic<bool> left{false};
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk("1") + chunk("2") + chunk("3"));
    left = peer.ended();
  });
  int seen = 0;
  const Streamed got = stream(server.url(), {.extract = [&](WFHttpChunkedTask* task) {
                                if (++seen == 2) {
                                  task->stop();
                                }
                              }});
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, ECANCELED);
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"1", "2"}));
  EXPECT_TRUE(server_test::eventually([&] { return left.load(); }));
}

TEST(ChunkedClient, ExtractMayBeReplaced) {
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk("a") + chunk("b") + "0\r\n\r\n");
    peer.request();
  });
  std::string second;
  const Streamed got =
      stream(server.url(), {.extract = [&](WFHttpChunkedTask* task) {
               task->set_extract([&](WFHttpChunkedTask* later) { second += chunk_of(later); });
             }});
  EXPECT_EQ(got.pieces, std::vector<std::string>{"a"});
  EXPECT_EQ(second, "b");
}

TEST(ChunkedClient, ChunksMayBeTaken) {
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk("mine") + "0\r\n\r\n");
    peer.request();
  });
  std::unique_ptr<void, decltype(&std::free)> taken(nullptr, &std::free);
  size_t size = 0;
  const Streamed got = stream(server.url(), {.extract = [&](WFHttpChunkedTask* task) {
                                void* data = nullptr;
                                EXPECT_TRUE(task->get_chunk()->move_chunk_data(&data, &size));
                                taken.reset(data);
                                EXPECT_FALSE(task->get_chunk()->move_chunk_data(&data, &size));
                              }});
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(std::string(static_cast<const char*>(taken.get()), 4), "mine");
}

// Time
// ---------------------------------------------------------------------------------------------

TEST(ChunkedClient, ChunksMayBeMoreFramingThanData) {
  const std::string extension = ";e=" + std::string(200, 'x');
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead);
    for (int i = 0; i < 500; i++)
      peer.send("1" + extension + "\r\nx\r\n");
    peer.send("0\r\n\r\n");
    peer.request();
  });
  EXPECT_EQ(stream(server.url()).all(), std::string(500, 'x'));
  EXPECT_EQ(fetch(server.url()).error, EBADMSG);  // a task that keeps it all
}

// By limits that a late server does not reach before it begins; for the others see
// ClientPieceTimes.
TEST(ChunkedClient, SilenceIsTimedOut) {
  WFFacilities::WaitGroup over(1);
  RawServer server([&](Peer& peer, int number) {
    peer.request();
    if (number > 0) {
      peer.send(kChunkedHead + chunk("x"));
    }
    over.wait();
  });
  const Streamed never_began =
      stream(server.url(), {.change = [](auto* t) { t->set_watch_timeout(100); }});
  const Streamed silent =
      stream(server.url(), {.change = [](auto* t) { t->set_read_timeout(100); }});
  over.done();
  for (const Streamed* got : {&never_began, &silent}) {
    EXPECT_EQ(got->error, ETIMEDOUT);
    EXPECT_EQ(got->timeout_reason, TOR_TRANSMIT_TIMEOUT);
    EXPECT_EQ(got->all(), got == &never_began ? "" : "x");
  }
}

// A consumer that does not come back stops the sender.
TEST(ChunkedClient, ASlowExtractSlowsTheServerDown) {
  std::atomic<size_t> sent{0};
  constexpr size_t kTotal = size_t{256} * 1024 * 1024;
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kTotal) + "\r\n\r\n");
    const std::string block(64 * 1024, 'x');
    while (sent < kTotal) {
      peer.send(block);
      sent += block.size();
    }
    peer.request();
  });
  size_t blocked_at = 0;
  size_t received = 0;
  bool grew = false;
  WFFacilities::WaitGroup group(1);
  int state = -2;
  WFHttpChunkedClient::create_chunked_task(
      server.url(), 0,
      [&](WFHttpChunkedTask* task) {
        const void* data = nullptr;
        size_t size = 0;
        task->get_chunk()->get_chunk_data(&data, &size);
        if (received == 0) {
          // Until nothing more is sent for a while.
          for (size_t before = 1; before != sent;) {
            before = sent;
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
          }
          blocked_at = sent;
        }
        received += size;
        grew = grew || sent > blocked_at;
      },
      [&](WFHttpChunkedTask* task) {
        state = task->get_state();
        group.done();
      })
      ->start();
  group.wait();
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
  EXPECT_EQ(received, kTotal);
  EXPECT_LT(blocked_at, kTotal / 4);
  EXPECT_TRUE(grew);
}

// Memory
// -------------------------------------------------------------------------------------------

long peak_kib() {
  struct rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(ChunkedClient, MemoryStaysFlat) {
  constexpr size_t kTotal = size_t{512} * 1024 * 1024;
  // The chunks have every size: one that is endless, large ones, small ones.
  for (const size_t chunk_size : {kTotal, size_t{100'000}, size_t{16 * 1024}}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send(kChunkedHead);
      if (chunk_size == kTotal) {
        peer.send("20000000\r\n");
        const std::string block(1024 * 1024, 'x');
        for (size_t at = 0; at < kTotal; at += block.size()) {
          peer.send(block);
        }
        peer.send("\r\n");
      } else {
        const std::string one = chunk(std::string(chunk_size, 'x'));
        for (size_t at = 0; at < kTotal / 4; at += chunk_size) {
          peer.send(one);
        }
      }
      peer.send("0\r\n\r\n");
      peer.request();
    });
    const long before = peak_kib();
    size_t received = 0;
    int state = -2;
    WFFacilities::WaitGroup group(1);
    WFHttpChunkedClient::create_chunked_task(
        server.url(), 0,
        [&](WFHttpChunkedTask* task) {
          const void* data = nullptr;
          size_t size = 0;
          task->get_chunk()->get_chunk_data(&data, &size);
          received += size;
        },
        [&](WFHttpChunkedTask* task) {
          state = task->get_state();
          group.done();
        })
        ->start();
    group.wait();
    EXPECT_EQ(state, WFT_STATE_SUCCESS);
    EXPECT_GE(received, chunk_size == kTotal ? kTotal : kTotal / 4);
    // Sanitizers keep what was freed.
    EXPECT_LT(peak_kib() - before, test_support::kSanitized ? 400L * 1024 : 32L * 1024)
        << chunk_size;
  }
}

// What would be an attack on who keeps the body is a stream of events here.
TEST(ChunkedClient, TinyChunksMayGoOnForEver) {
  constexpr size_t kChunks = 200'000;
  RawServer server([&](Peer& peer, int) {
    peer.request();
    std::string bytes = kChunkedHead;
    for (size_t i = 0; i < kChunks; i++) {
      bytes += "1\r\nx\r\n";
    }
    peer.send(bytes + "0\r\n\r\n");
    peer.request();
  });
  const Streamed got = stream(server.url());
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.pieces.size(), kChunks);
}

// TLS
// ----------------------------------------------------------------------------------------------

TEST(ChunkedClient, OverTlsWithAContextOfItsOwn) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  const std::string body(300'000, 't');
  TestServer server([&](WFHttpTask* task) { task->get_resp()->append_output_body_nocopy(body); },
                    server_test::http_params(), &certificate);
  const std::string url = "https://127.0.0.1:" + std::to_string(server.port()) + "/";
  EXPECT_EQ(stream(url).state, WFT_STATE_SSL_ERROR);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_load_verify_file(context.get(), authority.file().c_str());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  for (int i = 0; i < 2; i++) {
    const Streamed got = stream(url, {.change = [&](auto* t) { t->set_ssl_ctx(context.get()); }});
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << got.error;
    EXPECT_TRUE(got.all() == body);
  }
}

TEST(ChunkedClient, UrlsThatAreNoneAreTold) {
  const Streamed got = stream("nonsense://");
  EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(got.callbacks, 1);
  EXPECT_EQ(stream("http://127.0.0.1:1/").error, ECONNREFUSED);
}

TEST(ChunkedClient, DismissedTasksAreNotSent) {
  RawServer server([](Peer&, int) {});
  WFHttpChunkedClient::create_chunked_task(server.url(), 0, nullptr, nullptr)->dismiss();
  EXPECT_EQ(server.connections(), 0);
}

// The only task of a ParallelTask's branch: the branch ends with the task, not with a piece of it.
TEST(ChunkedClient, AloneInAParallelTaskItEndsItsBranchOnce) {
  class Parallel : public ParallelTask {
   public:
    Parallel(SubTask** tasks, size_t n, std::function<void()> callback)
        : ParallelTask(tasks, n), callback_(std::move(callback)) {}

   private:
    SubTask* done() override {
      callback_();
      SeriesWork* const series = series_of(this);
      delete this;
      return series->pop();
    }
    const std::function<void()> callback_;
  };

  std::atomic<int> pieces{0};
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send(kChunkedHead + chunk("one"));
    while (pieces < 1) {
      std::this_thread::yield();
    }
    peer.send(chunk("two") + "0\r\n\r\n");
  });
  std::string order;
  WFFacilities::WaitGroup group(1);
  SubTask* task = WFHttpChunkedClient::create_chunked_task(
      server.url("/"), 0,
      [&](WFHttpChunkedTask* extracting) {
        order += chunk_of(extracting) + " ";
        pieces++;
      },
      [&](WFHttpChunkedTask* ended) {
        EXPECT_EQ(ended->get_state(), WFT_STATE_SUCCESS);
        order += "task ";
      });
  Workflow::start_series_work(new Parallel(&task, 1, [&] { order += "parallel"; }),
                              [&](const SeriesWork*) { group.done(); });
  group.wait();
  EXPECT_EQ(order, "one two task parallel");
}

}  // namespace
}  // namespace client_test
