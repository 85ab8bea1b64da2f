#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/Runtime.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

using race::rounds;
using test_support::Tally;
using test_support::TestRandom;
using workflow::Runtime;

namespace {

// Threads that create, start and dismiss go tasks, alone and in series, with limits around the time
// that their functions take, on the library's threads and on an executor that ends meanwhile; then
// an account of every single task:
//
// 1. The callback of a started task ran exactly once, that of a dropped one never.
// 2. The function began at most once; exactly once if the outcome is SUCCESS, never if it is
//    ABORTED or the task was dropped.
// 3. ETIMEDOUT: the task had a limit, and that much time had passed. ABORTED: something stopped.
//    There is no other outcome.
// 4. What the functions had captured is freed, each once, after its function returned.
class ComputeRound final : public race::Round {
 public:
  ComputeRound(uint64_t number, Runtime* runtime) : Round(number, runtime) {
    EXPECT_EQ(queue_.init(), 0);
    EXPECT_EQ(executor_.init(1 + number % 2), 0);
    for (uint64_t i = 0; i < kThreads; i++) {
      start_thread([this, i] { run(i); });
    }
    start_thread([this] { end_executor(); });
  }

  std::string finish() override {
    join_threads();
    if (!ended_.wait_for(started_)) {
      return "callbacks are missing: " + std::to_string(ended_.count());
    }
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    // After a timeout the function runs on, and the task is freed a moment after both.
    while (captured_ > 0 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    EXPECT_EQ(captured_, 0);
    for (size_t i = 0; i < created_; i++) {
      account_for(table_[i]);
      if (testing::Test::HasFailure()) return "task " + std::to_string(i);
    }
    return "";
  }

  // Also those that were dropped.
  size_t tasks() const override { return created_; }
  size_t outcomes(int state) const override {
    size_t n = 0;
    for (size_t i = 0; i < created_; i++) {
      n += table_[i].callbacks > 0 && table_[i].state == state;
    }
    return n;
  }

 private:
  static constexpr size_t kThreads = 3;
  static constexpr size_t kSteps = 60;  // of each thread
  static constexpr uint64_t kLongestUs = 60;

  struct Task {
    bool owned = false;  // on the executor
    bool dropped = false;
    int64_t limit_ns = -1;  // none
    int64_t started_ns = 0;
    int64_t ended_ns = 0;
    int state = 0;
    int error = 0;
    std::atomic<int> begun{0};
    std::atomic<int> returned{0};
    std::atomic<int> callbacks{0};
  };

  // What each function captures: counts how many live, and must outlive the function.
  class Captured {
   public:
    explicit Captured(ComputeRound& race) : race_(&race) { race_->captured_++; }
    Captured(const Captured& other) : race_(other.race_) { race_->captured_++; }
    Captured& operator=(const Captured&) = delete;
    ~Captured() { race_->captured_--; }
    bool lives() const { return race_->captured_ > 0 && value_ == 7; }

   private:
    ComputeRound* race_;
    int value_ = 7;
  };

  struct Made {
    Task* task;
    WFGoTask* go;
  };

  void run(uint64_t thread) {
    TestRandom random(test_support::test_seed(), number() * 1000 + thread);
    std::vector<Made> unstarted;
    for (size_t i = 0; i < kSteps; i++) {
      switch (random.below(8)) {
        case 0:
          unstarted.push_back(make(random));
          break;
        case 1:
          start_series(random);
          break;
        case 2:
          drop(make(random));
          break;
        case 3:
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(60)));
          break;
        default:
          start_one(make(random));
      }
    }
    for (const Made& each : unstarted) {
      if (random.one_in(2)) {
        start_one(each);
      } else {
        drop(each);
      }
    }
  }

  // At some moment; tasks started later are aborted.
  void end_executor() {
    TestRandom random(test_support::test_seed(), number() * 1000 + 999);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
    switch (random.below(3)) {
      case 0:
        executor_.deinit();
        break;
      case 1: {  // on a thread that it ends
        const Made made = make(random);
        made.task->owned = true;
        WFTaskFactory::reset_go_task(made.go, [this, task = made.task, captured = Captured(*this)] {
          task->begun++;
          executor_.deinit();
          task->returned += captured.lives();
        });
        start_one(made);
        break;
      }
      default:;  // by its destructor
    }
  }

  Made make(TestRandom& random) {
    Task* task = &table_[created_.fetch_add(1)];
    const int64_t duration_ns = static_cast<int64_t>(random.below(kLongestUs * 1000));
    switch (random.below(4)) {
      case 0:
        break;
      case 1:
        task->limit_ns = static_cast<int64_t>(random.below(2));
        break;
      default:
        task->limit_ns = std::max<int64_t>(duration_ns + random.between(-20'000, 20'000), 0);
    }
    task->owned = random.one_in(3);
    auto function = [task, duration_ns, captured = Captured(*this)] {
      task->begun++;
      const int64_t until_ns = workflow::monotonic_ns() + duration_ns;
      while (workflow::monotonic_ns() < until_ns) {
      }
      task->returned += captured.lives();
    };
    WFGoTask* go = go_task(*task, random.below(3), std::move(function));
    go->set_callback([this, task](WFGoTask* done) {
      task->state = done->get_state();
      task->error = done->get_error();
      task->ended_ns = workflow::monotonic_ns();
      task->callbacks++;
      ended_.add();
    });
    return {task, go};
  }

  template <class Function>
  WFGoTask* go_task(const Task& task, uint64_t queue, Function&& function) {
    const std::string name = std::to_string(queue);
    const long limit = static_cast<long>(task.limit_ns);
    if (task.owned) {
      return limit < 0 ? WFTaskFactory::create_go_task(&queue_, &executor_,
                                                       std::forward<Function>(function))
                       : WFTaskFactory::create_timedgo_task(0, limit, &queue_, &executor_,
                                                            std::forward<Function>(function));
    }
    return limit < 0 ? WFTaskFactory::create_go_task(name, std::forward<Function>(function))
                     : WFTaskFactory::create_timedgo_task(0, limit, name,
                                                          std::forward<Function>(function));
  }

  void will_start(Task* task) {
    task->started_ns = workflow::monotonic_ns();
    started_++;
  }
  void start_one(const Made& made) {
    will_start(made.task);
    made.go->start();
  }
  void start_series(TestRandom& random) {
    const Made first = make(random);
    const Made second = make(random);
    will_start(first.task);
    will_start(second.task);
    SeriesWork* series = Workflow::create_series_work(first.go, nullptr);
    series->push_back(second.go);
    series->start();
  }
  static void drop(const Made& made) {
    made.task->dropped = true;
    made.go->dismiss();
  }

  void account_for(const Task& task) const {
    EXPECT_EQ(task.callbacks, task.dropped ? 0 : 1);
    EXPECT_LE(task.begun, task.dropped ? 0 : 1);
    EXPECT_EQ(task.returned, task.begun);
    if (task.dropped) return;
    switch (task.state) {
      case WFT_STATE_SUCCESS:
        EXPECT_EQ(task.error, 0);
        EXPECT_EQ(task.begun, 1);
        break;
      case WFT_STATE_SYS_ERROR:
        EXPECT_EQ(task.error, ETIMEDOUT);
        EXPECT_GE(task.limit_ns, 0);
        EXPECT_GE(task.ended_ns - task.started_ns, task.limit_ns);
        break;
      default:
        EXPECT_EQ(task.state, WFT_STATE_ABORTED);
        EXPECT_EQ(task.error, 0);
        EXPECT_EQ(task.begun, 0);
        EXPECT_TRUE(task.owned || is_stopped_meanwhile());
    }
  }

  std::vector<Task> table_ = std::vector<Task>(kThreads * kSteps * 3);
  std::atomic<size_t> created_{0};
  std::atomic<size_t> started_{0};
  std::atomic<int> captured_{0};
  Tally ended_;
  ExecQueue queue_;
  Executor executor_;
};

}  // namespace

TEST(ComputeRace, LimitsAroundTheDuration) {
  Runtime::configure({.compute_threads = 2});
  const race::Totals totals = race::run_rounds(rounds(200), race::begin<ComputeRound>());
  race::expect_each_side_won(totals, totals.tasks / 20);
}

// The function ends just when its time does, again and again.
TEST(ComputeRace, TheEndOfTheFunctionMeetsTheTimeout) {
  struct Shared {
    std::atomic<int> begun{0};
    std::atomic<int> returned{0};
    int state = WFT_STATE_UNDEFINED;
    int error = 0;
    Tally ended;
  };
  const uint64_t count = rounds(5000);
  TestRandom random(test_support::test_seed());
  uint64_t succeeded = 0;
  for (uint64_t i = 0; i < count; i++) {
    // The way to the computing thread takes some of it, so do the timer and the handler.
    const long limit_ns = static_cast<long>(20'000 + random.below(60'000));
    const int64_t duration_ns = limit_ns - static_cast<int64_t>(random.below(20'000));
    const auto shared = std::make_shared<Shared>();
    WFGoTask* task = WFTaskFactory::create_timedgo_task(0, limit_ns, "queue", [=] {
      shared->begun++;
      const int64_t until_ns = workflow::monotonic_ns() + duration_ns;
      while (workflow::monotonic_ns() < until_ns) {
      }
      shared->returned++;
    });
    task->set_callback([shared](WFGoTask* done) {
      shared->state = done->get_state();
      shared->error = done->get_error();
      if (shared->state == WFT_STATE_SUCCESS) {
        EXPECT_EQ(shared->returned, 1);
      }
      shared->ended.add();
    });
    task->start();
    ASSERT_TRUE(shared->ended.wait_for(1));
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    while (shared.use_count() > 1 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();  // the function may run on
    }
    ASSERT_EQ(shared.use_count(), 1);
    ASSERT_EQ(shared->ended.count(), 1u);
    ASSERT_EQ(shared->begun, shared->returned);
    ASSERT_EQ(shared->error, shared->state == WFT_STATE_SUCCESS ? 0 : ETIMEDOUT);
    succeeded += shared->state == WFT_STATE_SUCCESS;
  }
  std::printf("%llu of %llu succeeded\n", static_cast<unsigned long long>(succeeded),
              static_cast<unsigned long long>(count));
  EXPECT_GT(succeeded, 0u);
  EXPECT_LT(succeeded, count);
}

// The runtime stops at any moment, and the threads go on: what they start then is aborted.
TEST(ComputeRace, StoppedMeanwhile) {
  const uint64_t count = rounds(200);
  EXPECT_GT(race::run_stopped_rounds(count, 3000, race::begin<ComputeRound>()).aborted, count);
}
