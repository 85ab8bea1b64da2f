#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "util/UniqueFd.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"

// HTTP requests in the clear: what is sent, what is understood, and how failures are reported.

namespace client_test {
namespace {

std::string first_line(const std::string& request) {
  return request.substr(0, request.find("\r\n"));
}

TEST(HttpClient, GetsFromOurServer) {
  server_test::TestServer server;
  const Fetched got = fetch("http://127.0.0.1:" + std::to_string(server.port()) + "/a?b=c");
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(got.status, "200");
  EXPECT_EQ(got.body, "GET /a?b=c ");
}

TEST(HttpClient, SendsWhatAServerNeeds) {
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    seen = peer.request();
    peer.reply("x");
  });
  EXPECT_EQ(fetch(server.url("/p")).body, "x");
  EXPECT_EQ(seen,
            "GET /p HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n\r\n");
}

TEST(HttpClient, SendsBodiesWithTheirLength) {
  server_test::TestServer server;
  const std::string large(3'000'000, 'y');
  for (const std::string& body : {std::string(), std::string("small"), large}) {
    const Fetched got =
        fetch("http://127.0.0.1:" + std::to_string(server.port()) + "/", {.change = [&](auto* t) {
                t->get_req()->set_method("POST");
                t->get_req()->append_output_body_nocopy(body);
              }});
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
    EXPECT_TRUE(got.body == "POST / " + body) << got.body.size();
  }
}

TEST(HttpClient, ReceivesEveryKindOfBody) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
       "abc"},
      {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end"},
      {"HTTP/1.0 200 OK\r\n\r\n", ""},
      {"HTTP/1.1 204 No Content\r\n\r\n", ""},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", ""},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n"
       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
       "ok"},
  };
  for (const auto& [bytes, body] : kinds) {
    for (const bool slowly : {false, true}) {
      RawServer server([&, bytes = bytes](Peer& peer, int) {
        peer.request();
        for (size_t i = 0; slowly && i < bytes.size(); i++) {
          peer.send(bytes.substr(i, 1));
          std::this_thread::sleep_for(std::chrono::microseconds(200));  // a packet each, mostly
        }
        if (!slowly) {
          peer.send(bytes);
        }
      });
      const Fetched got = fetch(server.url());
      EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << bytes << got.error;
      EXPECT_EQ(got.body, body);
    }
  }
}

TEST(HttpClient, HeadHasNoBody) {
  RawServer server([](Peer& peer, int) {
    EXPECT_EQ(first_line(peer.request()), "HEAD / HTTP/1.1");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    EXPECT_EQ(first_line(peer.request()), "GET / HTTP/1.1");
    peer.reply("again");
  });
  const Fetched head =
      fetch(server.url(), {.change = [](auto* t) { t->get_req()->set_method("HEAD"); }});
  EXPECT_EQ(head.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(fetch(server.url()).body, "again");
}

// Connections ------------------------------------------------------------------------------------

TEST(HttpClient, KeepsItsConnection) {
  RawServer server([](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply("x");
    }
  });
  for (int i = 0; i < 5; i++) {
    const Fetched got = fetch(server.url());
    EXPECT_EQ(got.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(got.sequence, i);
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, ClosesWhatItShallNotKeep) {
  RawServer server([](Peer& peer, int) {
    EXPECT_NE(peer.request().find("Connection: close\r\n"), std::string::npos);
    peer.reply("x");
    EXPECT_TRUE(peer.ended());
  });
  for (int i = 0; i < 3; i++) {
    const Fetched got = fetch(server.url(), {.change = [](auto* t) { t->set_keep_alive(0); }});
    EXPECT_EQ(got.body, "x");
    EXPECT_EQ(got.sequence, 0);
  }
  EXPECT_EQ(server.connections(), 3);
}

TEST(HttpClient, DoesNotKeepWhatTheServerCloses) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply("x", "Connection: close\r\n");
    EXPECT_TRUE(peer.ended());
  });
  EXPECT_EQ(fetch(server.url()).body, "x");
  EXPECT_EQ(fetch(server.url()).body, "x");
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpClient, BytesBeyondTheResponseEndTheConnection) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n");
    EXPECT_TRUE(peer.ended());
  });
  EXPECT_EQ(fetch(server.url()).body, "x");
  EXPECT_EQ(fetch(server.url()).body, "x");
}

TEST(HttpClient, AConnectionClosedWhileIdleIsNotUsed) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply("x");
  });
  for (int i = 0; i < 20; i++) {
    // Also when the close arrives only as the next request is sent.
    EXPECT_EQ(fetch(server.url()).state, WFT_STATE_SUCCESS);
  }
}

TEST(HttpClient, PostsAreNotSentTwice) {
  std::atomic<int> seen{0};
  RawServer server([&](Peer& peer, int n) {
    while (!peer.request().empty()) {
      if (++seen > 1 || n > 0) {
        break;  // closes without an answer
      }
      peer.reply("x");
    }
  });
  const auto post = [](auto* t) { t->get_req()->set_method("POST"); };
  EXPECT_EQ(fetch(server.url(), {.change = post}).state, WFT_STATE_SUCCESS);
  const Fetched got = fetch(server.url(), {.retry_max = 3, .change = post});
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, ECONNRESET);
  EXPECT_EQ(seen, 2);
}

TEST(HttpClient, GetsAreTriedAgainAsOftenAsAllowed) {
  std::atomic<int> seen{0};
  RawServer server([&](Peer& peer, int) {
    peer.request();
    if (++seen % 3 == 0) {
      peer.reply("third");
    }
  });
  EXPECT_EQ(fetch(server.url(), {.retry_max = 1}).error, ECONNRESET);
  EXPECT_EQ(seen, 2);
  seen = 0;
  EXPECT_EQ(fetch(server.url(), {.retry_max = 2}).body, "third");
  EXPECT_EQ(seen, 3);
}

TEST(HttpClient, AResponseCutShortIsAnError) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"}) {
    std::atomic<int> seen{0};
    RawServer server([&](Peer& peer, int) {
      peer.request();
      seen++;
      peer.send(bytes);
    });
    const Fetched got = fetch(server.url(), {.retry_max = 5});
    EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(got.error, ECONNRESET);
    EXPECT_EQ(seen, 1) << "something had come already";
  }
}

TEST(HttpClient, NonsenseIsAnError) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.send("SSH-2.0-nonsense\r\n\r\n");
    EXPECT_TRUE(peer.ended());
  });
  const Fetched got = fetch(server.url());
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, EBADMSG);
}

TEST(HttpClient, ResponsesMayBeLimited) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply(std::string(5000, 'x'));
  });
  const Fetched got =
      fetch(server.url(), {.change = [](auto* t) { t->get_resp()->set_size_limit(4096); }});
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, EMSGSIZE);
}

TEST(HttpClient, EarlyAnswersEndTheRequest) {
  WFFacilities::WaitGroup over(1);
  RawServer server([&over](Peer& peer, int) {
    peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    // Does not read the request at all, nor reset the connection before the answer was read.
    over.wait();
  });
  const std::string large(20'000'000, 'z');
  const Fetched got = fetch(server.url(), {.change = [&](auto* t) {
                              t->get_req()->set_method("POST");
                              t->get_req()->append_output_body_nocopy(large);
                            }});
  over.done();
  EXPECT_EQ(got.status, "413");
}

// Failures ---------------------------------------------------------------------------------------

TEST(HttpClient, RefusedConnectionsAreTold) {
  const workflow::UniqueFd nobody = test_support::keep_port();
  const Fetched got = fetch(
      "http://127.0.0.1:" + std::to_string(test_support::port_of(nobody.get())), {.retry_max = 2});
  EXPECT_EQ(got.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(got.error, ECONNREFUSED);
}

TEST(HttpClient, UrlsThatAreNoneAreTold) {
  const auto error_of = [](const char* url) {
    const Fetched got = fetch(url);
    EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR) << url;
    return got.error;
  };
  EXPECT_EQ(error_of(""), WFT_ERR_URI_PARSE_FAILED);
  EXPECT_EQ(error_of("http://"), WFT_ERR_URI_PARSE_FAILED);
  EXPECT_EQ(error_of("http://a b/"), WFT_ERR_URI_PARSE_FAILED);
  EXPECT_EQ(error_of("ftp://127.0.0.1/"), WFT_ERR_URI_SCHEME_INVALID);
  EXPECT_EQ(error_of("//127.0.0.1/"), WFT_ERR_URI_SCHEME_INVALID);
  EXPECT_EQ(error_of("http://127.0.0.1:99999/"), WFT_ERR_URI_PORT_INVALID);
  EXPECT_EQ(error_of("http://127.0.0.1:0/"), WFT_ERR_URI_PORT_INVALID);
}

TEST(HttpClient, NamesThatAreNoneAreTold) {
  const Fetched got = fetch("http://no-such-host.invalid./", {.retry_max = 1});
  EXPECT_EQ(got.state, WFT_STATE_DNS_ERROR);
  EXPECT_NE(got.error, 0);
}

TEST(HttpClient, LocalhostIsFound) {
  server_test::TestServer server;
  EXPECT_EQ(fetch("http://localhost:" + std::to_string(server.port()) + "/").state,
            WFT_STATE_SUCCESS);
}

TEST(HttpClient, SilentServersTimeOut) {
  RawServer server([](Peer& peer, int n) {
    peer.request();
    if (n == 1) {
      peer.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
      while (!peer.ended()) {
      }
    }
    peer.ended();
  });
  const auto limit = [](auto* t) { t->set_receive_timeout(30); };
  const Fetched silent = fetch(server.url(), {.retry_max = 3, .change = limit});
  EXPECT_EQ(silent.error, ETIMEDOUT);
  EXPECT_EQ(silent.timeout_reason, TOR_TRANSMIT_TIMEOUT);
  EXPECT_EQ(fetch(server.url(), {.change = limit}).error, ETIMEDOUT);
  const Fetched watched =
      fetch(server.url(), {.change = [](auto* t) { t->set_watch_timeout(30); }});
  EXPECT_EQ(watched.error, ETIMEDOUT);
  EXPECT_TRUE(server_test::eventually([&] { return server.connections() >= 3; }));
  EXPECT_EQ(server.connections(), 3) << "a request that timed out may have been carried out";
}

TEST(HttpClient, NoMoreConnectionsThanAllowed) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 2;
  settings.endpoint_params.connect_timeout = 20'000;
  WORKFLOW_library_init(&settings);
  std::atomic<int> open{0};
  RawServer server([&](Peer& peer, int) {
    EXPECT_LE(++open, 2);
    while (!peer.request().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // others come meanwhile
      peer.reply("x");
    }
    open--;
  });
  constexpr int kTasks = 50;
  WFFacilities::WaitGroup group(kTasks);
  std::atomic<int> good{0};
  for (int i = 0; i < kTasks; i++) {
    WFTaskFactory::create_http_task(server.url(), 0, 0, [&](WFHttpTask* task) {
      good += task->get_state() == WFT_STATE_SUCCESS;
      group.done();
    })->start();
  }
  group.wait();
  EXPECT_EQ(good, kTasks);
  EXPECT_LE(server.connections(), 2);
}

TEST(HttpClient, TheWaitForAConnectionHasALimit) {
  ASSERT_EQ(WFManualClock::install(), 0);
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 1;
  settings.endpoint_params.connect_timeout = 50;
  WORKFLOW_library_init(&settings);
  test_support::Tally asked;
  test_support::Tally waited;
  RawServer server([&](Peer& peer, int) {
    peer.request();
    asked.add();
    waited.wait_for(1);  // longer than others may wait
    peer.reply("x");
  });
  const auto begin = [&server](int retry_max, Fetched& got, WFFacilities::WaitGroup& ended) {
    WFTaskFactory::create_http_task(server.url(), 0, retry_max, [&](WFHttpTask* task) {
      got = fetched(task);
      ended.done();
    })->start();
  };
  Fetched first;
  WFFacilities::WaitGroup first_ended(1);
  begin(0, first, first_ended);
  ASSERT_TRUE(asked.wait_for(1));
  Fetched second;
  WFFacilities::WaitGroup second_ended(1);
  begin(5, second, second_ended);
  WFManualClock::advance(std::chrono::milliseconds(50));
  second_ended.wait();
  waited.add();
  first_ended.wait();
  EXPECT_EQ(second.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(second.error, ETIMEDOUT);
  EXPECT_EQ(second.timeout_reason, TOR_WAIT_TIMEOUT);
  EXPECT_EQ(first.body, "x");
}

// Redirects --------------------------------------------------------------------------------------

TEST(HttpClient, FollowsRedirectsAsFarAsAllowed) {
  RawServer server([](Peer& peer, int) {
    for (int i = 0;; i++) {
      const std::string request = peer.request();
      if (request.empty()) return;
      const int n = std::atoi(request.c_str() + 5);
      if (n == 3) {
        peer.reply("there");
      } else {
        peer.send("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /" + std::to_string(n + 1) +
                  "\r\n\r\n");
      }
    }
  });
  EXPECT_EQ(fetch(server.url("/0"), {.redirect_max = 3}).body, "there");
  EXPECT_EQ(fetch(server.url("/0"), {.redirect_max = 2}).status, "302");
  EXPECT_EQ(fetch(server.url("/0")).status, "302");
}

TEST(HttpClient, RedirectsChangeTheMethodAsTheRfcSays) {
  struct Case {
    const char* status;
    const char* method;
    const char* then;
    bool keeps_body;
  };
  for (const Case& each : {Case{"301", "POST", "GET", false}, Case{"302", "POST", "GET", false},
                           Case{"303", "POST", "GET", false}, Case{"303", "PUT", "GET", false},
                           Case{"303", "HEAD", "HEAD", false}, Case{"302", "PUT", "PUT", true},
                           Case{"307", "POST", "POST", true}, Case{"308", "POST", "POST", true}}) {
    std::string second;
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send(std::string("HTTP/1.1 ") + each.status +
                " X\r\nContent-Length: 0\r\nLocation: there?x#y\r\n\r\n");
      second = peer.request();
      peer.send("HTTP/1.1 204 No Content\r\n\r\n");
    });
    const Fetched got =
        fetch(server.url("/a/b"), {.redirect_max = 1, .change = [&](WFHttpTask* t) {
                                     t->get_req()->set_method(each.method);
                                     if (std::string(each.method) != "HEAD") {
                                       t->get_req()->append_output_body("body");
                                     }
                                     t->get_req()->add_header_pair("Content-Type", "text/plain");
                                   }});
    EXPECT_EQ(got.status, "204");
    EXPECT_EQ(first_line(second), std::string(each.then) + " /a/there?x HTTP/1.1");
    EXPECT_EQ(second.find("\r\n\r\nbody") != std::string::npos, each.keeps_body) << second;
    if (!each.keeps_body && std::string(each.method) != "HEAD") {
      EXPECT_EQ(second.find("Content-"), std::string::npos) << second;
    }
  }
}

TEST(HttpClient, CredentialsStayWithTheirOrigin) {
  std::string second;
  std::string third;
  RawServer other([&](Peer& peer, int) {
    third = peer.request();
    peer.reply("");
  });
  RawServer server([&](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: /same\r\n\r\n");
    second = peer.request();
    peer.send("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: " + other.url("/other") +
              "\r\n\r\n");
  });
  const std::string url = "http://user:pass@127.0.0.1:" + std::to_string(server.port()) + "/";
  EXPECT_EQ(fetch(url, {.redirect_max = 2,
                        .change =
                            [](WFHttpTask* t) {
                              t->get_req()->add_header_pair("Cookie", "secret=1");
                              t->get_req()->add_header_pair("X-Other", "stays");
                            }})
                .status,
            "200");
  EXPECT_NE(second.find("Authorization: Basic dXNlcjpwYXNz\r\n"), std::string::npos) << second;
  EXPECT_NE(second.find("Cookie: "), std::string::npos);
  EXPECT_EQ(third.find("Authorization"), std::string::npos) << third;
  EXPECT_EQ(third.find("Cookie"), std::string::npos);
  EXPECT_NE(third.find("X-Other: stays"), std::string::npos);
  EXPECT_NE(third.find("Host: 127.0.0.1:" + std::to_string(other.port()) + "\r\n"),
            std::string::npos);
}

TEST(HttpClient, BadRedirectsAreTold) {
  for (const char* location : {"ftp://127.0.0.1/", "http://", "http://a b/", "http://h:99999/"}) {
    RawServer server([&](Peer& peer, int) {
      peer.request();
      peer.send(std::string("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: ") + location +
                "\r\n\r\n");
    });
    const Fetched got = fetch(server.url(), {.redirect_max = 2});
    EXPECT_EQ(got.state, WFT_STATE_TASK_ERROR) << location;
    EXPECT_EQ(got.error, WFT_ERR_HTTP_BAD_REDIRECT_HEADER);
  }
}

// Proxies ----------------------------------------------------------------------------------------

// Follows up to two redirections.
Fetched redirected_through(const std::string& url, const std::string& proxy) {
  return fetch_through(url, proxy, {.redirect_max = 2});
}

TEST(HttpClient, AProxyIsAskedInAbsoluteForm) {
  std::string seen;
  RawServer proxy([&](Peer& peer, int) {
    seen = peer.request();
    peer.send("HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: http://other.test/there\r\n\r\n");
    seen += peer.request();
    peer.reply("through");
  });
  const std::string url = "http://user:pass@127.0.0.1:" + std::to_string(proxy.port());
  EXPECT_EQ(redirected_through("http://host.test:81/a?b", url).body, "through");
  const std::string credentials = "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n";
  EXPECT_EQ(seen, "GET http://host.test:81/a?b HTTP/1.1\r\nHost: host.test:81\r\n" + credentials +
                      "\r\nGET http://other.test/there HTTP/1.1\r\nHost: other.test\r\n" +
                      credentials + "\r\n");
}

TEST(HttpClient, ProxiesThatAreNoneAreTold) {
  EXPECT_EQ(redirected_through("http://h.test/", "").error, WFT_ERR_URI_PARSE_FAILED);
  EXPECT_EQ(redirected_through("http://h.test/", "https://127.0.0.1:1").error,
            WFT_ERR_URI_SCHEME_INVALID);
  EXPECT_EQ(redirected_through("http://h.test/", "socks5://127.0.0.1:1").error,
            WFT_ERR_URI_SCHEME_INVALID);
}

// Composition ------------------------------------------------------------------------------------

TEST(HttpClient, SeriesAndParallelsOfRequests) {
  server_test::TestServer server;
  const std::string url = "http://127.0.0.1:" + std::to_string(server.port()) + "/";
  constexpr int kBranches = 50;
  std::atomic<int> good{0};
  WFFacilities::WaitGroup group(1);
  ParallelWork* parallel =
      Workflow::create_parallel_work([&](const ParallelWork*) { group.done(); });
  for (int i = 0; i < kBranches; i++) {
    const auto callback = [&](WFHttpTask* task) { good += fetched(task).status == "200"; };
    SeriesWork* series =
        Workflow::create_series_work(WFTaskFactory::create_http_task(url, 0, 0, callback), nullptr);
    series->push_back(WFTaskFactory::create_http_task(url, 0, 0, callback));
    parallel->add_series(series);
  }
  parallel->start();
  group.wait();
  EXPECT_EQ(good, 2 * kBranches);
}

TEST(HttpClient, DismissedRequestsAreNotSent) {
  RawServer server([](Peer&, int) {});
  WFTaskFactory::create_http_task(server.url(), 0, 0, nullptr)->dismiss();
  EXPECT_EQ(server.connections(), 0);
}

TEST(HttpClient, ThePrepareCallbackSeesTheWholeRequest) {
  std::string seen;
  RawServer server([&](Peer& peer, int) {
    seen = peer.request();
    peer.reply("");
  });
  fetch(server.url(), {.change = [](WFHttpTask* t) {
          t->set_prepare([](WFHttpTask* task) {
            task->get_req()->set_header_pair("X-Prepared", "yes");
            EXPECT_NE(task->get_connection(), nullptr);
          });
        }});
  EXPECT_NE(seen.find("X-Prepared: yes\r\n"), std::string::npos);
}

TEST(HttpClient, ThePeerHasAnAddress) {
  RawServer server([](Peer& peer, int) {
    peer.request();
    peer.reply("");
  });
  WFFacilities::WaitGroup group(1);
  WFTaskFactory::create_http_task(server.url(), 0, 0, [&](WFHttpTask* task) {
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
    EXPECT_EQ(ntohs(address.sin_port), server.port());
    group.done();
  })->start();
  group.wait();
}

}  // namespace
}  // namespace client_test
