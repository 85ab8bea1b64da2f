#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "store/HistoryChecker.h"
#include "store/HistoryWorker.h"
#include "store/SqliteChild.h"
#include "store/SqliteQueue.h"
#include "store/SqliteSeals.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"
#include "support/Text.h"

// Several processes, with several threads each, do everything that there is to do with one store,
// about the same names. What they write down of it must be linearizable name by name: see
// HistoryChecker.h. One round, or as many as fit into WORKFLOW_SOAK_SECONDS (script/soak).

using namespace test_support;

namespace {

using store_test::HistoryWorker;
using store_test::history::HistoryChecker;
using store_test::history::Reader;

int64_t clock_us(clockid_t clock) {
  struct timespec now = {};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

// The wall clock of the files, which nobody sets while the test runs.
class SteadyWall final : public workflow::Clock {
 public:
  int64_t now_ns() override { return clock_us(CLOCK_MONOTONIC) * 1000; }
  int64_t now_ns_on(workflow::ClockId) override { return now_ns(); }
};

bool is_redis(const std::string& place) {
  return place.compare(0, 5, "redis") == 0;
}

// A server takes the time from the system.
int64_t store_now_us(const std::string& place) {
  return clock_us(is_redis(place) ? CLOCK_REALTIME : CLOCK_MONOTONIC);
}

std::unique_ptr<workflow::StoreBackend> open_place(const std::string& place, uint64_t session) {
  static SteadyWall steady_wall;
  workflow::StoreBackendOptions options;
  options.session = session;
  options.clock = is_redis(place) ? &workflow::system_clock() : &steady_wall;
  options.remembered = 1'000'000;
  int error = 0;
  std::string message;
  // The test cuts connections, also that of a store which is just being opened.
  for (int i = 0; i < 20; i++) {
    const auto open =
        is_redis(place) ? &workflow::open_redis_backend : &workflow::open_sqlite_backend;
    if (auto backend = open(place, options, &error, &message)) return backend;
  }
  std::fprintf(stderr, "cannot open %s: %s\n", place.c_str(), message.c_str());
  ::_exit(2);
}

// Parts of the children.

// Works on HISTORY_THREADS threads, each with a store of its own.
void work() {
  const std::string place = variable("HISTORY_PLACE");
  const auto first = static_cast<uint64_t>(env_number("HISTORY_NUMBER", 0));
  std::vector<std::jthread> threads;
  for (int64_t i = 0; i < env_number("HISTORY_THREADS", 1); i++) {
    threads.emplace_back([&place, number = first + static_cast<uint64_t>(i)] {
      const auto backend = open_place(place, number);
      HistoryWorker::Plan plan;
      plan.number = number;
      plan.name = "w" + std::to_string(number);
      plan.file = variable("HISTORY_FILES") + "/" + plan.name;
      plan.seed = test_seed();
      plan.operations = env_number("HISTORY_OPERATIONS", 100);
      plan.has_parts = is_redis(place) && place.find("&shards=1") == std::string::npos;
      plan.now_us = [&place] { return store_now_us(place); };
      say("begun");
      HistoryWorker(*backend, plan).run();
    });
  }
  threads.clear();  // joins them
}

// Works for a while, and then holds the lock of the file until it is killed.
void work_and_hold() {
  work();
  const std::string path = variable("HISTORY_PLACE");
  workflow::SqliteQueue queue;
  std::string message;
  queue.open(path + "-queue", &message);
  queue.enter(5000);
  workflow::SqliteConnection connection;
  connection.open(path, SQLITE_OPEN_READWRITE, workflow::SqliteSeals::over(nullptr));
  if (connection.run("BEGIN IMMEDIATE")) {
    say("held");
  }
  wait_for_exit();
}

class StoreHistory : public testing::Test {
 protected:
  static constexpr int64_t kOperations = kSanitized ? 100 : 250;

  struct Child {
    std::unique_ptr<SqliteChild> process;
    uint64_t first = 0;
    int threads = 0;
  };

  bool goes_on(int64_t round) const {
    const std::chrono::seconds time(env_number("WORKFLOW_SOAK_SECONDS", 0));
    return round == 0 || (!HasFailure() && std::chrono::steady_clock::now() - begin_ < time);
  }

  void begin_round() {
    files_ = std::make_unique<FastDir>();
    text_.clear();
    deaths_.clear();
    next_worker_ = 1;
  }

  Child start(const std::string& part, const std::string& place, int threads, int64_t operations,
              uint64_t seed) {
    Child child;
    child.first = next_worker_;
    child.threads = threads;
    next_worker_ += static_cast<uint64_t>(threads);
    child.process = std::make_unique<SqliteChild>(std::vector<std::string>{
        "HISTORY_PART=" + part, "HISTORY_PLACE=" + place, "HISTORY_FILES=" + files_->path(""),
        "HISTORY_NUMBER=" + std::to_string(child.first),
        "HISTORY_THREADS=" + std::to_string(threads),
        "HISTORY_OPERATIONS=" + std::to_string(operations),
        "WORKFLOW_TEST_SEED=" + std::to_string(seed)});
    return child;
  }

  // Its threads have all begun.
  static void await_begun(Child& child) {
    for (int begun = 0; begun < child.threads;) {
      const std::optional<std::string> line = child.process->line();
      ASSERT_TRUE(line);
      begun += *line == "begun" ? 1 : 0;
    }
  }

  void kill(Child& child, const std::string& place) {
    child.process->kill();
    for (int i = 0; i < child.threads; i++) {
      deaths_ += "x w" + std::to_string(child.first + static_cast<uint64_t>(i)) + ' ' +
                 std::to_string(store_now_us(place)) + '\n';
    }
  }

  // Also what a process that was killed had not finished.
  void check(bool dies_with_worker) {
    Reader reader;
    for (uint64_t worker = 1; worker < next_worker_; worker++) {
      text_ += text_of(files_->path("w" + std::to_string(worker)));
    }
    reader.read(text_ + deaths_);
    const std::string wrong = HistoryChecker::check_all(reader, dies_with_worker, &unchecked_);
    EXPECT_EQ(wrong, "");
    operations_ += reader.size();
    for (const char* const verdict :
         {"=won:", "won_after:", "running:", "after_run:", "done:", "unknown", "exists",
          "accepted=1", "accepted=0", "live=1", ":blocked:", ":failed:"}) {
      if (text_.find(verdict) != std::string::npos) {
        seen_.insert(verdict);
      }
    }
  }

  // A history in which little happened would show little.
  void report() const {
    std::printf("%zu operations, %zu of them not checked\n", operations_, unchecked_);
    EXPECT_LE(unchecked_ * 4, operations_);
    EXPECT_GE(operations_, static_cast<size_t>(2 * kOperations));
    EXPECT_GE(seen_.size(), 9U);
  }

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<FastDir> files_;
  uint64_t next_worker_ = 1;
  std::string text_;
  std::string deaths_;
  std::set<std::string> seen_;  // verdicts and stages
  size_t operations_ = 0;
  size_t unchecked_ = 0;  // because too many that were never answered were open
};

// Two processes at least, of one or two threads. Two more are killed: one in the middle of its
// work, one while it holds the lock of the file.
TEST_F(StoreHistory, OfProcessesOnOneFileIsLinearizableForEachName) {
  for (int64_t round = 0; goes_on(round); round++) {
    const FastDir directory;
    begin_round();
    const std::string place = directory.path("timers");
    const uint64_t seed = test_seed() + static_cast<uint64_t>(round);
    open_place(place, 1'000'000);
    std::vector<Child> children;
    const int count = 2 + static_cast<int>(seed % 6);
    for (int i = 0; i < count; i++) {
      children.push_back(start("work", place, i % 3 == 0 ? 2 : 1, kOperations, seed));
    }
    Child holder = start("hold", place, 1, kOperations / 2, seed);
    // With one store only: those of one process do not queue for each other, so two that have no
    // end could keep the others waiting for very long.
    Child victim = start("work", place, 1, 1'000'000, seed);
    await_begun(victim);
    for (std::optional<std::string> line = holder.process->line(); line != "held";
         line = holder.process->line()) {
      ASSERT_TRUE(line);
    }
    kill(holder, place);
    kill(victim, place);
    for (Child& child : children) {
      EXPECT_EQ(child.process->wait(), 0);
    }
    check(true);
  }
  report();
}

// Connections are cut meanwhile, and one process is killed. What it had sent may still arrive.
TEST_F(StoreHistory, OfProcessesOnOneRedisIsLinearizableForEachName) {
  const redis_test::RedisServer server;
  for (int64_t round = 0; goes_on(round); round++) {
    begin_round();
    const uint64_t seed = test_seed() + static_cast<uint64_t>(round);
    const std::string place = server.url() + "&namespace=round" + std::to_string(round) +
                              "&shards=" + std::to_string(round % 2 == 0 ? 1 : 4);
    open_place(place, 1'000'000);
    std::vector<Child> children;
    const int count = 2 + static_cast<int>(seed % 5);
    for (int i = 0; i < count; i++) {
      children.push_back(start("work", place, i % 3 == 0 ? 2 : 1, 2 * kOperations, seed));
    }
    Child victim = start("work", place, 1, 1'000'000, seed);
    for (Child& child : children) {
      await_begun(child);
      redis_test::run(server.url(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    }
    await_begun(victim);
    kill(victim, place);
    for (Child& child : children) {
      EXPECT_EQ(child.process->wait(), 0);
    }
    check(false);
  }
  report();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = variable("HISTORY_PART");
  if (part == "work") {
    work();
    return 0;
  }
  if (part == "hold") {
    work_and_hold();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
