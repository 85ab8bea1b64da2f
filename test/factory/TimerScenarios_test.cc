#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// What timers of other libraries are known to have done wrong.

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::Tally;
using test_support::TimerOutcomes;

namespace {

// Calls a function when the last copy is destroyed.
class AtTheEnd {
 public:
  explicit AtTheEnd(std::function<void()> call)
      : call_(std::shared_ptr<void>(nullptr, [call = std::move(call)](void*) { call(); })) {}

 private:
  std::shared_ptr<void> call_;
};

enum class TimerKind { kUnnamed, kNamed, kPeriodic, kOverlapping };

class TimerScenarios : public testing::TestWithParam<TimerKind> {
 protected:
  static bool is_periodic() { return GetParam() > TimerKind::kNamed; }

  static WFTimerTask* create(std::chrono::nanoseconds due, WFTimer::Callback callback) {
    WFTimerOptions options;
    if (GetParam() != TimerKind::kUnnamed) {
      options.name = "name";
    }
    if (!is_periodic()) return WFTimer::create(due, options, std::move(callback));
    WFTimerPeriod period;
    period.every = due;
    period.overlap = GetParam() == TimerKind::kOverlapping;
    return WFTimer::create_periodic(
        period, options, [](const WFTimerTick&) {}, std::move(callback));
  }
};

std::string name_of_kind(const testing::TestParamInfo<TimerKind>& info) {
  const char* const names[] = {"Unnamed", "Named", "Periodic", "Overlapping"};
  return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Timers, TimerScenarios,
                         testing::Values(TimerKind::kUnnamed, TimerKind::kNamed,
                                         TimerKind::kPeriodic, TimerKind::kOverlapping),
                         name_of_kind);

}  // namespace

// A thread that gets a handle before the timer is armed may make every call of it at once.
TEST_P(TimerScenarios, AHandleThatIsPublishedBeforeTheTimerIsArmed) {
  const int rounds = test_support::kSanitized ? 1000 : 5000;
  test_support::TestRandom random(test_support::test_seed());
  TimerOutcomes outcomes;
  std::atomic<WFTimerHandle*> published{nullptr};
  std::atomic<int> won{0};
  std::thread other([&] {
    for (int round = 0; round < rounds; round++) {
      WFTimerHandle* handle = nullptr;
      while (!(handle = published.exchange(nullptr))) {
      }
      handle->remaining();
      handle->reschedule(hours(2));
      handle->remaining();
      won += round % 2 ? handle->cancel() == WFTimerCancel::kWon
                       : handle->cancel_and_wait() == WFTimerCancel::kWon;
      EXPECT_FALSE(handle->remaining());
      delete handle;
    }
  });
  for (int round = 0; round < rounds; round++) {
    WFTimerTask* task = create(hours(1), outcomes.callback());
    published = new WFTimerHandle(WFTimer::handle_of(task));
    for (size_t i = random.below(300); i > 0; i--) {
      std::atomic_signal_fence(std::memory_order_seq_cst);  // takes a little time
    }
    task->start();
    ASSERT_TRUE(outcomes.wait_for(static_cast<size_t>(round) + 1));
  }
  other.join();
  EXPECT_EQ(won, rounds);
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), static_cast<size_t>(rounds));
}

// A callback that sees ABORTED cancels other timers, whose callbacks are about to see it.
TEST_P(TimerScenarios, CallbacksOfAStopCancelTheOthers) {
  for (uint64_t seed = 1; seed <= 300; seed++) {
    constexpr size_t kTimers = 6;
    std::vector<WFTimerHandle> handles(kTimers);
    std::vector<int> calls(kTimers);
    int cancelled = 0;
    int won = 0;
    WFSimulation simulation(seed);
    for (size_t i = 0; i < kTimers; i++) {
      WFTimerTask* task = create(hours(1), [&, i](WFTimerTask* ended) {
        calls[i]++;
        EXPECT_TRUE(ended->get_state() == WFT_STATE_ABORTED || ended->get_error() == ECANCELED);
        cancelled += ended->get_error() == ECANCELED;
        for (size_t other = 0; other < kTimers; other++) {
          won += handles[other].cancel() == WFTimerCancel::kWon;
        }
        won += WFTaskFactory::cancel_by_name("name", 1);
        EXPECT_EQ(handles[i].cancel_and_wait(), WFTimerCancel::kWouldDeadlock);
      });
      handles[i] = WFTimer::handle_of(task);
      task->start();
    }
    simulation.spawn(
        [&] { won += handles[seed % kTimers].cancel_and_wait() == WFTimerCancel::kWon; });
    const WFSimulationResult result = simulation.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    ASSERT_EQ(calls, std::vector<int>(kTimers, 1)) << "seed " << seed;
    ASSERT_EQ(won, cancelled) << "seed " << seed;
    for (const WFTimerHandle& handle : handles) {
      ASSERT_EQ(handle.cancel_and_wait(), WFTimerCancel::kDone);
    }
  }
}

// Each of a long chain owns the next, and cancels it when its callback is destroyed.
TEST_P(TimerScenarios, ACancelledTimerMayOwnATimerThatItCancels) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = 1;
  WORKFLOW_library_init(&settings);
  constexpr size_t kTimers = 2000;
  TimerOutcomes outcomes;
  WFTimerHandle next;
  for (size_t i = 0; i < kTimers; i++) {
    const AtTheEnd cancels_next([next] {
      if (next != WFTimerHandle()) {
        EXPECT_EQ(next.cancel(), WFTimerCancel::kWon);
      }
    });
    WFTimerTask* task =
        create(hours(1), [&outcomes, cancels_next](WFTimerTask* ended) { outcomes.add(0, ended); });
    next = WFTimer::handle_of(task);
    task->start();
  }
  EXPECT_EQ(next.cancel(), WFTimerCancel::kWon);
  EXPECT_TRUE(outcomes.wait_for(kTimers));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), kTimers);
}

// What a callback has captured is destroyed while the timer still is: what it calls then is told
// so.
TEST_P(TimerScenarios, WhatACallbackHasCapturedMayCancelItsOwnTimer) {
  for (const bool dismissed : {false, true}) {
    TimerOutcomes outcomes;
    Tally destroyed;
    auto handle = std::make_shared<WFTimerHandle>();
    AtTheEnd cancels_own([handle, &destroyed] {
      EXPECT_EQ(handle->cancel(), WFTimerCancel::kTooLate);
      handle->reschedule(seconds(1));
      handle->remaining();
      errno = 0;
      EXPECT_EQ(handle->cancel_and_wait(), WFTimerCancel::kWouldDeadlock);
      EXPECT_EQ(errno, EDEADLK);
      EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
      destroyed.add();
    });
    WFTimerTask* task = create(hours(1), [&outcomes, end = std::move(cancels_own)](
                                             WFTimerTask* ended) { outcomes.add(0, ended); });
    *handle = WFTimer::handle_of(task);
    if (dismissed) {
      task->dismiss();
    } else {
      task->start();
      EXPECT_EQ(handle->cancel(), WFTimerCancel::kWon);
      EXPECT_TRUE(outcomes.wait_for(1));
    }
    EXPECT_TRUE(destroyed.wait_for(1));
    EXPECT_GT(handle->cancel_and_wait(), WFTimerCancel::kWon);
    EXPECT_EQ(handle->cancel(), WFTimerCancel::kDone);
    EXPECT_EQ(outcomes.size(), dismissed ? 0u : 1u);
  }
}

// The name is free when what was captured is destroyed, however the timer ends, and no lock is
// held.
TEST_P(TimerScenarios, WhatACallbackHasCapturedMayCreateItsNameAnew) {
  enum class End {
    kExpired,
    kCancelled,
    kCancelledByName,
    kDismissed,
    kCancelledUnstarted,
    kCount
  };
  for (int end = 0; end < static_cast<int>(End::kCount); end++) {
    for (const bool has_handle : {false, true}) {
      const End how = static_cast<End>(end);
      if ((how == End::kExpired && is_periodic()) || (how == End::kCancelled && !has_handle) ||
          (how == End::kCancelledByName && GetParam() == TimerKind::kUnnamed)) {
        continue;
      }
      Tally anew;
      AtTheEnd creates([&anew] {
        EXPECT_EQ(WFTimer::count("name"), 0u);
        EXPECT_EQ(WFTimer::set_quota("name", 1), 0);
        WFTimerTask* task = WFTimer::create(hours(1), {"name", WF_TIMER_KEEP},
                                            [&anew](WFTimerTask*) { anew.add(); });
        EXPECT_EQ(task->get_error(), 0);
        task->start();
        EXPECT_EQ(WFTimer::list("name", 2).size(), 1u);
        EXPECT_EQ(WFTimer::reschedule("name", hours(2)), 1u);
        EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
        EXPECT_EQ(WFTimer::set_quota("name", WFTimer::kNoQuota), 0);
      });
      WFTimerTask* task = create(how == End::kExpired ? milliseconds(1) : milliseconds(3'600'000),
                                 [end = std::move(creates)](WFTimerTask*) {});
      const WFTimerHandle handle = has_handle ? WFTimer::handle_of(task) : WFTimerHandle();
      switch (how) {
        case End::kDismissed:
          task->dismiss();
          break;
        case End::kCancelledUnstarted:
          handle.cancel();
          task->dismiss();
          break;
        default:
          task->start();
          if (how != End::kExpired && (how != End::kCancelled || !has_handle)) {
            EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
          } else if (how == End::kCancelled) {
            EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
          }
      }
      EXPECT_TRUE(anew.wait_for(1));
      EXPECT_EQ(WFTimer::count_prefix(""), 0u);
    }
  }
}

// What a refused timer has captured is destroyed when the timer is dismissed, or when it has ended.
TEST(RefusedTimer, WhatItHasCapturedMayCallTheLibrary) {
  TimerOutcomes outcomes;
  WFTimer::create(hours(1), {"name"}, outcomes.callback())->start();
  ASSERT_EQ(WFTimer::set_quota("full", 0), 0);
  for (const char* name : {"name", "full"}) {
    for (const bool dismissed : {false, true}) {
      std::atomic<int> destroyed{0};
      Tally ended;
      const auto end = [&destroyed] {
        EXPECT_EQ(WFTimer::count("name"), 1u);
        EXPECT_EQ(WFTimer::list("", 2).size(), 1u);
        EXPECT_EQ(WFTimer::reschedule("name", hours(2)), 1u);
        destroyed++;
      };
      WFTimerOptions options;
      options.name = name;
      options.policy = WF_TIMER_KEEP;
      WFTimerPeriod period;
      period.every = hours(1);
      AtTheEnd of_tick(end);
      AtTheEnd of_callback(end);
      WFTimerTask* task = WFTimer::create_periodic(
          period, options, [last = std::move(of_tick)](const WFTimerTick&) {},
          [&ended, last = std::move(of_callback)](WFTimerTask*) { ended.add(); });
      const WFTimerHandle handle = WFTimer::handle_of(task);
      if (dismissed) {
        task->dismiss();
      } else {
        task->start();
        EXPECT_TRUE(ended.wait_for(1));
      }
      handle.cancel_and_wait();
      EXPECT_EQ(destroyed, 2);
    }
  }
  EXPECT_EQ(WFTimer::set_quota("full", WFTimer::kNoQuota), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 1);
  EXPECT_TRUE(outcomes.wait_for(1));
}

namespace {

// Names that are easily taken for one another.
std::vector<std::string> hostile_names() {
  using namespace std::string_literals;
  const std::string large(64 * 1024, 'n');
  std::vector<std::string> names = {
      "",          "\0"s,        "\0\0"s,        "\0a"s, "a",          "a\0"s,
      "a\0b"s,     "A",          "aa",           "a ",   " a",         "a/",
      "a/b",       "a/*",        "%s%n",         "a\nb", "\xff"s,      "\xff\xff",
      "\xc3\xa9",  "e\xcc\x81",  "\xed\xa0\x80", large,  "n"s + large, large + "\0"s,
      large + "o", large + "on", large.substr(1)};
  for (size_t i : {size_t{0}, large.size() / 2, large.size() - 1}) {
    names.push_back(large);
    names.back()[i] = 'm';
  }
  return names;
}

}  // namespace

TEST(TimerNames, EachCallMeansOneNameOnly) {
  const std::vector<std::string> names = hostile_names();
  TimerOutcomes outcomes;
  size_t ended = 0;
  const auto start = [&outcomes](const std::string& name, WFTimerPolicy policy) {
    WFTimerTask* task = WFTimer::create(hours(1), {name, policy}, outcomes.callback());
    const int error = task->get_error();
    task->start();
    return error;
  };
  for (const std::string& name : names) {
    ASSERT_EQ(start(name, WF_TIMER_KEEP), 0);
  }
  const auto expect_others_untouched = [&](const std::string& name) {
    ASSERT_TRUE(outcomes.wait_for(ended));
    ASSERT_EQ(outcomes.size(), ended);
    for (const std::string& other : names) {
      ASSERT_EQ(WFTimer::count(other), other == name ? 2u : 1u);
    }
  };
  for (const std::string& name : names) {
    EXPECT_EQ(start(name, WF_TIMER_KEEP), EEXIST);
    EXPECT_EQ(start(name, WF_TIMER_REPLACE), 0);
    ended += 2;
    EXPECT_EQ(start(name, WF_TIMER_APPEND), 0);
    expect_others_untouched(name);
    EXPECT_EQ(WFTimer::reschedule(name, hours(3)), 2u);
    size_t moved = 0;
    EXPECT_TRUE(WFTimer::for_each("", [&](const WFTimerInfo& info) {
      if (info.remaining > hours(2)) {
        EXPECT_EQ(info.name, name);
        moved++;
      }
      return true;
    }));
    EXPECT_EQ(moved, 2u);
    EXPECT_EQ(WFTimer::set_quota(name, 3), 0);
    EXPECT_EQ(start(name, WF_TIMER_APPEND), 0);
    EXPECT_EQ(start(name, WF_TIMER_APPEND), EDQUOT);
    EXPECT_EQ(WFTimer::set_quota(name, WFTimer::kNoQuota), 0);
    EXPECT_EQ(WFTaskFactory::cancel_by_name(name, 2), 2);
    EXPECT_EQ(WFTimer::reschedule(name, hours(1)), 1u);
    ended += 3;
    expect_others_untouched("none of them");
  }
  for (const std::string& name : names) {
    EXPECT_EQ(WFTaskFactory::cancel_by_name(name), 1);
    EXPECT_EQ(WFTaskFactory::cancel_by_name(name), 0);
  }
  EXPECT_TRUE(outcomes.wait_for(ended + names.size()));
  EXPECT_EQ(WFTimer::count_prefix(""), 0u);
}

TEST(TimerNames, ThoseOfPeriodicTimersMayBeAnyBytes) {
  const std::vector<std::string> names = hostile_names();
  TimerOutcomes outcomes;
  std::vector<Tally> ticks(names.size());
  for (size_t i = 0; i < names.size(); i++) {
    WFTimerOptions options;
    options.name = names[i];
    WFTimerPeriod period;
    period.every = milliseconds(1);
    WFTimer::create_periodic(
        period, options, [&ticks, i](const WFTimerTick&) { ticks[i].add(); }, outcomes.callback())
        ->start();
  }
  for (size_t i = 0; i < names.size(); i++) {
    EXPECT_TRUE(ticks[i].wait_for(2));
    EXPECT_EQ(WFTaskFactory::cancel_by_name(names[i]), 1);
    EXPECT_TRUE(outcomes.wait_for(i + 1));
    EXPECT_EQ(outcomes.size(), i + 1);
  }
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), names.size());
}

// A prefix of most of a hundred thousand names costs those who use one of them nothing.
TEST(TimerNames, ManyMayHaveALongPrefixInCommon) {
  const size_t kNames = test_support::kSanitized ? 5'000 : 50'000;
  const std::string prefix(500, '/');
  TimerOutcomes outcomes;
  for (size_t i = 0; i < kNames; i++) {
    WFTimer::create(hours(1), {prefix + std::to_string(i), WF_TIMER_KEEP}, outcomes.callback())
        ->start();
  }
  EXPECT_EQ(WFTimer::count_prefix(prefix), kNames);
  EXPECT_EQ(WFTimer::count_prefix(prefix + "/"), 0u);
  EXPECT_EQ(WFTimer::count_prefix(prefix + "7"), WFTimer::list(prefix + "7", SIZE_MAX).size());
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kNames; i++) {
    ASSERT_EQ(WFTaskFactory::cancel_by_name(prefix + std::to_string(i)), 1);
  }
  // One by one through all of them it would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  EXPECT_TRUE(outcomes.wait_for(kNames));
}

// What a visitor throws goes on to the caller, and leaves nothing of the visit behind.
TEST(TimerVisit, MayBeLeftByAnException) {
  constexpr size_t kTimers = 300;
  TimerOutcomes outcomes;
  for (size_t i = 0; i < kTimers; i++) {
    WFTimer::create(hours(1), {"crowd"}, outcomes.callback())->start();
  }
  for (size_t n = 0; n < kTimers / 2; n += 50) {
    size_t seen = 0;
    EXPECT_THROW(WFTimer::for_each("",
                                   [&seen, n](const WFTimerInfo&) -> bool {
                                     if (seen++ == n) {
                                       throw std::runtime_error("enough");
                                     }
                                     return true;
                                   }),
                 std::runtime_error);
    EXPECT_THROW(WFTimer::for_each("", [](const WFTimerInfo&) -> bool { throw std::bad_alloc(); }),
                 std::bad_alloc);
    EXPECT_EQ(WFTaskFactory::cancel_by_name("crowd", 10), 10);
  }
  const int left = static_cast<int>(WFTimer::count("crowd"));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("crowd"), left);
  EXPECT_TRUE(outcomes.wait_for(kTimers));
}

// It is called, and not copies of it.
TEST(TimerVisit, KeepsTheStateOfItsVisitor) {
  TimerOutcomes outcomes;
  for (size_t i = 0; i < 300; i++) {
    WFTimer::create(hours(1), {"crowd"}, outcomes.callback())->start();
  }
  size_t last = 0;
  EXPECT_TRUE(WFTimer::for_each("", [&last, seen = size_t{0}](const WFTimerInfo&) mutable {
    last = ++seen;
    return true;
  }));
  EXPECT_EQ(last, 300u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("crowd"), 300);
  EXPECT_TRUE(outcomes.wait_for(300));
}
