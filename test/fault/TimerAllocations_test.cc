#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fault/MemoryFaults.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "workflow/WFCron.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// Each allocation of each call about timers fails in its turn, alone or with all that follow: the
// call does all or nothing, and says which; nothing is left; what was started ends once.

// The library that reads time zones loses one it has read if it has no memory to remember it.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:cctz::time_zone::Impl::LoadTimeZone\n";
}

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::Tally;

namespace {

constexpr long kAll = 1'000'000'000;

// What becomes of one timer. Takes no memory when it is told. Outlives the timer.
class Probe {
 public:
  ~Probe() { EXPECT_EQ(alive_, 0); }

  WFTimer::Callback callback() {
    return [this, token = Token(this)](WFTimerTask* task) {
      state_ = task->get_state();
      error_ = task->get_error();
      calls_.add();
    };
  }
  WFTimer::Tick tick(uint64_t last) {
    return [this, last, token = Token(this)](const WFTimerTick& tick) {
      begun_++;
      if (tick.number == 0) {
        missed_ = static_cast<int64_t>(tick.missed);
        first_.add();
      }
      if (tick.number + 1 >= last) {
        tick.end();
      }
    };
  }

  bool ended() const { return calls_.wait_for(1); }
  bool ended_with(int state, int error) const {
    return ended() && gone() && calls_.count() == 1 && state_ == state && error_ == error;
  }
  // Nothing of the timer is left, or will be soon.
  bool gone() const {
    for (int i = 0; i < 60'000 && alive_ > 0; i++) {
      std::this_thread::sleep_for(milliseconds(1));  // its callback may be on the way out
    }
    return alive_ == 0;
  }
  // Right now.
  bool dropped() const { return alive_ == 0 && calls_.count() == 0; }
  int state() const { return state_; }
  int error() const { return error_; }
  uint64_t begun() const { return begun_; }
  // Before the first tick.
  int64_t missed() const { return first_.wait_for(1) ? missed_.load() : -1; }

 private:
  // Counts the copies of what the timer captures.
  class Token {
   public:
    explicit Token(Probe* probe) : probe_(probe) { probe_->alive_++; }
    Token(const Token& other) : probe_(other.probe_) { probe_->alive_++; }
    Token& operator=(const Token&) = delete;
    ~Token() { probe_->alive_--; }

   private:
    Probe* const probe_;
  };

  std::atomic<int> alive_{0};
  std::atomic<int> state_{-100};
  std::atomic<int> error_{-100};
  std::atomic<uint64_t> begun_{0};
  std::atomic<int64_t> missed_{0};
  Tally first_;
  Tally calls_;
};

class TimerAllocations : public testing::TestWithParam<long> {
 protected:
  void SetUp() override {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    WORKFLOW_library_init(&settings);
    Probe first;  // so that the library runs
    WFTimer::create(seconds(0), first.callback())->start();
    ASSERT_TRUE(first.ended_with(WFT_STATE_SUCCESS, 0));
  }
  void TearDown() override { EXPECT_EQ(WFTimer::count_prefix(""), 0u); }

  // round() for the first allocation of what it lets fail, the second, until none fails. How many
  // there are varies, as tables grow.
  template <class Round>
  void fail_each(int rounds, Round&& round) {
    int without = 0;
    for (n_ = 1; without < 3; n_++) {
      failures_ = 0;
      for (int i = 0; i < rounds; i++) {
        round();
        ASSERT_FALSE(HasFailure()) << "allocation " << n_;
      }
      without = failures_ == 0 ? without + 1 : 0;
    }
    std::printf("%ld allocations\n", n_ - 4);
    EXPECT_GT(n_, 4);
  }

  // call() while allocations fail. False if it throws bad_alloc.
  template <class Call>
  bool completes(Call&& call) {
    bool completed = true;
    fault::counts_here = true;
    arm();
    try {
      call();
    } catch (const std::bad_alloc&) {
      completed = false;
    }
    note(fault::disarm());
    fault::counts_here = false;
    EXPECT_TRUE(completed || failed());
    return completed;
  }
  // The two halves of that, for what the library's threads do.
  void arm() { fault::arm(n_, GetParam()); }
  void note(long failures) {
    failed_ = failures > 0;
    failures_ += failures;
  }
  bool all_fail() const { return n_ == 1 && GetParam() == kAll; }
  // Whether an allocation of the last call has failed.
  bool failed() const { return failed_; }

  // Too long to be kept without memory; each is another one.
  WFTimerOptions options(WFTimerPolicy policy = WF_TIMER_APPEND) {
    WFTimerOptions options;
    options.name = "a name that is long enough for memory of its own " + std::to_string(names_++);
    options.policy = policy;
    options.tag = 7;
    return options;
  }

  void expect_cancelled(const std::string& name, const Probe& probe) {
    EXPECT_EQ(WFTaskFactory::cancel_by_name(name), 1);
    EXPECT_TRUE(probe.ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
  }

 private:
  long n_ = 0;
  long failures_ = 0;
  bool failed_ = false;
  int names_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Failing, TimerAllocations, testing::Values(0, kAll), [](const auto& more) {
  return std::string(more.param == 0 ? "One" : "AllThatFollow");
});

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
  EXPECT_EQ(handle.cancel(), WF_TIMER_WON);
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
        EXPECT_EQ(handle.cancel(), WF_TIMER_UNKNOWN);
        handle = WFTimer::handle_of(task);
      }
      handles.push_back(handle);
      task->start();
    }
    for (size_t i = 0; i < handles.size(); i++) {
      EXPECT_EQ(handles[i].cancel(), WF_TIMER_WON);
      EXPECT_TRUE(probes[i].ended_with(WFT_STATE_SYS_ERROR, ECANCELED));
    }
  });
}

TEST_P(TimerAllocations, CreateAPeriodicTimer) {
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
TEST_P(TimerAllocations, TicksThatOverlap) {
  fail_each(10, [this] {
    Probe probe;
    const WFTimerOptions named = options();
    WFTimerPeriod period;
    period.every = milliseconds(1);
    period.overlap = true;
    WFTimerTask* task = WFTimer::create_periodic(period, named, probe.tick(1000), probe.callback());
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

TEST_P(TimerAllocations, CreateACronTimer) {
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

TEST_P(TimerAllocations, ParseACronExpression) {
  // Another zone each time, as each is read once.
  std::vector<std::string> zones;
  for (const auto& file : std::filesystem::directory_iterator("/usr/share/zoneinfo/America")) {
    if (file.is_regular_file()) {
      zones.push_back("America/" + file.path().filename().string());
    }
  }
  ASSERT_GT(zones.size(), 100u);
  size_t next = 0;
  fail_each(1, [&] {
    const std::string& zone = zones[next++ % zones.size()];
    std::optional<WFCron> cron;
    WFCronError error;
    EXPECT_TRUE(completes([&] { cron = WFCron::parse("*/5 1-3 * * MON-FRI", zone, &error); }));
    EXPECT_TRUE(failed() || cron);
    if (!cron) {
      EXPECT_EQ(error.message, "no memory");
    }
    cron = WFCron::parse("*/5 1-3 * * MON-FRI", zone, &error);
    ASSERT_TRUE(cron) << error.to_string();
    EXPECT_EQ(cron->time_zone(), zone);
  });
}

TEST_P(TimerAllocations, ParseAWrongCronExpression) {
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

TEST_P(TimerAllocations, TheNextTimes) {
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
  const WFTimerOptions crowd = options();
  std::vector<WFTimerOptions> names(kTimers, crowd);
  std::vector<Probe> probes(2 * kTimers);
  for (size_t i = 0; i < kTimers; i++) {
    names.push_back(options());
  }
  for (size_t i = 0; i < names.size(); i++) {
    WFTimer::create(hours(1), names[i], probes[i].callback())->start();
  }
  fail_each(1, [&] {
    std::vector<WFTimerInfo> infos;
    const bool completed = completes([&] { infos = WFTimer::list("a name", SIZE_MAX); });
    EXPECT_EQ(completed, !failed());
    EXPECT_EQ(infos.size(), completed ? 2 * kTimers : 0);
    size_t seen = 0;
    bool whole = false;
    EXPECT_TRUE(completes([&] {
      whole = WFTimer::for_each("a name", [&seen](const WFTimerInfo& info) {
        seen += info.name.size() > 10;
        return true;
      });
    }));
    EXPECT_EQ(whole, !failed());
    EXPECT_EQ(seen == 2 * kTimers, whole);
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

// As many timers of one clock as their queue has room for before it needs memory again, less some.
class FullQueue {
 public:
  FullQueue(WFTimerClock clock, size_t less) {
    for (; started_ + less < kRoom; started_++) {
      WFTimer::create("full", {hours(1), clock}, WF_TIMER_APPEND, [this](WFTimerTask*) {
        ended_.add();
      })->start();
    }
  }
  ~FullQueue() {
    WFTaskFactory::cancel_by_name("full");
    EXPECT_TRUE(ended_.wait_for(started_));
  }

 private:
  static constexpr size_t kRoom = 4096 - 3;
  size_t started_ = 0;
  Tally ended_;
};

TEST_P(TimerAllocations, Start) {
  for (const WFTimerClock clock : {WF_CLOCK_MONOTONIC, WF_CLOCK_BOOTTIME, WF_CLOCK_WALL}) {
    // The first of their clock, and the first beyond the room that there is.
    for (const bool full : {false, true}) {
      if (clock == WF_CLOCK_MONOTONIC && !full) {
        continue;
      }
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

TEST_P(TimerAllocations, ATickThatCannotBeFollowedByAnother) {
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

TEST_P(TimerAllocations, WhatEndsOrMovesOrCountsTimersTakesNoMemory) {
  const std::string name = *options().name;
  constexpr size_t kTimers = 200;
  std::vector<Probe> probes(kTimers);
  std::vector<WFTimerHandle> handles;
  for (Probe& probe : probes) {
    WFTimerTask* task = WFTimer::create(name, hours(1), WF_TIMER_APPEND, probe.callback());
    handles.push_back(WFTimer::handle_of(task));
    task->start();
  }
  fault::counts_here = true;
  fault::arm(1, kAll);
  size_t right = 0;
  for (const WFTimerHandle& handle : handles) {
    right += handle.reschedule(hours(2)) == WF_TIMER_WON;
    right += handle.reschedule(hours(1)) == WF_TIMER_WON;
    right += handle.remaining() > seconds(0);
  }
  right += WFTimer::reschedule(name, hours(3));
  right += WFTimer::count(name) + WFTimer::count_prefix("a name");
  right += handles[0].cancel() == WF_TIMER_WON;
  right += handles[0].cancel_and_wait() != WF_TIMER_WON;
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
