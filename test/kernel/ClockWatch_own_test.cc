// How pollers follow the system's clocks when these are set.

#include <gtest/gtest.h>
#include <sys/timerfd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/HandlerPool.h"
#include "kernel/Poller.h"
#include "kernel/PollerTimers.h"
#include "kernel/TimerFlood.h"
#include "support/ShiftedClocks.h"
#include "support/Tally.h"
#include "util/Clock.h"

using shifted_clocks::boottime_shift_ns;
using shifted_clocks::epoll_error;
using shifted_clocks::signalled_by_hand;
using shifted_clocks::wall_shift_ns;
using shifted_clocks::watch_error;
using shifted_clocks::watch_fds;
using shifted_clocks::watches;
using shifted_clocks::watches_setting;
using test_support::Tally;
using workflow::ClockId;
using workflow::HandlerPool;
using workflow::kNever;
using workflow::kNsPerMs;
using workflow::kNsPerSec;
using workflow::Poller;
using workflow::PollerTimers;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::system_clock;
using workflow::TimerDue;
using workflow::TimerNode;

namespace {

class Timer final : public TimerNode, public Runnable {
 public:
  Timer(TimerDue due, ClockId clock, Tally& ended) : TimerNode(due, clock), ended_(ended) {}
  ~Timer() override = default;

  void left_queue(bool stopped, RunnableList& finished) override {
    shown_ns_ = system_clock().now_ns_on(clock());
    stopped_ = stopped;
    finished.push_back(this);
  }
  void run_queued() override { ended_.add(); }

  // Its clock, when it expired.
  int64_t shown_ns() const { return shown_ns_; }
  bool stopped() const { return stopped_; }

 private:
  Tally& ended_;
  std::atomic<int64_t> shown_ns_{0};
  std::atomic<bool> stopped_{false};
};

class ClockWatch : public testing::Test {
 protected:
  ClockWatch() {
    shifted_clocks::reset();
    EXPECT_TRUE(handlers_.start());
    EXPECT_TRUE(poller_.start());
  }
  ~ClockWatch() override {
    poller_.timers().stop();
    poller_.timers().wait_until_ended();
    handlers_.stop();
    poller_.stop();
  }

  static int64_t now_ns(ClockId clock) { return system_clock().now_ns_on(clock); }
  Timer& add(TimerDue due, ClockId clock) {
    timers_.push_back(std::make_unique<Timer>(due, clock, ended_));
    return *timers_.back();
  }
  Timer& start(TimerDue due, ClockId clock) {
    Timer& timer = add(due, clock);
    EXPECT_EQ(poller_.timers().start(&timer), PollerTimers::Start::kQueued);
    return timer;
  }
  std::vector<std::unique_ptr<Timer>> timers_;
  Tally ended_;
  HandlerPool handlers_{1};
  Poller poller_{system_clock(), handlers_};
};

}  // namespace

TEST_F(ClockWatch, MonotonicTimersNeedNone) {
  start(TimerDue::after(0), ClockId::kMonotonic);
  start(TimerDue::at(now_ns(ClockId::kMonotonic) + kNsPerMs), ClockId::kMonotonic);
  EXPECT_TRUE(ended_.wait_for(2));
  EXPECT_EQ(watches, 0u);
}

TEST_F(ClockWatch, OneDescriptorServesAllTimersOfOtherClocks) {
  for (ClockId clock : {ClockId::kBoottime, ClockId::kWall, ClockId::kBoottime, ClockId::kWall}) {
    start(TimerDue::after(kNever), clock);
  }
  EXPECT_EQ(watches, 1u);
  EXPECT_TRUE(watches_setting);
}

TEST_F(ClockWatch, TimersOfEachClockAreNeverEarly) {
  for (ClockId clock : {ClockId::kMonotonic, ClockId::kBoottime, ClockId::kWall}) {
    for (int64_t ms = 1; ms <= 5; ms++) {
      const int64_t deadline_ns = now_ns(clock) + ms * kNsPerMs;
      Timer& timer = start(TimerDue::at(deadline_ns), clock);
      ASSERT_TRUE(ended_.wait_for(timers_.size()));
      EXPECT_GE(timer.shown_ns(), deadline_ns);
      EXPECT_LT(timer.shown_ns(), deadline_ns + 10 * kNsPerSec);
    }
  }
}

TEST_F(ClockWatch, AWallClockSetForwardsMakesDatesDue) {
  Timer& date = start(TimerDue::at(now_ns(ClockId::kWall) + 3600 * kNsPerSec), ClockId::kWall);
  Timer& other = start(TimerDue::after(3600 * kNsPerSec), ClockId::kBoottime);
  wall_shift_ns = 3600 * kNsPerSec;
  shifted_clocks::signal();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_FALSE(date.stopped());
  EXPECT_EQ(poller_.timers().size(), 1u);
  EXPECT_EQ(other.shown_ns(), 0);
}

TEST_F(ClockWatch, AWallClockSetPartOfTheWayIsArmedForTheRest) {
  const int64_t deadline_ns = now_ns(ClockId::kWall) + 3600 * kNsPerSec;
  Timer& date = start(TimerDue::at(deadline_ns), ClockId::kWall);
  wall_shift_ns = 3600 * kNsPerSec - 50 * kNsPerMs;
  shifted_clocks::signal();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_GE(date.shown_ns(), deadline_ns);
}

TEST_F(ClockWatch, AWallClockSetBackwardsPostponesDates) {
  bool in_time = false;
  while (!in_time) {  // again, should the machine take too long to set the clock
    const size_t before = ended_.count();
    const int64_t begin_ns = now_ns(ClockId::kMonotonic);
    const int64_t deadline_ns = now_ns(ClockId::kWall) + 100 * kNsPerMs;
    Timer& date = start(TimerDue::at(deadline_ns), ClockId::kWall);
    Timer& later = start(TimerDue::after(300 * kNsPerMs), ClockId::kMonotonic);
    wall_shift_ns = -3600 * kNsPerSec;
    shifted_clocks::signal();
    in_time = now_ns(ClockId::kMonotonic) - begin_ns < 50 * kNsPerMs;
    if (in_time) {
      EXPECT_TRUE(ended_.wait_for(1 + before));
      EXPECT_FALSE(later.stopped());
      EXPECT_NE(later.shown_ns(), 0);
      EXPECT_EQ(date.shown_ns(), 0);
      EXPECT_EQ(poller_.timers().size(), 1u);
    }
    wall_shift_ns = 0;
    shifted_clocks::signal();
    EXPECT_TRUE(ended_.wait_for(2 + before));
    EXPECT_TRUE(!in_time || date.shown_ns() >= deadline_ns);
  }
}

// The kernel may signal a change after the armed time has come.
TEST_F(ClockWatch, ADateIsNotEarlyBeforeTheChangeIsSignalled) {
  bool in_time = false;
  while (!in_time) {  // again, should the machine take too long to set the clock, or to look
    const size_t before = ended_.count();
    const int64_t begin_ns = now_ns(ClockId::kMonotonic);
    const int64_t deadline_ns = now_ns(ClockId::kWall) + 50 * kNsPerMs;
    Timer& date = start(TimerDue::at(deadline_ns), ClockId::kWall);
    Timer& later = start(TimerDue::after(150 * kNsPerMs), ClockId::kMonotonic);
    wall_shift_ns = -1 * kNsPerSec;
    const bool set_in_time = now_ns(ClockId::kMonotonic) - begin_ns < 25 * kNsPerMs;
    EXPECT_TRUE(ended_.wait_for(1 + before));
    const int64_t later_shown_ns = later.shown_ns();
    const int64_t date_shown_ns = date.shown_ns();
    in_time = set_in_time && now_ns(ClockId::kMonotonic) - begin_ns < kNsPerSec;
    if (in_time) {
      EXPECT_NE(later_shown_ns, 0);
      EXPECT_EQ(date_shown_ns, 0);
    }
    EXPECT_TRUE(ended_.wait_for(2 + before));
    EXPECT_TRUE(!in_time || date.shown_ns() >= deadline_ns);
    wall_shift_ns = 0;
  }
}

TEST_F(ClockWatch, ASuspensionCountsForBoottimeOnly) {
  Timer& boottime = start(TimerDue::after(3600 * kNsPerSec), ClockId::kBoottime);
  Timer& monotonic = start(TimerDue::after(3600 * kNsPerSec), ClockId::kMonotonic);
  boottime_shift_ns = 3600 * kNsPerSec;
  wall_shift_ns = 3600 * kNsPerSec;
  shifted_clocks::signal();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_NE(boottime.shown_ns(), 0);
  EXPECT_EQ(monotonic.shown_ns(), 0);
}

TEST_F(ClockWatch, EachOfManyChangesIsSeen) {
  for (size_t i = 1; i <= 50; i++) {
    start(TimerDue::at(now_ns(ClockId::kWall) + 3600 * kNsPerSec), ClockId::kWall);
    wall_shift_ns += 3600 * kNsPerSec;
    shifted_clocks::signal();
    ASSERT_TRUE(ended_.wait_for(i));
  }
}

TEST_F(ClockWatch, WithoutADescriptorAStartIsRefusedAndTheNextTriesAgain) {
  watch_error = EMFILE;
  for (ClockId clock : {ClockId::kBoottime, ClockId::kWall}) {
    Timer& refused = add(TimerDue::after(0), clock);
    errno = 0;
    EXPECT_EQ(poller_.timers().start(&refused), PollerTimers::Start::kNoClock);
    EXPECT_EQ(errno, EMFILE);
    EXPECT_EQ(PollerTimers::cancel(&refused), PollerTimers::Cancel::kTooLate);
  }
  start(TimerDue::after(0), ClockId::kMonotonic);
  EXPECT_TRUE(ended_.wait_for(1));
  watch_error = 0;
  start(TimerDue::after(0), ClockId::kWall);
  EXPECT_TRUE(ended_.wait_for(2));
}

TEST_F(ClockWatch, ADescriptorThatCannotBeWatchedIsClosed) {
  epoll_error = ENOSPC;
  Timer& refused = add(TimerDue::after(0), ClockId::kWall);
  EXPECT_EQ(poller_.timers().start(&refused), PollerTimers::Start::kNoClock);
  EXPECT_EQ(errno, ENOSPC);
  const int closed_fd = watch_fds[0];
  epoll_error = 0;
  start(TimerDue::after(0), ClockId::kWall);
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(watch_fds[1], closed_fd);
}

TEST_F(ClockWatch, AFloodOnOneClockDoesNotKeepTheOthersWaiting) {
  const test_support::TimerFlood flood(poller_, 2000);
  for (ClockId clock : {ClockId::kBoottime, ClockId::kWall}) {
    start(TimerDue::after(kNsPerMs), clock);
  }
  EXPECT_TRUE(ended_.wait_for(2));
  poller_.timers().stop();
  poller_.timers().wait_until_ended();
}

// The real descriptor of the system this runs on: nobody sets its clock meanwhile.
TEST(ClockWatchOfTheSystem, TakesTheWatch) {
  shifted_clocks::reset();
  signalled_by_hand = false;
  Tally ended;
  HandlerPool handlers(1);
  Poller poller(system_clock(), handlers);
  ASSERT_TRUE(handlers.start());
  ASSERT_TRUE(poller.start());
  Timer date(TimerDue::after(kNsPerMs), ClockId::kWall, ended);
  EXPECT_EQ(poller.timers().start(&date), PollerTimers::Start::kQueued);
  EXPECT_TRUE(ended.wait_for(1));
  struct itimerspec armed = {};
  EXPECT_EQ(::timerfd_gettime(watch_fds[0], &armed), 0);
  EXPECT_GT(armed.it_value.tv_sec, 3600 * 24 * 365);
  poller.timers().stop();
  poller.timers().wait_until_ended();
  handlers.stop();
  poller.stop();
}

TEST_F(ClockWatch, WhatIsDueAtItsStartNeedsNone) {
  watch_error = EMFILE;
  for (ClockId clock : {ClockId::kBoottime, ClockId::kWall}) {
    Timer& timer = add(TimerDue::after(0), clock);
    EXPECT_EQ(poller_.timers().start(&timer, PollerTimers::IfDue::kReport),
              PollerTimers::Start::kDue);
  }
  EXPECT_EQ(watches, 0u);
}
