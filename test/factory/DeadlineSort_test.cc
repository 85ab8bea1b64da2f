// Deadlines over a sort on several computing threads. In real time, as other computations.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <vector>

#include "support/Tally.h"
#include "workflow/WFAlgoTaskFactory.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

using std::chrono::milliseconds;
using test_support::Tally;

namespace {

constexpr int kThreads = 2;

class DeadlineSort : public testing::Test {
 protected:
  DeadlineSort() : values_(100'000) {
    WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.compute_threads = kThreads;
    WORKFLOW_library_init(&settings);
    std::iota(values_.rbegin(), values_.rend(), 0);
  }

  template <class CMP>
  WFSortTask<int>* sort(CMP compare) {
    return WFAlgoTaskFactory::create_psort_task("sort", values_.data(),
                                                values_.data() + values_.size(), compare,
                                                [this](WFSortTask<int>* task) {
                                                  state_ = task->get_state();
                                                  error_ = task->get_error();
                                                  output_ = task->get_output()->first;
                                                  ended_.add();
                                                });
  }
  void expect_timeout() const {
    EXPECT_TRUE(ended_.wait_for(1));
    EXPECT_EQ(state_, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(error_, ETIMEDOUT);
    EXPECT_EQ(output_, nullptr);
  }
  // On one of the threads.
  void occupy() {
    WFGoTask* const task = WFTaskFactory::create_go_task("other", [this] {
      occupied_.add();
      EXPECT_TRUE(released_.wait_for(1));
    });
    task->set_callback([this](WFGoTask*) { free_.add(); });
    task->start();
  }

  std::vector<int> values_;
  Tally ended_;
  Tally occupied_;
  Tally released_;
  Tally free_;
  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  const int* output_ = nullptr;
};

}  // namespace

TEST_F(DeadlineSort, EndsWhatWaitsForItsTurn) {
  for (int i = 0; i < kThreads; i++) {
    occupy();
  }
  EXPECT_TRUE(occupied_.wait_for(kThreads));
  std::atomic<bool> compared{false};
  with_deadline(sort([&compared](int a, int b) {
                  compared = true;
                  return a < b;
                }),
                milliseconds(5))
      ->start();
  expect_timeout();
  released_.add();
  EXPECT_TRUE(free_.wait_for(kThreads));
  EXPECT_FALSE(compared);
  EXPECT_TRUE(std::is_sorted(values_.rbegin(), values_.rend()));
}

// As any function that has begun, a piece runs on; it needs the range, and not the task.
TEST_F(DeadlineSort, DoesNotWaitForPiecesThatRun) {
  std::atomic<int> held{kThreads};
  Tally let_go;
  Tally through;
  WFDeadlineTask* const task = with_deadline(sort([&](int a, int b) {
                                               if (held.fetch_sub(1) > 0) {
                                                 occupied_.add();
                                                 EXPECT_TRUE(released_.wait_for(1));
                                                 through.add();
                                               }
                                               return a < b;
                                             }),
                                             std::chrono::hours(1));
  const WFScope scope = task->scope();
  task->start();
  ASSERT_TRUE(occupied_.wait_for(kThreads));
  EXPECT_TRUE(scope.set_deadline(milliseconds(5)));
  expect_timeout();
  released_.add();
  EXPECT_TRUE(through.wait_for(kThreads));
  // Behind the pieces, on each of the threads.
  for (int i = 0; i < kThreads; i++) {
    WFTaskFactory::create_go_task("sort", [&] {
      let_go.add();
      EXPECT_TRUE(let_go.wait_for(kThreads));
      free_.add();
    })->start();
  }
  EXPECT_TRUE(free_.wait_for(kThreads));
  std::sort(values_.begin(), values_.end());
  for (size_t i = 0; i < values_.size(); i++) {
    ASSERT_EQ(values_[i], static_cast<int>(i)) << "a piece has lost an element";
  }
}

TEST_F(DeadlineSort, DoesNotBeginTooLate) {
  std::atomic<bool> compared{false};
  with_deadline(sort([&compared](int a, int b) {
                  compared = true;
                  return a < b;
                }),
                milliseconds(0))
      ->start();
  expect_timeout();
  EXPECT_FALSE(compared);
}

TEST_F(DeadlineSort, LeavesAloneWhatEndsInTime) {
  with_deadline(sort([](int a, int b) { return a < b; }), std::chrono::hours(1))->start();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(state_, WFT_STATE_SUCCESS);
  EXPECT_TRUE(std::is_sorted(values_.begin(), values_.end()));
}
