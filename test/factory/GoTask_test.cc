#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "kernel/Runtime.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

struct Copies {
  static inline std::atomic<int> alive{0};
  int value;
  explicit Copies(int v) : value(v) { alive++; }
  Copies(const Copies& other) : value(other.value) { alive++; }
  Copies& operator=(const Copies&) = delete;
  ~Copies() { alive--; }
};

int free_function(int a, int& sum) {
  sum += a;
  return sum;
}

}  // namespace

TEST(GoTask, RunsOnAComputeThreadWithItsCallback) {
  bool function_there = false;
  bool callback_there = false;
  int state = WFT_STATE_UNDEFINED;
  WFGoTask* task =
      WFTaskFactory::create_go_task("queue", [&] { function_there = on_compute_thread(); });
  EXPECT_EQ(task->get_state(), WFT_STATE_UNDEFINED);
  task->set_callback([&](WFGoTask* done) {
    callback_there = on_compute_thread();
    state = done->get_state();
    EXPECT_EQ(done->get_error(), 0);
  });
  EXPECT_TRUE(probes::run(task));
  EXPECT_TRUE(function_there);
  EXPECT_TRUE(callback_there);
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
}

TEST(GoTask, StartedAloneItRuns) {
  Tally ran;
  WFTaskFactory::create_go_task("queue", [&] { ran.add(); })->start();
  EXPECT_TRUE(ran.wait_for(1));
}

TEST(GoTask, WithoutItsStartNothingRuns) {
  bool ran = false;
  WFTaskFactory::create_go_task("queue", [&] { ran = true; })->dismiss();
  EXPECT_FALSE(ran);
}

TEST(GoTask, ArgumentsAreCopied) {
  int seen = 0;
  {
    Copies argument(7);
    WFGoTask* task = WFTaskFactory::create_go_task(
        "queue", [&seen](const Copies& copy) { seen = copy.value; }, argument);
    argument.value = 8;
    EXPECT_TRUE(probes::run(task));
  }
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(Copies::alive, 0);
}

TEST(GoTask, StdRefPassesReferences) {
  int sum = 1;
  EXPECT_TRUE(
      probes::run(WFTaskFactory::create_go_task("queue", free_function, 41, std::ref(sum))));
  EXPECT_EQ(sum, 42);
}

TEST(GoTask, TakesMemberFunctionsAndSharedPointers) {
  struct Adder {
    int sum = 0;
    void add(int n) { sum += n; }
  };
  const auto adder = std::make_shared<Adder>();
  EXPECT_TRUE(probes::run(WFTaskFactory::create_go_task("queue", &Adder::add, adder, 3)));
  EXPECT_EQ(adder->sum, 3);
  EXPECT_EQ(adder.use_count(), 1);
}

TEST(GoTask, SharesASeriesWithOtherTasks) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
  WFGoTask* go = WFTaskFactory::create_go_task("queue", [&] { log.add("b"); });
  go->user_data = &log;
  go->set_callback([&log](WFGoTask* task) {
    EXPECT_EQ(task->user_data, &log);
    *series_of(task) << new LogTask(&log, "f");
  });
  *series << go << new LogTask(&log, "c")
          << WFTaskFactory::create_go_task("queue", [&] { log.add("d"); })
          << new LogTask(&log, "e");
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcdef");
}

TEST(GoTask, AnyQueueNameWorks) {
  Tally ran;
  const std::vector<std::string> names = {"", std::string(1, '\0'), std::string(10'000, 'q'), "ä"};
  for (const std::string& name : names) {
    WFTaskFactory::create_go_task(name, [&] { ran.add(); })->start();
  }
  EXPECT_TRUE(ran.wait_for(names.size()));
}

TEST(GoTask, ManyFromManyThreadsAllRun) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 5000;
  Tally ran;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&ran, i] {
      for (int j = 0; j < kTasks; j++) {
        WFTaskFactory::create_go_task(std::to_string((i + j) % 7), [&ran] { ran.add(); })->start();
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_TRUE(ran.wait_for(kThreads * kTasks));
}

TEST(GoTask, MayStartOthersFromItsFunction) {
  Tally ran;
  WFTaskFactory::create_go_task("queue", [&] {
    for (int i = 0; i < 100; i++) {
      WFTaskFactory::create_go_task("queue", [&ran] { ran.add(); })->start();
    }
  })->start();
  EXPECT_TRUE(ran.wait_for(100));
}
