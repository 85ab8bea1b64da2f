#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fault/TimerAllocations.h"
#include "support/MemoryFaults.h"
#include "workflow/WFCron.h"
#include "workflow/WFTimer.h"

// Calls about periodic timers and about cron.

// The library that reads time zones loses one it has read if it has no memory to remember it.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:cctz::time_zone::Impl::LoadTimeZone\n";
}

using fault::FullQueue;
using fault::Probe;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

class TickAllocations : public fault::TimerAllocationTest {};

INSTANTIATE_TEST_SUITE_P(Failing, TickAllocations, testing::Values(0, fault::kAllThatFollow),
                         fault::name_of_failures);

}  // namespace

TEST_P(TickAllocations, CreateAPeriodicTimer) {
  fail_each(10, [this] {
    for (const bool overlap : {false, true}) {
      Probe probe;
      auto tick = probe.tick(3);
      auto callback = probe.callback();
      const WFTimerOptions named = options();
      WFTimerPeriod period;
      period.every = microseconds(50);
      period.overlap = overlap;
      WFTimerTask* task = nullptr;
      if (completes([&] {
            task = WFTimer::create_periodic(period, named, std::move(tick), std::move(callback));
          })) {
        task->start();
        EXPECT_TRUE(probe.ended_with(WFT_STATE_SUCCESS, 0));
        EXPECT_GE(probe.begun(), overlap ? 1u : 3u);  // ends those that have not begun
      } else {
        tick = nullptr;
        callback = nullptr;
        EXPECT_TRUE(probe.dropped());
      }
      EXPECT_EQ(WFTimer::count(*named.name), 0u);
    }
  });
}

// A tick that there is no memory for is missed; the timer goes on.
TEST_P(TickAllocations, TicksThatOverlap) {
  fail_each(10, [this] {
    Probe probe;
    const WFTimerOptions named = options();
    WFTimerPeriod period;
    period.every = milliseconds(1);
    period.overlap = true;
    WFTimerTask* task =
        WFTimer::create_periodic(period, named, probe.tick(UINT64_MAX), probe.callback());
    completes([&] {
      task->start();
      do {
        std::this_thread::sleep_for(milliseconds(5));  // until some ticks are due
      } while (all_fail() && fault::failures == 0);
    });
    const int64_t missed = probe.missed();
    if (all_fail()) {
      EXPECT_GE(missed, 1);
    }
    expect_cancelled(*named.name, probe);
  });
}

TEST_P(TickAllocations, ATickThatCannotBeFollowedByAnother) {
  const FullQueue queue(WF_CLOCK_MONOTONIC, 1);
  fail_each(1, [this] {
    Probe probe;
    Probe other;
    const WFTimerOptions named = options();
    const WFTimerOptions others = options();
    WFTimerPeriod period;
    period.every = milliseconds(1);
    long failures = -1;
    WFTimerTask* task = WFTimer::create_periodic(
        period, named,
        [&](const WFTimerTick& tick) {
          if (tick.number > 0) {
            failures = fault::disarm();
            tick.end();
            return;
          }
          // Takes the place that the tick has left.
          WFTimer::create(hours(1), others, other.callback())->start();
          arm();
        },
        [&, callback = probe.callback()](WFTimerTask* ended) {
          failures = failures < 0 ? fault::disarm() : failures;
          callback(ended);
        });
    task->start();
    EXPECT_TRUE(probe.ended());
    note(failures);
    EXPECT_TRUE(failed() ? probe.ended_with(WFT_STATE_SYS_ERROR, ENOMEM)
                         : probe.ended_with(WFT_STATE_SUCCESS, 0));
    EXPECT_EQ(WFTimer::count(*named.name), 0u);
    expect_cancelled(*others.name, other);
  });
}

TEST_P(TickAllocations, CreateACronTimer) {
  const auto cron = WFCron::parse("0 0 1 1 *", "Europe/Berlin");
  ASSERT_TRUE(cron);
  fail_each(10, [&] {
    Probe probe;
    auto tick = probe.tick(3);
    auto callback = probe.callback();
    const WFTimerOptions named = options();
    WFTimerTask* task = nullptr;
    if (completes([&] {
          task = WFTimer::create_cron(*cron, named, std::move(tick), std::move(callback));
        })) {
      task->start();
      expect_cancelled(*named.name, probe);
    } else {
      tick = nullptr;
      callback = nullptr;
      EXPECT_TRUE(probe.dropped());
    }
    EXPECT_EQ(WFTimer::count(*named.name), 0u);
  });
}

TEST_P(TickAllocations, ParseACronExpression) {
  // Another zone each time, as each is read once.
  std::vector<std::string> zones;
  for (const auto& file : std::filesystem::directory_iterator("/usr/share/zoneinfo/America")) {
    if (file.is_regular_file()) {
      zones.push_back("America/" + file.path().filename().string());
    }
  }
  ASSERT_GT(zones.size(), 100u);
  size_t next = 0;
  int lost = 0;
  fail_each(1, [&] {
    const std::string& zone = zones[next++ % zones.size()];
    std::optional<WFCron> cron;
    WFCronError error;
    EXPECT_TRUE(completes([&] { cron = WFCron::parse("*/5 1-3 * * MON-FRI", zone, &error); }));
    EXPECT_TRUE(failed() || cron);
    if (!cron && error.field != WF_CRON_TIME_ZONE) {
      EXPECT_EQ(error.message, "no memory");
    }
    const bool may_be_lost = !cron;
    cron = WFCron::parse("*/5 1-3 * * MON-FRI", zone, &error);
    if (!cron && may_be_lost) {
      // The library that reads time zones remembers one that it could not open as unknown.
      EXPECT_EQ(error.field, WF_CRON_TIME_ZONE);
      lost++;
      return;
    }
    ASSERT_TRUE(cron) << error.to_string();
    EXPECT_EQ(cron->time_zone(), zone);
  });
  EXPECT_LE(lost, 1);  // where its file is opened
}

TEST_P(TickAllocations, ParseAWrongCronExpression) {
  for (const char* const wrong : {"* * * * MAN", "1 2 3", "@sometimes"}) {
    fail_each(1, [&] {
      std::optional<WFCron> cron;
      WFCronError error;
      EXPECT_TRUE(completes([&] { cron = WFCron::parse(wrong, "UTC", &error); }));
      EXPECT_FALSE(cron);
      EXPECT_EQ(error.message == "no memory", failed());
    });
  }
}

TEST_P(TickAllocations, TheNextTimes) {
  const auto cron = WFCron::parse("0 0 1 1 *", "Europe/Berlin");
  const WFCron::TimePoint now = std::chrono::system_clock::now();
  const auto expected = cron->next(now, 5);
  fail_each(1, [&] {
    std::optional<WFCron::TimePoint> first;
    EXPECT_TRUE(completes([&] { first = cron->next(now); }));
    EXPECT_FALSE(failed());
    EXPECT_EQ(first, expected[0]);
    std::vector<WFCron::TimePoint> times;
    const bool completed = completes([&] { times = cron->next(now, 5); });
    EXPECT_EQ(completed, !failed());
    EXPECT_EQ(times, completed ? expected : times);
  });
}
