#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/Fetch.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFGlobal.h"

// What a hostile or broken peer, or a careless caller, may not achieve.

namespace client_test {
namespace {

using std::string_literals::operator""s;

// Sends `bytes` for as long as the client is there.
void send_for_ever(Peer& peer, const std::string& bytes) {
  std::string many;
  while (many.size() < 65536) {
    many += bytes;
  }
  while (peer.send(many)) {
  }
}

TEST(HostilePeer, HeadersWithoutEndAreCutOff) {
  for (const char* begin : {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nX: "}) {
    RawServer server([begin](Peer& peer, int) {
      peer.request();
      peer.send(begin);
      send_for_ever(peer, std::string(begin).back() == '\n' ? "Name: value\r\n" : "xxxxxxxx");
    });
    const Fetched got = fetch(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
    EXPECT_TRUE(got.error == EMSGSIZE || got.error == EBADMSG) << got.error;
  }
}

TEST(HostilePeer, ProxiesMayNotAnswerForEver) {
  for (const char* bytes : {"Name: value\r\n", "x"}) {
    RawServer proxy([bytes](Peer& peer, int) {
      peer.request();
      peer.send("HTTP/1.1 200 OK\r\n");
      send_for_ever(peer, bytes);
    });
    Fetched got;
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_http_task("https://h.test/", proxy.url(), 0, 0, [&](WFHttpTask* task) {
      got = fetched(task);
      group.done();
    })->start();
    group.wait();
    EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR);
    EXPECT_EQ(got.error, WFT_ERR_HTTP_PROXY_CONNECT_FAILED);
  }
}

TEST(HostilePeer, InterimResponsesWithoutEndAreCutOff) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    send_for_ever(peer, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
  });
  const Fetched got = fetch(server.url());
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, EBADMSG);
}

TEST(HostilePeer, WhatArrivedOfABodyThatIsCutOffCanBeRead) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    peer.close();
  });
  WFFacilities::WaitGroup group(1);
  WFTaskFactory::create_http_task(server.url(), 0, 0, [&group](WFHttpTask* task) {
    EXPECT_EQ(task->get_error(), ECONNRESET);
    const void* body = nullptr;
    size_t size = 0;
    EXPECT_FALSE(task->get_resp()->get_parsed_body(&body, &size));
    task->get_resp()->end_parsing();
    EXPECT_TRUE(task->get_resp()->get_parsed_body(&body, &size));
    EXPECT_EQ(std::string(static_cast<const char*>(body), size), "abc");
    group.done();
  })->start();
  group.wait();
}

TEST(HostilePeer, ARedirectToItselfEnds) {
  std::atomic<int> requests{0};
  RawServer server([&](Peer& peer, int) {
    while (!peer.request().empty()) {
      requests++;
      peer.send("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: /\r\n\r\n");
    }
  });
  EXPECT_EQ(fetch(server.url(), {.redirect_max = 20}).status, "302");
  EXPECT_EQ(requests, 21);
}

TEST(HostilePeer, ARedirectCannotInjectFields) {
  for (const std::string& location :
       {"/a\tb"s, "/a b"s, "/\x7f"s, "http://127.0.0.1:1\x01/"s, "//user@:/"s}) {
    std::string second;
    auto server = std::make_unique<RawServer>([&](Peer& peer, int) {
      peer.request();
      peer.send("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: " + location + "\r\n\r\n");
      second = peer.request();
    });
    EXPECT_NE(fetch(server->url(), {.redirect_max = 1}).state, WFT_STATE_SUCCESS) << location;
    server.reset();  // its script has ended
    EXPECT_EQ(second, "") << location;
  }
}

TEST(CarelessCaller, UrlsWithControlsAreNone) {
  RawServer server([](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply("x");
    }
  });
  const std::string base = server.url("");
  for (const std::string& url :
       {base + "/a\0b"s, base + "/\0"s, base + "\0/"s, base + "/a\r\nX: y"s, base + "/a b"s,
        base + "/?a\nb"s, "http://127.0.0.1\r\n:1/"s, "http://u\r\n:p@127.0.0.1:1/"s,
        "\0http://h/"s}) {
    const Fetched got = fetch(url);
    EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR) << url;
    EXPECT_EQ(got.error, WFT_ERR_URI_PARSE_FAILED) << url;
  }
  EXPECT_EQ(server.connections(), 0);
}

TEST(CarelessCaller, EncodedControlsInCredentialsStayInside) {
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    seen = peer.request();
    peer.reply("x");
  });
  const std::string url =
      "http://u%0d%0aX:%00@127.0.0.1:" + std::to_string(server.port()) + "/%00%0d";
  EXPECT_EQ(fetch(url).body, "x");
  EXPECT_NE(seen.find("GET /%00%0d HTTP/1.1\r\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("Authorization: Basic dQ0KWDoA\r\n"), std::string::npos) << seen;
}

TEST(CarelessCaller, OneHostIsSent) {
  auto seen = std::make_shared<std::string>();
  RawServer server([seen](Peer& peer, int) {
    *seen = peer.request();
    peer.reply("x");
  });
  const auto add = [](const char* host) {
    return [host](WFHttpTask* t) { t->get_req()->add_header_pair("host", host); };
  };
  EXPECT_EQ(fetch(server.url(), {.change = add("b.test")}).body, "x");
  EXPECT_NE(seen->find("host: b.test\r\n"), std::string::npos) << *seen;
  EXPECT_EQ(seen->find("Host: "), std::string::npos) << *seen;
  const Fetched two = fetch(server.url(), {.change = [&add](WFHttpTask* t) {
                              add("a.test")(t);
                              add("b.test")(t);
                            }});
  EXPECT_EQ(two.error, EINVAL);
}

// By another task of its request, while it waits for a connection, connects or receives.
TEST(CarelessCaller, ACancelledSeriesEndsAfterTheRequestThatIsUnderWay) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 2;
  settings.endpoint_params.connect_timeout = 60'000;
  WORKFLOW_library_init(&settings);
  RawServer server([](Peer& peer, int) {
    const int on = 1;
    ::setsockopt(peer.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (!peer.request().empty()) {
      peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx");
      peer.send("y");
    }
  });
  constexpr size_t kRequests = 2000;
  test_support::Tally ended;
  std::atomic<int> good{0};
  std::atomic<int> after{0};
  std::atomic<int> cancelled{0};
  std::mutex mutex;
  std::vector<SeriesWork*> alive(kRequests);
  for (size_t i = 0; i < kRequests; i++) {
    WFHttpTask* const task =
        WFTaskFactory::create_http_task(server.url(), 0, 0, [&, i](WFHttpTask* t) {
          good += fetched(t).body == "xy";
          std::lock_guard<std::mutex> lock(mutex);
          alive[i] = nullptr;
        });
    alive[i] = Workflow::create_series_work(task, [&](const SeriesWork* over) {
      cancelled += over->is_canceled();
      ended.add();
    });
    alive[i]->push_back(WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) { after++; }));
    alive[i]->start();
    WFTaskFactory::create_timer_task(0, static_cast<long>(i % 50) * 100'000, [&, i](WFTimerTask*) {
      std::lock_guard<std::mutex> lock(mutex);
      if (alive[i]) {
        alive[i]->cancel();
      }
      ended.add();
    })->start();
  }
  ASSERT_TRUE(ended.wait_for(2 * kRequests));
  EXPECT_EQ(good, static_cast<int>(kRequests));
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(after + cancelled, static_cast<int>(kRequests));
}

}  // namespace
}  // namespace client_test
