#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernel/Resolver.h"
#include "support/Certificates.h"
#include "support/ExitKit.h"
#include "support/FakeDnsServer.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFTaskFactory.h"

// A process that ends while its clients' requests are under way. Servers that never answer belong
// to the parent.

namespace client_test {
namespace {

using namespace exit_kit;

// The child's side ------------------------------------------------------------------------------

std::atomic<int> started{0};
std::atomic<bool> ending{false};

// `last_deed` comes after the stop of the library.
void begin_exit(void (*last_deed)() = nullptr) {
  exit_kit::begin_exit([last_deed] {
    if (last_deed) {
      last_deed();
    }
    say(std::to_string(started - outcomes().called) + " missing, " + outcomes().text());
  });
  ending = true;
}

void count(const WFHttpTask* task) {
  outcomes().add(task);
}

// A request that no time limit ends.
void request(const std::string& url, http_callback_t callback = count, size_t body = 0) {
  started++;
  WFHttpTask* task = WFTaskFactory::create_http_task(url, 3, 2, std::move(callback));
  if (body > 0) {
    task->get_req()->set_method("POST");
    task->get_req()->append_output_body(std::string(body, 'b'));
  }
  task->set_send_timeout(-1);
  task->set_receive_timeout(-1);
  task->set_keep_alive(-1);
  task->start();
}

void limit_nothing(size_t max_connections) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = max_connections;
  settings.endpoint_params.connect_timeout = -1;
  settings.endpoint_params.ssl_connect_timeout = -1;
  settings.endpoint_params.response_timeout = -1;
  WORKFLOW_library_init(&settings);
  // No look-up of a name that is never answered may give up before the exit begins, however late.
  workflow::Resolver::configure({.files = {.hosts_path = "",
                                           .resolv_conf_path = "",
                                           .servers = {variable("CLIENT_EXIT_NAMES")},
                                           .timeout_ms = 3'600'000}});
}

std::string url(const char* scheme, const char* port) {
  return scheme + std::string("://127.0.0.1:") + variable(port) + "/";
}

void trust() {
  if (SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(),
                               variable("CLIENT_EXIT_AUTHORITY").c_str()) != 1) {
    say("no authority");
  }
}

// The parent's server says nothing; so all of these stay where they are.
void wait_in_every_stage() {
  limit_nothing(5);
  for (int i = 0; i < 20; i++) {
    request("http://host" + std::to_string(i % 7) + ".test/");
    request(url("http", "CLIENT_EXIT_FULL"));     // connecting, and waiting for a connection
    request(url("https", "CLIENT_EXIT_SILENT"));  // in the handshake, and waiting
    request(url("http", "CLIENT_EXIT_SILENT"), count, 5'000'000);
    request(url("http", "CLIENT_EXIT_PARTIAL"));
  }
  // By now each request has most likely reached its place. The test is right wherever they are.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  begin_exit();
}

// The process begins to exit at any moment after it has made its requests.
void leave_early() {
  limit_nothing(2);
  for (int i = 0; i < 10; i++) {
    request("http://host" + std::to_string(i % 7) + ".test/");
    request(url("http", "CLIENT_EXIT_FULL"));
    request(url("https", "CLIENT_EXIT_SILENT"));
    request(url("http", "CLIENT_EXIT_SILENT"), count, 5'000'000);
    request(url("http", "CLIENT_EXIT_PARTIAL"));
    request(url("http", "CLIENT_EXIT_ECHO"));
    request(url("https", "CLIENT_EXIT_ECHO_TLS"));
  }
  test_support::TestRandom random(test_support::test_seed());
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
  begin_exit();
}

void keep_connections() {
  limit_nothing(10);
  trust();
  for (int i = 0; i < 40; i++) {
    request(url("http", "CLIENT_EXIT_ECHO"));
    request(url("https", "CLIENT_EXIT_ECHO_TLS"));
  }
  server_test::eventually([] { return outcomes().called == started; });
  begin_exit();
}

// Each callback makes two requests, and two more in its series, until the library is gone.
void request_again(WFHttpTask* task) {
  count(task);
  if (started < 3000) {
    request(url("http", "CLIENT_EXIT_PARTIAL"), request_again);
    request("http://another.test/", request_again);
    started++;
    series_of(task)->push_back(
        WFTaskFactory::create_http_task(url("https", "CLIENT_EXIT_SILENT"), 0, 0, request_again));
  }
}

void request_in_callbacks() {
  limit_nothing(5);
  for (int i = 0; i < 10; i++) {
    request(url("http", "CLIENT_EXIT_PARTIAL"), request_again);
    request("http://another.test/", request_again);
  }
  begin_exit([] {
    request("http://another.test/");
    request(url("https", "CLIENT_EXIT_SILENT"));
    WFTaskFactory::create_http_task("http://another.test/", 0, 0, count)->dismiss();
  });
}

// The first use of clients comes after the stop.
void begin_after_the_stop() {
  WFTaskFactory::create_timer_task(0, 0, nullptr)->start();
  begin_exit([] {
    started++;
    static int left = 10'000;
    static http_callback_t& next = *new http_callback_t;
    next = [](WFHttpTask* task) {
      count(task);
      if (--left > 0) {
        started++;
        WFTaskFactory::create_http_task("http://127.0.0.1:1/", 0, 0, next)->start();
      }
    };
    WFTaskFactory::create_http_task("http://127.0.0.1:1/", 0, 0, next)->start();
  });
}

// A server with replies an hour away, and its clients, in one process.
void serve_and_ask(const char* scheme) {
  limit_nothing(100);
  const test_support::Certificate certificate = {variable("CLIENT_EXIT_CERTIFICATE"),
                                                 variable("CLIENT_EXIT_KEY")};
  const bool tls = std::string_view(scheme) == "https";
  if (tls) {
    trust();
  }
  auto& server = *new server_test::TestServer(
      [](WFHttpTask* task) {
        series_of(task)->push_back(WFTaskFactory::create_timer_task("held", 3600, 0, nullptr));
      },
      server_test::http_params(), tls ? &certificate : nullptr);
  for (int i = 0; i < 150; i++) {
    request(scheme + std::string("://127.0.0.1:") + std::to_string(server.port()) + "/");
  }
  server_test::eventually([&] { return server.processed() == 100; });
  begin_exit();
}

void serve_and_ask_plain() {
  serve_and_ask("http");
}
void serve_and_ask_over_tls() {
  serve_and_ask("https");
}

// Threads that go on with requests while the process ends.
void exit_in_a_flood() {
  limit_nothing(4);
  trust();
  static const std::string& plain = *new std::string(url("http", "CLIENT_EXIT_ECHO"));
  static const std::string& tls = *new std::string(url("https", "CLIENT_EXIT_ECHO_TLS"));
  for (int t = 0; t < 3; t++) {
    std::thread([] {
      while (!ending) {
        WFFacilities::WaitGroup group(2);
        const auto callback = [&group](WFHttpTask* task) {
          count(task);
          group.done();
        };
        request(plain, callback);
        request(tls, callback);
        group.wait();
      }
      // When OpenSSL has cleaned up at exit, it does not free any more what it keeps for a thread
      // that ends. LeakSanitizer finds that, but not while the thread is there.
      std::this_thread::sleep_for(std::chrono::hours(1));
    }).detach();
  }
  server_test::eventually([] { return outcomes().succeeded > 20; });
  begin_exit();
}

// A response without end is handed out, quickly and slowly.
void stream_endlessly() {
  limit_nothing(20);
  static std::atomic<int> extracted{0};
  static std::atomic<int> late{0};
  for (int i = 0; i < 20; i++) {
    started++;
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    WFHttpChunkedTask* task = WFHttpChunkedClient::create_chunked_task(
        url("http", "CLIENT_EXIT_ENDLESS"), 0,
        [i, ended](WFHttpChunkedTask*) {
          extracted++;
          late += ended->load();
          if (i % 2 == 0) {
            // Each piece takes its time; a read brings many.
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        },
        [ended](WFHttpChunkedTask* done) {
          ended->store(true);
          count(done);
        });
    task->start();
  }
  server_test::eventually([] { return extracted > 100; });
  begin_exit([] { say(std::to_string(late) + " late"); });
}

// The exit comes while a part of a response is handed out. Its task ends on a handler, as ever.
void exit_during_extract() {
  limit_nothing(20);
  static std::atomic<bool> in_extract{false};
  started++;
  WFHttpChunkedClient::create_chunked_task(
      url("http", "CLIENT_EXIT_ENDLESS"), 0,
      [](WFHttpChunkedTask*) {
        in_extract = true;
        // The stop has to come meanwhile.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      },
      [](WFHttpChunkedTask* done) {
        char name[16] = "";
        ::pthread_getname_np(::pthread_self(), name, sizeof(name));
        say(std::string("called on ") + name);
        count(done);
      })
      ->start();
  server_test::eventually([] { return in_extract.load(); });
  begin_exit();
}

// The one that exits does not come back, so it has no callback; the other has.
void exit_in_extract() {
  limit_nothing(20);
  for (int i = 0; i < 2; i++) {
    started++;
    WFHttpChunkedClient::create_chunked_task(
        url("http", "CLIENT_EXIT_ENDLESS"), 0,
        [i](WFHttpChunkedTask*) {
          if (i == 1) {
            begin_exit();
            std::exit(0);
          }
        },
        count)
        ->start();
  }
  exit_kit::wait_for_exit();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"stages", wait_in_every_stage},
    {"early", leave_early},
    {"kept", keep_connections},
    {"callbacks", request_in_callbacks},
    {"after", begin_after_the_stop},
    {"both", serve_and_ask_plain},
    {"both-tls", serve_and_ask_over_tls},
    {"flood", exit_in_a_flood},
    {"endless", stream_endlessly},
    {"in-extract", exit_in_extract},
    {"during-extract", exit_during_extract},
};

// The test's side -------------------------------------------------------------------------------

// A socket that listens and accepts nobody: its backlog is full.
class FullServer {
 public:
  FullServer() {
    const struct sockaddr_in address = test_support::loopback(port());
    for (int i = 0; i < 3; i++) {
      fillers_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(fillers_.back().get(), reinterpret_cast<const struct sockaddr*>(&address),
                sizeof address);
    }
  }
  uint16_t port() const { return test_support::port_of(fd_.get()); }

 private:
  const workflow::UniqueFd fd_ = test_support::listen_on_loopback(0);
  std::vector<workflow::UniqueFd> fillers_;
};

class ClientExit : public testing::Test {
 protected:
  ClientExit() { names_.set_others({.how = test_support::DnsReply::How::kDrop}); }

  std::string play(const std::string& scenario) {
    const auto port = [](uint16_t number) { return std::to_string(number); };
    return exit_kit::play_promptly(
        scenario,
        {"CLIENT_EXIT_NAMES=" + names_.address(), "CLIENT_EXIT_FULL=" + port(full_.port()),
         "CLIENT_EXIT_SILENT=" + port(silent_.port()),
         "CLIENT_EXIT_PARTIAL=" + port(partial_.port()),
         "CLIENT_EXIT_ENDLESS=" + port(endless_.port()), "CLIENT_EXIT_ECHO=" + port(echo_.port()),
         "CLIENT_EXIT_ECHO_TLS=" + port(echo_tls_.port()),
         "CLIENT_EXIT_AUTHORITY=" + authority_.file(),
         "CLIENT_EXIT_CERTIFICATE=" + certificate_.cert_file,
         "CLIENT_EXIT_KEY=" + certificate_.key_file});
  }

 private:
  test_support::FakeDnsServer names_;
  test_support::Authority authority_;
  const test_support::Certificate certificate_ = authority_.issue({"IP:127.0.0.1"});
  FullServer full_;
  RawServer silent_{[](Peer& peer, int) {
    // Takes nothing until the client has gone.
    struct pollfd end = {peer.fd(), POLLRDHUP, 0};
    ::poll(&end, 1, 60'000);
  }};
  RawServer partial_{[](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    peer.ended();
  }};
  RawServer endless_{[](Peer& peer, int) {
    peer.request();
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::string chunks;
    for (int i = 0; i < 1000; i++) {
      chunks += "5\r\nevent\r\n";
    }
    while (peer.send(chunks)) {
    }
  }};
  server_test::TestServer echo_;
  server_test::TestServer echo_tls_{server_test::echo, server_test::http_params(), &certificate_};
};

TEST_F(ClientExit, InEveryStage) {
  for (int i = 0; i < times(1); i++) {
    ASSERT_EQ(play("stages"), "0 missing, 100 called: 100 aborted\n");
  }
}

TEST_F(ClientExit, AtAnyMoment) {
  for (int i = 0; i < times(5); i++) {
    const std::string output = play("early");
    ASSERT_NE(("\n" + output).find("\n0 missing, "), std::string::npos) << output;
  }
}

TEST_F(ClientExit, WithIdleConnections) {
  for (int i = 0; i < times(1); i++) {
    ASSERT_EQ(play("kept"), "0 missing, 80 called: 80 succeeded\n");
  }
}

TEST_F(ClientExit, RequestsOfCallbacksAreAborted) {
  for (int i = 0; i < times(3); i++) {
    const std::string output = play("callbacks");
    ASSERT_TRUE(std::regex_match(output, std::regex("0 missing, (\\d+) called: \\1 aborted\n")))
        << output;
  }
}

TEST_F(ClientExit, ChainsBegunAfterTheStopAreAborted) {
  EXPECT_EQ(play("after"), "0 missing, 10000 called: 10000 aborted\n");
}

// Whether a client hears of the server's last words depends on who is stopped first.
TEST_F(ClientExit, ServerAndClientsInOneProcess) {
  for (int i = 0; i < times(1); i++) {
    for (const char* scenario : {"both", "both-tls"}) {
      const std::string output = play(scenario);
      ASSERT_NE(("\n" + output).find("\n0 missing, "), std::string::npos) << output;
    }
  }
}

TEST_F(ClientExit, WhileThreadsGoOn) {
  for (int i = 0; i < times(3); i++) {
    const std::string output = play("flood");
    ASSERT_NE(output.find(" succeeded"), std::string::npos) << output;
  }
}

TEST_F(ClientExit, ResponsesWithoutEndAreAborted) {
  for (int i = 0; i < times(3); i++) {
    ASSERT_EQ(play("endless"), "0 late\n0 missing, 20 called: 20 aborted\n");
  }
}

TEST_F(ClientExit, ATaskThatIsHandingOutEndsOnAHandler) {
  for (int i = 0; i < times(3); i++) {
    ASSERT_EQ(play("during-extract"), "called on wf-handler\n0 missing, 1 called: 1 aborted\n");
  }
}

TEST_F(ClientExit, ExitMayBeCalledInExtract) {
  for (int i = 0; i < times(3); i++) {
    ASSERT_EQ(play("in-extract"), "1 missing, 1 called: 1 aborted\n");
  }
}

}  // namespace
}  // namespace client_test

int main(int argc, char** argv) {
  return exit_kit::run(client_test::kScenarios, argc, argv);
}
