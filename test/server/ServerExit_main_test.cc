#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/ExitKit.h"
#include "support/Loopback.h"
#include "support/TestServer.h"

// A process that ends while its server is running.

namespace server_test {
namespace {

using exit_kit::say;
using exit_kit::wait_for_exit;

constexpr const char* kSocketVariable = "WORKFLOW_SERVER_EXIT_SOCKET";  // a descriptor

// The child's side ------------------------------------------------------------------------------

std::atomic<int> aborted{0};
std::atomic<int> ended{0};

void begin_exit() {
  exit_kit::begin_exit(
      [] { say(std::to_string(aborted) + " aborted, " + std::to_string(ended) + " ended"); });
}

// Every reply is an hour away.
void hold(WFHttpTask* task) {
  task->set_callback([](WFHttpTask*) { ended++; });
  series_of(task)->push_back(WFTaskFactory::create_timer_task(
      "held", 3600, 0,
      [](WFTimerTask* timer) { aborted += timer->get_state() == WFT_STATE_ABORTED; }));
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
  connect_clients(test_support::port_of(static_server), [&] { return requests == 200; });
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
  wait_for_exit();
}

void exit_while_another_waits() {
  TestServer& server = *new TestServer(hold);
  connect_clients(server.port(), [&] { return server.processed() == 200; });
  std::thread([] {
    begin_exit();
    std::exit(0);
  }).detach();
  server->wait_finish();
  wait_for_exit();
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
  static const std::string& body = *new std::string(300'000, 'u');
  return body;
}

// Stops in order while its client, in the other process, reads nothing yet.
void exit_before_the_reply_is_read() {
  std::atomic<bool> replied{false};
  WFHttpServer server([&](WFHttpTask* task) {
    task->get_resp()->append_output_body_nocopy(unread_body());
    task->set_callback([&](WFHttpTask*) { replied = true; });
  });
  if (server.serve(std::stoi(exit_kit::variable(kSocketVariable))) != 0) {
    say("cannot serve");
  }
  eventually([&] { return replied.load(); });
  server.stop();
  begin_exit();
}

// Nothing has a time limit, and the client takes but the first byte of the reply.
void exit_while_a_reply_is_stuck() {
  static const std::string& body = *new std::string(64 * 1024 * 1024, 's');
  struct WFServerParams params = http_params();
  params.header_timeout = -1;
  params.keep_alive_timeout = -1;
  params.send_timeout = -1;
  auto& server = *new WFHttpServer(&params, [](WFHttpTask* task) {
    task->get_resp()->append_output_body_nocopy(body);
    task->set_callback([](WFHttpTask* ending) { ended += ending->get_error() == ECANCELED; });
  });
  if (server.start("127.0.0.1", 0) != 0) {
    say("cannot start");
  }
  static auto& client = *new RawClient(test_support::port_of(server), 4096);
  client.send(kGet);
  client.take(1);
  begin_exit();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"forgotten", forgotten_server},
    {"static", static_server_still_running},
    {"process", exit_in_process},
    {"waiting", exit_while_another_waits},
    {"flood", exit_in_a_flood},
    {"unread", exit_before_the_reply_is_read},
    {"stuck", exit_while_a_reply_is_stuck},
};

// The test's side -------------------------------------------------------------------------------

std::string play(const char* scenario, int socket = -1) {
  return exit_kit::play_promptly(scenario,
                                 {std::string(kSocketVariable) + "=" + std::to_string(socket)});
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

TEST(ServerExit, WhileAReplyWithoutATimeLimitIsStuck) {
  EXPECT_EQ(play("stuck"), "0 aborted, 1 ended\n");
}

// The kernel goes on sending when the process is no more.
TEST(ServerExit, BeforeTheReplyIsRead) {
  const workflow::UniqueFd listening = test_support::listen_on_loopback(128, 65536);
  ::fcntl(listening.get(), F_SETFD, 0);
  RawClient client(test_support::port_of(listening.get()), 4096);
  client.send(kGet);
  play("unread", listening.get());
  EXPECT_TRUE(client.body() == unread_body());
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

}  // namespace server_test

int main(int argc, char** argv) {
  return exit_kit::run(server_test::kScenarios, argc, argv);
}
