#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/TestServer.h"
#include "support/ChildProcess.h"
#include "support/Sanitizers.h"
#include "util/Time.h"

// A process that ends while its server is running. Each test runs this program again as a child,
// which plays the scenario named in the environment and ends.

namespace server_test {
namespace {

constexpr const char* kScenarioVariable = "WORKFLOW_SERVER_EXIT_SCENARIO";
constexpr const char* kSocketVariable = "WORKFLOW_SERVER_EXIT_SOCKET";  // a descriptor

// The child's side ------------------------------------------------------------------------------

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

std::atomic<int> aborted{0};
std::atomic<int> ended{0};
std::atomic<int64_t> end_of_main_ns{0};

// Destroyed after the library has stopped: constructed before its first use.
class LastWord {
 public:
  ~LastWord() {
    if (end_of_main_ns != 0) {
      say(std::to_string(aborted) + " aborted, " + std::to_string(ended) + " ended");
      const int64_t took_ns = workflow::monotonic_ns() - end_of_main_ns;
      say("took_ms=" + std::to_string(took_ns / 1'000'000));
    }
  }
};

const LastWord last_word;

// Every reply is an hour away.
void hold(WFHttpTask* task) {
  task->set_callback([](WFHttpTask*) { ended++; });
  series_of(task)->push_back(WFTaskFactory::create_timer_task(
      "held", 3600, 0,
      [](WFTimerTask* timer) { aborted += timer->get_state() == WFT_STATE_ABORTED; }));
}

uint16_t port_of(const WFHttpServer& server) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// Clients of every kind: with a delayed reply, idle, in the middle of a request. They stay.
std::vector<RawClient>& connect_clients(uint16_t port, const std::function<bool()>& all_are_held) {
  static std::vector<RawClient>& clients = *new std::vector<RawClient>;
  for (int i = 0; i < 600; i++) {
    clients.emplace_back(port);
    switch (i % 3) {
      case 0:
        clients.back().send(kGet);
        break;
      case 1:
        clients.back().send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nb");
        break;
      default:
        break;
    }
  }
  if (!eventually(all_are_held)) {
    say("the requests did not arrive");
  }
  return clients;
}

void begin_exit() {
  end_of_main_ns = workflow::monotonic_ns();
}

void forgotten_server() {
  TestServer& server = *new TestServer(hold);
  connect_clients(server.port(), [&] { return server.processed() == 200; });
  begin_exit();
}

std::atomic<int> requests{0};
WFHttpServer static_server([](WFHttpTask* task) {
  hold(task);
  requests++;
});

void static_server_still_running() {
  if (static_server.start("127.0.0.1", 0) != 0) {
    say("cannot start");
  }
  connect_clients(port_of(static_server), [&] { return requests == 200; });
  begin_exit();
}

void exit_in_process() {
  TestServer& server = *new TestServer([](WFHttpTask* task) {
    if (std::string(task->get_req()->get_request_uri()) == "/exit") {
      begin_exit();
      std::exit(0);
    }
    hold(task);
  });
  std::vector<RawClient>& clients =
      connect_clients(server.port(), [&] { return server.processed() == 200; });
  clients.emplace_back(server.port());
  clients.back().send(get("/exit"));
  for (;;) {
    ::pause();
  }
}

void exit_while_another_waits() {
  TestServer& server = *new TestServer(hold);
  connect_clients(server.port(), [&] { return server.processed() == 200; });
  std::thread([] {
    begin_exit();
    std::exit(0);
  }).detach();
  server->wait_finish();
  for (;;) {
    ::pause();
  }
}

void exit_in_a_flood() {
  TestServer& server = *new TestServer([](WFHttpTask* task) {
    const unsigned ms = static_cast<unsigned>(task->get_task_seq() % 3);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(ms * 300, nullptr));
  });
  for (int t = 0; t < 3; t++) {
    std::thread([&] {
      for (;;) {
        RawClient client(server.port());
        client.send(get("/1") + get("/2") + get("/3") + get("/4"));
        client.status();
      }
    }).detach();
  }
  eventually([&] { return server.requests() > 500; });
  begin_exit();
}

// More than a client that does not read has room for.
const std::string& unread_body() {
  static const std::string body(300'000, 'u');
  return body;
}

// Stops in order while its client, in the other process, reads nothing yet.
void exit_before_the_reply_is_read() {
  std::atomic<bool> replied{false};
  WFHttpServer server([&](WFHttpTask* task) {
    task->get_resp()->append_output_body_nocopy(unread_body());
    task->set_callback([&](WFHttpTask*) { replied = true; });
  });
  if (server.serve(std::atoi(std::getenv(kSocketVariable))) != 0) {
    say("cannot serve");
  }
  eventually([&] { return replied.load(); });
  server.stop();
  begin_exit();
}

struct Scenario {
  const char* name;
  void (*play)();
};

constexpr Scenario kScenarios[] = {
    {"forgotten", forgotten_server}, {"static", static_server_still_running},
    {"process", exit_in_process},    {"waiting", exit_while_another_waits},
    {"flood", exit_in_a_flood},      {"unread", exit_before_the_reply_is_read},
};

// The test's side -------------------------------------------------------------------------------

std::string play(const char* scenario, int socket = -1) {
  const test_support::ChildResult result =
      test_support::run_self({std::string(kScenarioVariable) + "=" + scenario,
                              std::string(kSocketVariable) + "=" + std::to_string(socket)},
                             std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  const size_t at = result.output.find("took_ms=");
  EXPECT_NE(at, std::string::npos) << result.output;
  if (at != std::string::npos) {
    EXPECT_LT(std::atoi(result.output.c_str() + at + 8), test_support::kSanitized ? 20000 : 2000);
  }
  return result.output.substr(0, at);
}

}  // namespace

TEST(ServerExit, ServerThatWasForgotten) {
  EXPECT_EQ(play("forgotten"), "200 aborted, 200 ended\n");
}

TEST(ServerExit, StaticServer) {
  EXPECT_EQ(play("static"), "200 aborted, 200 ended\n");
}

TEST(ServerExit, InAProcessFunction) {
  EXPECT_EQ(play("process"), "200 aborted, 200 ended\n");
}

TEST(ServerExit, WhileAThreadWaitsForTheServer) {
  EXPECT_EQ(play("waiting"), "200 aborted, 200 ended\n");
}

TEST(ServerExit, WhileClientsSendFuriously) {
  for (int i = 0; i < 5; i++) {
    play("flood");
  }
}

// The kernel goes on sending when the process is no more.
TEST(ServerExit, BeforeTheReplyIsRead) {
  const workflow::UniqueFd listening = listening_socket(65536);
  ::fcntl(listening.get(), F_SETFD, 0);
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  ::getsockname(listening.get(), reinterpret_cast<struct sockaddr*>(&address), &length);
  RawClient client(ntohs(address.sin_port), 4096);
  client.send(kGet);
  play("unread", listening.get());
  EXPECT_TRUE(client.body() == unread_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

// True when this process is a child and has played its part.
static bool play_as_child() {
  const char* name = std::getenv(kScenarioVariable);
  if (!name) {
    return false;
  }
  for (const Scenario& scenario : kScenarios) {
    if (std::string_view(scenario.name) == name) {
      scenario.play();
    }
  }
  return true;
}

}  // namespace server_test

int main(int argc, char** argv) {
  if (server_test::play_as_child()) {
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
