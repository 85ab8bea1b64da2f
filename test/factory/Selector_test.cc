#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using namespace probes;
using test_support::Tally;

namespace {

using namespace std::chrono_literals;

// Counts how many of its kind live.
class CountedSelector final : public WFSelectorTask {
 public:
  CountedSelector(size_t candidates, selector_callback_t callback)
      : WFSelectorTask(candidates, std::move(callback)) {
    alive_++;
  }
  static int alive() { return alive_; }
  static bool wait_alive(int n) {
    const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
    while (alive_ != n && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    return alive_ == n;
  }

 protected:
  ~CountedSelector() override { alive_--; }

 private:
  inline static std::atomic<int> alive_{0};
};

// How a selector ended.
struct SelectorOutcome {
  Tally ended;
  int state = WFT_STATE_UNDEFINED;
  int error = -1;
  void* message = nullptr;
  bool on_framework_thread = false;

  selector_callback_t callback() {
    return [this](WFSelectorTask* task) {
      state = task->get_state();
      error = task->get_error();
      message = task->get_message();
      on_framework_thread = probes::on_framework_thread();
      ended.add();
    };
  }
};

}  // namespace

TEST(Selector, TheFirstMessageWinsAndEndsIt) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(3, outcome.callback());
  selector->start();
  EXPECT_FALSE(outcome.ended.wait_for(1, kQuiet));
  EXPECT_EQ(selector->submit(&messages[1]), 1);
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_EQ(outcome.message, &messages[1]);
  EXPECT_TRUE(outcome.on_framework_thread);
  // After the callback.
  EXPECT_EQ(selector->submit(&messages[2]), 0);
  EXPECT_EQ(selector->submit(nullptr), 0);
  EXPECT_EQ(outcome.ended.count(), 1u);
}

TEST(Selector, NullSubmitsDoNotWin) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(3, outcome.callback());
  selector->start();
  EXPECT_EQ(selector->submit(nullptr), 0);
  EXPECT_EQ(selector->submit(nullptr), 0);
  EXPECT_FALSE(outcome.ended.wait_for(1, kQuiet));
  EXPECT_EQ(selector->submit(&messages[3]), 1);
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(outcome.message, &messages[3]);
}

TEST(Selector, AllNullEndsWithoutMessage) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(2, outcome.callback());
  selector->start();
  EXPECT_EQ(selector->submit(nullptr), 0);
  EXPECT_EQ(selector->submit(nullptr), 0);
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error, ENOMSG);
  EXPECT_EQ(outcome.message, nullptr);
}

TEST(Selector, SubmitsBeforeTheStartCount) {
  for (void* first : {static_cast<void*>(nullptr), static_cast<void*>(&messages[1])}) {
    SelectorOutcome outcome;
    WFSelectorTask* selector = WFTaskFactory::create_selector_task(2, outcome.callback());
    EXPECT_EQ(selector->submit(first), first != nullptr);
    EXPECT_EQ(selector->submit(nullptr), 0);
    EXPECT_FALSE(outcome.ended.wait_for(1, kQuiet));
    selector->start();
    ASSERT_TRUE(outcome.ended.wait_for(1));
    EXPECT_EQ(outcome.state, first ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR);
    EXPECT_EQ(outcome.message, first);
  }
}

TEST(Selector, WithoutCandidatesEndsWithoutMessageWhenStarted) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(0, outcome.callback());
  EXPECT_FALSE(outcome.ended.wait_for(1, kQuiet));
  selector->start();
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error, ENOMSG);
}

TEST(Selector, HoldsItsSeriesUntilItEnds) {
  Log log;
  Tally ended;
  WFSelectorTask* selector =
      WFTaskFactory::create_selector_task(2, [&](WFSelectorTask*) { log.add("b"); });
  SeriesWork* series =
      Workflow::create_series_work(new LogTask(&log, "a"), probes::counting(ended));
  *series << selector << new LogTask(&log, "c");
  series->start();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  EXPECT_EQ(selector->submit(&messages[1]), 1);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abc");
  EXPECT_EQ(selector->submit(&messages[1]), 0);
}

TEST(Selector, ItsMessageStaysUntilTheLastSubmit) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(2, outcome.callback());
  void* later = nullptr;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(selector, probes::counting(ended));
  series->push_back(WFTaskFactory::create_dynamic_task([&](WFDynamicTask*) -> SubTask* {
    later = selector->get_message();
    return nullptr;
  }));
  series->start();
  EXPECT_EQ(selector->submit(&messages[6]), 1);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(later, &messages[6]);
  EXPECT_EQ(selector->submit(nullptr), 0);
}

TEST(Selector, IsFreedWhenTheLastCandidateHasSubmitted) {
  SelectorOutcome outcome;
  auto* selector = new CountedSelector(3, outcome.callback());
  selector->start();
  EXPECT_EQ(selector->submit(&messages[1]), 1);
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(selector->submit(&messages[2]), 0);
  EXPECT_EQ(CountedSelector::alive(), 1);
  EXPECT_EQ(selector->submit(&messages[3]), 0);
  EXPECT_TRUE(CountedSelector::wait_alive(0));
}

TEST(Selector, IsFreedAfterItsCallbackWhenAllHaveSubmitted) {
  SelectorOutcome outcome;
  auto* selector = new CountedSelector(2, outcome.callback());
  selector->submit(&messages[1]);
  selector->submit(&messages[2]);
  EXPECT_EQ(CountedSelector::alive(), 1);
  selector->start();
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_TRUE(CountedSelector::wait_alive(0));
}

TEST(Selector, WithoutCandidatesIsFreedAfterItsCallback) {
  SelectorOutcome outcome;
  (new CountedSelector(0, outcome.callback()))->start();
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_TRUE(CountedSelector::wait_alive(0));
  (new CountedSelector(0, nullptr))->dismiss();
  EXPECT_EQ(CountedSelector::alive(), 0);
}

TEST(Selector, ItsCallbackIsFreedAtOnce) {
  Tally ended;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  auto* selector = new CountedSelector(2, [held = std::move(held)](WFSelectorTask*) {});
  EXPECT_EQ(selector->submit(&messages[1]), 1);
  EXPECT_TRUE(probes::run(selector));
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(CountedSelector::alive(), 1);
  selector->submit(nullptr);
  EXPECT_TRUE(CountedSelector::wait_alive(0));
}

TEST(Selector, DismissedItLivesForItsCandidatesAndNobodyWins) {
  for (void* last : {static_cast<void*>(nullptr), static_cast<void*>(&messages[2])}) {
    auto* selector = new CountedSelector(2, [](WFSelectorTask*) { FAIL(); });
    selector->dismiss();
    EXPECT_EQ(CountedSelector::alive(), 1);
    EXPECT_EQ(selector->submit(&messages[1]), 0);
    EXPECT_EQ(CountedSelector::alive(), 1);
    EXPECT_EQ(selector->submit(last), 0);
    EXPECT_EQ(CountedSelector::alive(), 0);
  }
}

TEST(Selector, DismissedAfterItsLastSubmitItIsFreed) {
  auto* selector = new CountedSelector(2, [](WFSelectorTask*) { FAIL(); });
  EXPECT_EQ(selector->submit(nullptr), 0);
  EXPECT_EQ(selector->submit(&messages[1]), 1);
  selector->dismiss();
  EXPECT_EQ(CountedSelector::alive(), 0);
}

TEST(Selector, DroppedByACancelledSeriesItLivesForItsCandidates) {
  Log log;
  auto* selector = new CountedSelector(2, [](WFSelectorTask*) { FAIL(); });
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  series->push_back(selector);
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(CountedSelector::alive(), 1);
  EXPECT_EQ(selector->submit(&messages[1]), 0);
  EXPECT_EQ(selector->submit(&messages[2]), 0);
  EXPECT_EQ(CountedSelector::alive(), 0);
}

TEST(Selector, OfManyThreadsExactlyOneWins) {
  for (int round = 0; round < 500; round++) {
    constexpr size_t kThreads = 4;
    SelectorOutcome outcome;
    auto* selector = new CountedSelector(kThreads, outcome.callback());
    std::atomic<int> won{0};
    std::atomic<void*> winner{nullptr};
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; i++) {
      threads.emplace_back([&, i] {
        // One of them has nothing.
        void* message = i == 0 ? nullptr : &messages[i];
        if (selector->submit(message)) {
          won++;
          winner = message;
        }
      });
    }
    selector->start();
    threads.clear();  // joins them
    ASSERT_TRUE(outcome.ended.wait_for(1));
    ASSERT_EQ(won, 1);
    ASSERT_EQ(outcome.message, winner);
    ASSERT_TRUE(CountedSelector::wait_alive(0));
  }
}

TEST(Selector, OfTimersTheFastestWins) {
  SelectorOutcome outcome;
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(3, outcome.callback());
  Tally submitted;
  std::vector<WFTimerHandle> handles;
  for (size_t i = 0; i < 3; i++) {
    const std::chrono::milliseconds delay = i == 2 ? 1ms : 1h;
    WFTimerTask* timer = WFTimer::create(delay, [selector, &submitted, i](WFTimerTask*) {
      EXPECT_EQ(selector->submit(&messages[i]), i == 2);
      submitted.add();
    });
    handles.push_back(WFTimer::handle_of(timer));
    timer->start();
  }
  selector->start();
  ASSERT_TRUE(outcome.ended.wait_for(1));
  EXPECT_EQ(outcome.message, &messages[2]);
  for (size_t i = 0; i < 2; i++) {  // the others submit later
    EXPECT_EQ(handles[i].reschedule(0ms), WFTimerMove::kWon);
  }
  EXPECT_TRUE(submitted.wait_for(3));
}
