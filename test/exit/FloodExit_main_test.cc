#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/Datagrams.h"
#include "support/ExitKit.h"
#include "support/RawServer.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "util/Time.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

// A process that ends while its threads go on starting clients' tasks: before, during and after the
// stop of the library. Each round is a child of its own. The servers are the parent's.

namespace exit_test {
namespace {

using exit_kit::variable;
using server_test::Note;
using server_test::NoteTask;
using test_support::TestRandom;

// The child's side ------------------------------------------------------------------------------

// Nothing here is destroyed: the threads go on until the very end.

constexpr size_t kThreads = 4;
constexpr size_t kMaxTasks = 1'000'000;
constexpr size_t kMaxUnderWay = 2000;

std::array<std::atomic<unsigned char>, kMaxTasks> calls;
std::atomic<size_t> started{0};
std::atomic<size_t> called{0};
std::atomic<size_t> aborted{0};
std::atomic<size_t> succeeded{0};
std::atomic<bool> enough{false};
std::atomic<int64_t> end_began_ns{0};
std::array<std::thread, kThreads>& threads = *new std::array<std::thread, kThreads>;
uint64_t seed = 0;

struct Peers {
  std::string http = "http://127.0.0.1:" + variable("FLOOD_EXIT_HTTP") + "/";
  std::string https = "https://127.0.0.1:" + variable("FLOOD_EXIT_HTTPS") + "/";
  std::string silent_http = "http://127.0.0.1:" + variable("FLOOD_EXIT_SILENT") + "/";
  std::string silent_https = "https://127.0.0.1:" + variable("FLOOD_EXIT_SILENT") + "/";
  uint16_t udp = port("FLOOD_EXIT_UDP");
  uint16_t silent_udp = port("FLOOD_EXIT_SILENT_UDP");

  static uint16_t port(const char* name) {
    return static_cast<uint16_t>(std::atoi(variable(name).c_str()));
  }
};

template <class Task>
void count(size_t number, const Task* task) {
  calls[number]++;
  aborted += task->get_state() == WFT_STATE_ABORTED;
  succeeded += task->get_state() == WFT_STATE_SUCCESS;
  called++;
}

void ask(size_t number, const std::string& url) {
  WFTaskFactory::create_http_task(url, 1, 1, [number](WFHttpTask* task) {
    count(number, task);
  })->start();
}

// Two in a series, of which the second is asked for when the first has ended.
void ask_twice(size_t first, size_t second, const std::string& url) {
  WFHttpTask* task = WFTaskFactory::create_http_task(url, 1, 1, [=](WFHttpTask* ended) {
    count(first, ended);
    series_of(ended)->push_back(WFTaskFactory::create_http_task(
        url, 1, 1, [second](WFHttpTask* next) { count(second, next); }));
  });
  task->start();
}

void send(size_t number, uint16_t port) {
  NoteTask* task = WFNetworkTaskFactory<Note, Note>::create_client_task(
      TT_UDP, "127.0.0.1", port, 1, [number](NoteTask* ended) { count(number, ended); });
  task->get_req()->text = "=note";
  task->start();
}

void flood(size_t thread) {
  const Peers peers;
  TestRandom random(seed, thread + 1);
  while (!enough) {
    if (started - called > kMaxUnderWay) {
      std::this_thread::yield();
      continue;
    }
    if (end_began_ns != 0) {
      // The end needs time of its own: threads that leave it none keep the process for ever.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // What waits for the silent ones stays until the end.
    const uint64_t choice = random.below(60);
    const size_t number = started.fetch_add(choice < 10 ? 2 : 1);
    if (number + 2 >= kMaxTasks) {
      std::abort();
    }
    if (choice < 10) {
      ask_twice(number, number + 1, peers.http);
    } else if (choice == 10) {
      ask(number, peers.silent_http);
    } else if (choice == 11) {
      ask(number, peers.silent_https);
    } else if (choice == 12) {
      send(number, peers.silent_udp);
    } else if (choice < 25) {
      ask(number, peers.http);
    } else if (choice < 40) {
      ask(number, peers.https);
    } else {
      send(number, peers.udp);
    }
  }
}

// Destroyed after the library has stopped, as it was constructed before that was first used; unless
// the threads' first use came even later.
class EndOfTheFlood {
 public:
  // OpenSSL cleans up after itself when the process ends, and frees nothing of threads that end
  // after that. So it begins before, as the threads send over connections that the library has
  // kept.
  EndOfTheFlood() { ::OPENSSL_init_crypto(OPENSSL_INIT_ASYNC, nullptr); }
  ~EndOfTheFlood() {
    if (!threads[0].joinable()) return;
    TestRandom random(seed, kThreads + 1);
    // The threads go on a little without the library.
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
    enough = true;
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

const EndOfTheFlood end_of_the_flood;

// After the last static object's.
[[gnu::destructor]] void say_what_was() {
  if (end_began_ns == 0) return;
  size_t missing = 0;
  size_t too_often = 0;
  for (size_t i = 0; i < started; i++) {
    missing += calls[i] == 0;
    too_often += calls[i] > 1;
  }
  exit_kit::say(std::to_string(missing) + " missing, " + std::to_string(too_often) +
                " too often, " + std::to_string(succeeded) + " of " + std::to_string(started) +
                " succeeded, " + std::to_string(aborted) + " aborted, took_us=" +
                std::to_string((workflow::monotonic_ns() - end_began_ns) / workflow::kNsPerUs));
}

void begin_end() {
  end_began_ns = workflow::monotonic_ns();
}

[[noreturn]] void end_elsewhere() {
  begin_end();
  std::exit(0);
}

// Starts the threads, and lets them work for a while.
void begin_flood(bool library_runs = true) {
  seed = test_support::test_seed();
  TestRandom random(seed);
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.endpoint_params.max_connections = random.one_in(2) ? 3 : 30;
  settings.endpoint_params.connect_timeout = -1;
  settings.endpoint_params.ssl_connect_timeout = -1;
  settings.endpoint_params.response_timeout = -1;
  WORKFLOW_library_init(&settings);
  if (library_runs) {
    SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(),
                             variable("FLOOD_EXIT_AUTHORITY").c_str());
    WFTaskFactory::create_timer_task(0, 0, nullptr)->start();
  }
  for (size_t i = 0; i < kThreads; i++) {
    threads[i] = std::thread(flood, i);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random.below(library_runs ? 30'000 : 500)));
}

void end_in_main() {
  begin_flood();
  begin_end();
}

void end_at_first_use() {
  begin_flood(false);
  begin_end();
}

void end_on_a_thread() {
  begin_flood();
  std::thread(end_elsewhere).detach();
  exit_kit::wait_for_exit();
}

void end_in_a_callback() {
  begin_flood();
  WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask*) { end_elsewhere(); })->start();
  exit_kit::wait_for_exit();
}

void end_in_a_request() {
  begin_flood();
  const Peers peers;
  send(started++, peers.udp);
  WFTaskFactory::create_http_task(peers.http, 0, 0, [](WFHttpTask*) { end_elsewhere(); })->start();
  exit_kit::wait_for_exit();
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"main", end_in_main},         {"MainAtFirstUse", end_at_first_use},
    {"thread", end_on_a_thread},   {"callback", end_in_a_callback},
    {"request", end_in_a_request},
};

// The test's side -------------------------------------------------------------------------------

class FloodExit : public testing::TestWithParam<const char*> {
 protected:
  void play_round(uint64_t round) {
    const auto number = [](uint16_t port) { return std::to_string(port); };
    const uint64_t round_seed = test_support::test_seed() + round;
    SCOPED_TRACE("seed " + std::to_string(round_seed));
    const std::string output = exit_kit::play_promptly(
        GetParam(),
        {"WORKFLOW_TEST_SEED=" + std::to_string(round_seed),
         "FLOOD_EXIT_HTTP=" + number(http_.port()), "FLOOD_EXIT_HTTPS=" + number(https_.port()),
         "FLOOD_EXIT_SILENT=" + number(silent_.port()), "FLOOD_EXIT_UDP=" + number(udp_.port()),
         "FLOOD_EXIT_SILENT_UDP=" + number(silent_udp_.port()),
         "FLOOD_EXIT_AUTHORITY=" + server_test::credentials().authority.file()});
    EXPECT_NE(output.find("0 missing, 0 too often, "), std::string::npos) << output;
  }

 private:
  server_test::TestServer http_{server_test::echo, server_test::http_params(),
                                server_test::Transport::kPlain};
  server_test::TestServer https_{server_test::echo, server_test::http_params(),
                                 server_test::Transport::kTls};
  server_test::NoteServer udp_;
  const server_test::UdpSocket silent_udp_;
  client_test::RawServer silent_{[](client_test::Peer& peer, int) {
    struct pollfd end = {peer.fd(), POLLRDHUP, 0};
    ::poll(&end, 1, 60'000);
  }};
};

TEST_P(FloodExit, EveryCallbackRunsOnce) {
  const auto rounds = static_cast<uint64_t>(exit_kit::times(5));
  for (uint64_t round = 0; round < rounds && !HasFailure(); round++) {
    play_round(round);
  }
}

INSTANTIATE_TEST_SUITE_P(From, FloodExit,
                         testing::Values("main", "thread", "callback", "request", "MainAtFirstUse"),
                         [](const auto& end) { return std::string(end.param); });

}  // namespace
}  // namespace exit_test

int main(int argc, char** argv) {
  return exit_kit::run(exit_test::kScenarios, argc, argv);
}
