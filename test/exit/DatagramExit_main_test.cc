#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "server/Datagrams.h"
#include "support/ChildProcess.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "util/Time.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// A process that ends while datagrams are under way. Each test runs this program again as a child,
// which plays the scenario named in the environment and ends; the other end is the parent's.

namespace exit_test {
namespace {

using server_test::Note;
using server_test::NoteServer;
using server_test::NoteTask;
using test_support::UdpSocket;
using Factory = WFNetworkTaskFactory<Note, Note>;

constexpr const char* kScenarioVariable = "WORKFLOW_DATAGRAM_EXIT_SCENARIO";
constexpr int kRequests = 200;

// The child's side ------------------------------------------------------------------------------

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::atomic<int> started{0};
std::atomic<int> called{0};
std::atomic<int> aborted{0};
std::atomic<int> replied{0};
std::atomic<int64_t> end_of_main_ns{0};

// Destroyed after the library has stopped: constructed before its first use.
class LastWord {
 public:
  ~LastWord() {
    if (end_of_main_ns == 0) {
      return;
    }
    const int64_t took_ns = workflow::monotonic_ns() - end_of_main_ns;
    say(std::to_string(started - called) + " missing, " + std::to_string(aborted) + " aborted, " +
        std::to_string(replied) + " replied");
    say("took_ms=" + std::to_string(took_ns / 1'000'000));
  }
};

const LastWord last_word;

void begin_exit() {
  end_of_main_ns = workflow::monotonic_ns();
}

uint16_t parents_port() {
  return static_cast<uint16_t>(std::stoi(environment("DATAGRAM_EXIT_PORT")));
}

// Requests that no time limit ends, of a peer that says nothing; most wait for a connection.
void ask_silence() {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = 20;
  settings.endpoint_params.connect_timeout = -1;
  settings.endpoint_params.response_timeout = -1;
  WORKFLOW_library_init(&settings);
  for (int i = 0; i < kRequests; i++) {
    started++;
    NoteTask* task =
        Factory::create_client_task(TT_UDP, "127.0.0.1", parents_port(), 5, [](NoteTask* ended) {
          called++;
          aborted += ended->get_state() == WFT_STATE_ABORTED;
        });
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

// Every reply is an hour away.
void hold(NoteTask* task) {
  started++;
  server_test::echo_note(task);
  task->set_callback([](NoteTask* ended) {
    called++;
    replied += ended->get_state() == WFT_STATE_SUCCESS;
  });
  series_of(task)->push_back(WFTaskFactory::create_timer_task(
      "held", 3600, 0,
      [](WFTimerTask* timer) { aborted += timer->get_state() == WFT_STATE_ABORTED; }));
}

// The parent sends its requests to the port that it is told.
void forgotten_server() {
  const NoteServer& server = *new NoteServer(hold);
  UdpSocket().send_to(parents_port(), std::to_string(server.port()));
  server_test::eventually([] { return started == kRequests; });
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
  server_test::eventually([] { return started == kRequests; });
  begin_exit();
}

struct Scenario {
  const char* name;
  void (*play)();
};

constexpr Scenario kScenarios[] = {
    {"silence", wait_for_silence},
    {"early", leave_early},
    {"forgotten", forgotten_server},
    {"both", serve_and_ask},
};

// The test's side -------------------------------------------------------------------------------

int number_behind(const std::string& output, const std::string& label) {
  const size_t at = output.find(label);
  EXPECT_NE(at, std::string::npos) << output;
  return at == std::string::npos ? -1 : std::atoi(output.c_str() + at + label.size());
}

std::string play(const std::string& scenario, const UdpSocket& peer) {
  const test_support::ChildResult result =
      test_support::run_self({std::string(kScenarioVariable) + "=" + scenario,
                              "DATAGRAM_EXIT_PORT=" + std::to_string(peer.port())},
                             std::chrono::seconds(30));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(number_behind(result.output, "took_ms="), test_support::kSanitized ? 20000 : 1000);
  return result.output;
}

TEST(DatagramExit, RequestsWithoutAnAnswerAreAborted) {
  const UdpSocket silent;
  for (const char* scenario : {"silence", "early"}) {
    EXPECT_EQ(play(scenario, silent).find("0 missing, 200 aborted, 0 replied\n"), 0u) << scenario;
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
  EXPECT_EQ(play("forgotten", peer).find("0 missing, 200 aborted, 200 replied\n"), 0u);
  clients.join();
  EXPECT_EQ(heard, kRequests);
}

TEST(DatagramExit, ServerAndClientsInOneProcess) {
  EXPECT_EQ(play("both", UdpSocket()).find("0 missing, 200 aborted, 200 replied\n"), 0u);
}

}  // namespace
}  // namespace exit_test

int main(int argc, char** argv) {
  const std::string name = exit_test::environment(exit_test::kScenarioVariable);
  for (const auto& scenario : exit_test::kScenarios) {
    if (scenario.name == name) {
      scenario.play();
      return 0;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
