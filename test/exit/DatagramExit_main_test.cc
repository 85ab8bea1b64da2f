#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "support/Datagrams.h"
#include "support/ExitKit.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// A process that ends while datagrams are under way. The other end is the parent's.

namespace exit_test {
namespace {

using exit_kit::outcomes;
using server_test::Note;
using server_test::NoteServer;
using server_test::NoteTask;
using test_support::UdpSocket;
using Factory = WFNetworkTaskFactory<Note, Note>;

constexpr int kRequests = 200;

// The child's side ------------------------------------------------------------------------------

std::atomic<int> held{0};

void begin_exit() {
  exit_kit::begin_exit([] { exit_kit::say(outcomes().text()); });
}

uint16_t parents_port() {
  return static_cast<uint16_t>(std::stoi(exit_kit::variable("DATAGRAM_EXIT_PORT")));
}

// Requests that no time limit ends, of a peer that says nothing; most wait for a connection.
void ask_silence() {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 20;
  settings.endpoint_params.connect_timeout = -1;
  settings.endpoint_params.response_timeout = -1;
  WORKFLOW_library_init(&settings);
  for (int i = 0; i < kRequests; i++) {
    NoteTask* task =
        Factory::create_client_task(TT_UDP, "127.0.0.1", parents_port(), 5, outcomes().callback());
    task->get_req()->text = "=";
    task->start();
  }
}

void wait_for_silence() {
  ask_silence();
  // Until some have been sent, most likely; what else they are doing is as good.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  begin_exit();
}

void leave_early() {
  ask_silence();
  begin_exit();
}

// Every reply is an hour away: its timer is aborted, and it is sent then.
void hold(NoteTask* task) {
  server_test::echo_note(task);
  task->set_callback(outcomes().callback());
  series_of(task)->push_back(
      WFTaskFactory::create_timer_task("held", 3600, 0, outcomes().callback()));
  held++;
}

// The parent sends its requests to the port that the child reports.
void forgotten_server() {
  const NoteServer& server = *new NoteServer(hold);
  UdpSocket().send_to(parents_port(), std::to_string(server.port()));
  server_test::eventually([] { return held == kRequests; });
  begin_exit();
}

// Both sides in one process.
void serve_and_ask() {
  NoteServer& server = *new NoteServer(hold);
  for (int i = 0; i < kRequests; i++) {
    NoteTask* task =
        Factory::create_client_task(TT_UDP, "127.0.0.1", server.port(), 0, [](NoteTask*) {});
    task->set_watch_timeout(-1);
    task->get_req()->text = "=";
    task->start();
  }
  server_test::eventually([] { return held == kRequests; });
  begin_exit();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"silence", wait_for_silence},
    {"early", leave_early},
    {"forgotten", forgotten_server},
    {"both", serve_and_ask},
};

// The test's side -------------------------------------------------------------------------------

std::string play(const std::string& scenario, const UdpSocket& peer) {
  return exit_kit::play_promptly(scenario, {"DATAGRAM_EXIT_PORT=" + std::to_string(peer.port())});
}

const std::string kAllHeldReplied = "400 called: 200 succeeded, 200 aborted\n";

TEST(DatagramExit, RequestsWithoutAnAnswerAreAborted) {
  const UdpSocket silent;
  for (const char* scenario : {"silence", "early"}) {
    EXPECT_EQ(play(scenario, silent), "200 called: 200 aborted\n") << scenario;
  }
}

TEST(DatagramExit, DelayedRepliesLeaveAtTheExit) {
  UdpSocket peer;
  int heard = 0;
  std::thread clients([&] {
    const auto port = peer.receive();
    ASSERT_TRUE(port);
    for (int i = 0; i < kRequests; i++) {
      EXPECT_TRUE(peer.send_to(static_cast<uint16_t>(std::stoi(*port)), "="));
    }
    while (heard < kRequests && peer.receive() == "=") {
      heard++;
    }
  });
  EXPECT_EQ(play("forgotten", peer), kAllHeldReplied);
  clients.join();
  EXPECT_EQ(heard, kRequests);
}

TEST(DatagramExit, ServerAndClientsInOneProcess) {
  EXPECT_EQ(play("both", UdpSocket()), kAllHeldReplied);
}

}  // namespace
}  // namespace exit_test

int main(int argc, char** argv) {
  return exit_kit::run(exit_test::kScenarios, argc, argv);
}
