#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fault/TimerAllocations.h"
#include "support/MemoryFaults.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Calls about timers that end once, about their names, and about those that wait.

using fault::FullQueue;
using fault::Probe;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::Tally;

namespace {

class TimerAllocations : public fault::TimerAllocationTest {};

INSTANTIATE_TEST_SUITE_P(Failing, TimerAllocations, testing::Values(0, fault::kAllThatFollow),
                         fault::name_of_failures);

}  // namespace

TEST_P(TimerAllocations, CreateWithoutAName) {
  fail_each(1, [this] {
    Probe probe;
    auto callback = probe.callback();
    WFTimerTask* task = nullptr;
    if (completes([&] { task = WFTimer::create(seconds(0), std::move(callback)); })) {
      task->start();
      EXPECT_TRUE(probe.ended_with(WFT_STATE_SUCCESS, 0));
    } else {
      EXPECT_FALSE(task);
      EXPECT_TRUE(callback || probe.dropped());
    }
  });
}

TEST_P(TimerAllocations, CreateWithANameATagAndAQuota) {
  ASSERT_EQ(WFTimer::set_prefix_quota("a name", 1), 0);
  fail_each(50, [this] {
    Probe probe;
    auto callback = probe.callback();
    const WFTimerOptions named = options();
    WFTimerTask* task = nullptr;
    if (completes([&] { task = WFTimer::create(hours(1), named, std::move(callback)); })) {
      ASSERT_EQ(task->get_error(), 0);
      ASSERT_EQ(WFTimer::list(*named.name, 2).size(), 1u);
      EXPECT_EQ(WFTimer::list(*named.name, 2)[0].tag, 7u);
      task->start();
      expect_cancelled(*named.name, probe);
      return;
    }
    EXPECT_TRUE(callback || probe.dropped());
    EXPECT_EQ(WFTimer::count_prefix(""), 0u);
    // The place in the quota is free.
    Probe other;
    task = WFTimer::create(hours(1), options(), other.callback());
    EXPECT_EQ(task->get_error(), 0);
    task->dismiss();
  });
  EXPECT_EQ(WFTimer::set_prefix_quota("a name", WFTimer::kNoQuota), 0);
}

TEST_P(TimerAllocations, ReplaceEndsTheOldOneOnlyWhenTheNewOneIsThere) {
  fail_each(3, [this] {
    Probe old;
    Probe probe;
    const WFTimerOptions named = options(WF_TIMER_REPLACE);
    WFTimer::create(hours(1), named, old.callback())->start();
    auto callback = probe.callback();
    WFTimerTask* task = nullptr;
    if (completes([&] { task = WFTimer::create(hours(1), named, std::move(callback)); })) {
      EXPECT_TRUE(old.ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
      task->start();
      expect_cancelled(*named.name, probe);
    } else {
      EXPECT_EQ(WFTimer::count(*named.name), 1u);
      EXPECT_TRUE(callback || probe.dropped());
      expect_cancelled(*named.name, old);
    }
  });
}

TEST_P(TimerAllocations, OneThatIsRefusedIsSoOrIsNot) {
  ASSERT_EQ(WFTimer::set_prefix_quota("full", 0), 0);
  fail_each(3, [this] {
    Probe old;
    const WFTimerOptions named = options(WF_TIMER_KEEP);
    WFTimer::create(hours(1), named, old.callback())->start();
    for (const bool over_quota : {false, true}) {
      Probe probe;
      WFTimerOptions refused = named;
      refused.name = over_quota ? "full" : *named.name;
      auto callback = probe.callback();
      WFTimerTask* task = nullptr;
      if (completes([&] { task = WFTimer::create(hours(1), refused, std::move(callback)); })) {
        const int error = over_quota ? EDQUOT : EEXIST;
        EXPECT_EQ(task->get_error(), error);
        task->start();
        EXPECT_TRUE(probe.ended_with(WFT_STATE_SYS_ERROR, error));
      } else {
        EXPECT_TRUE(callback || probe.dropped());
      }
      EXPECT_EQ(WFTimer::count_prefix(""), 1u);
    }
    expect_cancelled(*named.name, old);
  });
  EXPECT_EQ(WFTimer::set_prefix_quota("full", WFTimer::kNoQuota), 0);
}

// What the first of its kind makes for all others, it makes whole or not at all.
TEST_P(TimerAllocations, TheFirstHandleAndTheFirstName) {
  Probe probe;
  WFTimerTask* task = WFTimer::create(hours(1), probe.callback());
  WFTimerHandle handle;
  int tries = 0;
  fail_each(1, [&] {
    EXPECT_TRUE(completes([&] { handle = WFTimer::handle_of(task); }));
    tries += handle == WFTimerHandle();
  });
  EXPECT_GT(tries, GetParam() == 0 ? 1 : 0);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  task->start();
  EXPECT_TRUE(probe.ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
  const WFTimerOptions named = options();
  fail_each(1, [&] {
    WFTimerTask* first = nullptr;
    if (completes([&] { first = WFTimer::create(hours(1), named, nullptr); })) {
      first->dismiss();
    }
  });
}

TEST_P(TimerAllocations, HandleOfIsAHandleOrOfNoTimer) {
  fail_each(1, [this] {
    Probe probes[700];  // more than there are free slots
    std::vector<WFTimerHandle> handles;
    for (Probe& probe : probes) {
      WFTimerTask* task = WFTimer::create(hours(1), probe.callback());
      WFTimerHandle handle;
      EXPECT_TRUE(completes([&] { handle = WFTimer::handle_of(task); }));
      EXPECT_TRUE(failed() || handle != WFTimerHandle());
      if (handle == WFTimerHandle()) {
        EXPECT_EQ(handle.cancel(), WFTimerCancel::kNoTimer);
        handle = WFTimer::handle_of(task);
      }
      handles.push_back(handle);
      task->start();
    }
    for (size_t i = 0; i < handles.size(); i++) {
      EXPECT_EQ(handles[i].cancel(), WFTimerCancel::kWon);
      EXPECT_TRUE(probes[i].ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
    }
  });
}

TEST_P(TimerAllocations, SetQuotas) {
  for (const auto set : {&WFTimer::set_quota, &WFTimer::set_prefix_quota}) {
    const std::string text = "one of the names that have a quota";
    ASSERT_EQ(set("one", 5), 0);
    const auto has_room = [&text] {
      WFTimerOptions named;
      named.name = text;
      WFTimerTask* task = WFTimer::create(hours(1), named, nullptr);
      const bool refused = task->get_error() == EDQUOT;
      task->dismiss();
      return !refused;
    };
    const auto change = [&](size_t max, bool had_room) {
      int result = 1;
      errno = 0;
      EXPECT_TRUE(completes([&] { result = set(text, max); }));
      EXPECT_EQ(result, failed() ? -1 : 0);
      EXPECT_EQ(errno == ENOMEM, failed());
      EXPECT_EQ(has_room(), failed() ? had_room : max > 0);
      EXPECT_EQ(set(text, max), 0);
      EXPECT_EQ(has_room(), max > 0);
    };
    fail_each(1, [&] {
      change(0, true);
      change(1, false);
      change(0, true);
      change(WFTimer::kNoQuota, false);
    });
    EXPECT_EQ(set("one", WFTimer::kNoQuota), 0);
  }
}

TEST_P(TimerAllocations, ListsAreWholeOrSayThatTheyAreNot) {
  constexpr size_t kTimers = 300;
  // Each is an allocation of its own.
  constexpr size_t kNames = test_support::kSanitized ? 75 : 300;
  const WFTimerOptions crowd = options();
  std::vector<WFTimerOptions> names(kTimers, crowd);
  std::vector<Probe> probes(kTimers + kNames);
  for (size_t i = 0; i < kNames; i++) {
    names.push_back(options());
  }
  for (size_t i = 0; i < names.size(); i++) {
    WFTimer::create(hours(1), names[i], probes[i].callback())->start();
  }
  fail_each(1, [&] {
    std::vector<WFTimerInfo> infos;
    const bool completed = completes([&] { infos = WFTimer::list("a name", SIZE_MAX); });
    EXPECT_EQ(completed, !failed());
    EXPECT_EQ(infos.size(), completed ? names.size() : 0);
    size_t seen = 0;
    bool whole = false;
    EXPECT_TRUE(completes([&] {
      whole = WFTimer::for_each("a name", [&seen](const WFTimerInfo& info) {
        seen += info.name.size() > 10;
        return true;
      });
    }));
    EXPECT_EQ(whole, !failed());
    EXPECT_EQ(seen == names.size(), whole);
    // Nobody is left in the list of a name that changes now.
    Probe other;
    WFTimer::create(hours(1), crowd, other.callback())->start();
    EXPECT_EQ(WFTimer::count(*crowd.name), kTimers + 1);
    EXPECT_EQ(WFTaskFactory::cancel_by_name(*crowd.name, 1), 1);
    EXPECT_EQ(WFTaskFactory::cancel_by_name(*crowd.name), kTimers);
    EXPECT_TRUE(other.ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
    for (size_t i = 0; i < kTimers; i++) {
      EXPECT_TRUE(probes[i].ended());
      EXPECT_TRUE(probes[i].gone());
      WFTimer::create(hours(1), crowd, probes[i].callback())->start();
    }
  });
  for (const WFTimerOptions& each : names) {
    WFTaskFactory::cancel_by_name(*each.name);
  }
  for (const Probe& probe : probes) {
    EXPECT_TRUE(probe.ended());
    EXPECT_TRUE(probe.gone());
  }
}

TEST_P(TimerAllocations, Start) {
  for (const WFTimerClock clock : {WF_CLOCK_MONOTONIC, WF_CLOCK_BOOTTIME, WF_CLOCK_WALL}) {
    // The first of their clock, and the first beyond the room that there is.
    for (const bool full : {false, true}) {
      if (clock == WF_CLOCK_MONOTONIC && !full) continue;
      const std::optional<FullQueue> queue =
          full ? std::optional<FullQueue>(std::in_place, clock, 0) : std::nullopt;
      fail_each(1, [&] {
        Probe probe;
        const WFTimerOptions named = options();
        WFTimerTask* task = WFTimer::create({milliseconds(1), clock}, named, probe.callback());
        EXPECT_TRUE(completes([&] {
          task->start();
          probe.ended();
        }));
        EXPECT_TRUE(failed() ? probe.ended_with(WFT_STATE_SYS_ERROR, ENOMEM)
                             : probe.ended_with(WFT_STATE_SUCCESS, 0));
        EXPECT_EQ(WFTimer::count(*named.name), 0u);
      });
    }
  }
}

TEST_P(TimerAllocations, WhatEndsOrMovesOrCountsTimersTakesNoMemory) {
  const std::string name = *options().name;
  constexpr size_t kTimers = 200;
  std::vector<Probe> probes(kTimers);
  std::vector<WFTimerHandle> handles;
  for (Probe& probe : probes) {
    WFTimerTask* task = WFTimer::create(hours(1), {name}, probe.callback());
    handles.push_back(WFTimer::handle_of(task));
    task->start();
  }
  fault::counts_here = true;
  fault::arm(1, fault::kAllThatFollow);
  size_t right = 0;
  for (const WFTimerHandle& handle : handles) {
    right += handle.reschedule(hours(2)) == WFTimerMove::kWon;
    right += handle.reschedule(hours(1)) == WFTimerMove::kWon;
    right += handle.remaining() > seconds(0);
  }
  right += WFTimer::reschedule(name, hours(3));
  right += WFTimer::count(name) + WFTimer::count_prefix("a name");
  right += handles[0].cancel() == WFTimerCancel::kWon;
  right += handles[0].cancel_and_wait() != WFTimerCancel::kWon;
  right += static_cast<size_t>(WFTaskFactory::cancel_by_name(name));
  for (const Probe& probe : probes) {
    right += probe.ended();
  }
  EXPECT_EQ(fault::disarm(), 0);
  fault::counts_here = false;
  EXPECT_EQ(right, 3 * kTimers + kTimers + 2 * kTimers + 2 + (kTimers - 1) + kTimers);
  for (const Probe& probe : probes) {
    EXPECT_TRUE(probe.ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
  }
}

TEST_P(TimerAllocations, WithDeadline) {
  fail_each(1, [this] {
    Probe probe;
    WFTimerTask* task = WFTimer::create(hours(1), probe.callback());
    Tally ended;
    std::atomic<int> error{-1};
    WFDeadlineTask::Callback callback = [&](WFDeadlineTask* deadline) {
      error = deadline->get_error();
      ended.add();
    };
    WFDeadlineTask* deadline = nullptr;
    if (!completes([&] { deadline = with_deadline(task, milliseconds(1), std::move(callback)); })) {
      EXPECT_FALSE(deadline);
      task->dismiss();  // still the caller's
      EXPECT_TRUE(probe.dropped());
      return;
    }
    EXPECT_TRUE(completes([&] {
      deadline->start();
      ended.wait_for(1);
    }));
    EXPECT_TRUE(ended.wait_for(1));
    EXPECT_EQ(ended.count(), 1u);
    EXPECT_TRUE(probe.ended_with(WFT_STATE_SYS_ERROR, error));
    EXPECT_TRUE(error == ETIMEDOUT || (error == ENOMEM && failed()));
  });
}
