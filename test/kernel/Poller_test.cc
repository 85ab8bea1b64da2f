#include "kernel/Poller.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/HandClock.h"
#include "kernel/HandlerPool.h"
#include "kernel/PollerTimers.h"
#include "kernel/ThreadContext.h"
#include "kernel/TimerFlood.h"
#include "support/Eventually.h"
#include "support/Tally.h"
#include "util/Clock.h"
#include "util/UniqueFd.h"

using test_support::eventually;
using test_support::Tally;
using workflow::HandlerPool;
using workflow::IoHandler;
using workflow::kNever;
using workflow::kNsPerMs;
using workflow::kNsPerSec;
using workflow::monotonic_ns;
using workflow::Poller;
using workflow::PollerTimers;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::ThreadContext;
using workflow::TimerDue;
using workflow::TimerNode;
using workflow::UniqueFd;

namespace {

using Cancel = PollerTimers::Cancel;
using IfDue = PollerTimers::IfDue;
using Move = PollerTimers::Move;
using Start = PollerTimers::Start;

// A timer that counts in how many ways it ended; handed to the handlers as most timers are.
class PolledTimer final : public TimerNode, public Runnable {
 public:
  explicit PolledTimer(Tally& ended) : ended_(ended) {}

  void left_queue(bool stopped, RunnableList& finished) override {
    stopped_ = stopped;
    finished.push_back(this);
  }
  void run_queued() override {
    at_ns_ = monotonic_ns();
    runs_++;
    ended_.add();
  }

  int runs() const { return runs_; }
  bool stopped() const { return stopped_; }
  int64_t at_ns() const { return at_ns_; }

 private:
  Tally& ended_;
  std::atomic<int> runs_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<int64_t> at_ns_{0};
};

// Told by its start whether it is due.
class DueNode final : public TimerNode {
 public:
  explicit DueNode(TimerDue due, bool restarts = false)
      : TimerNode(due, workflow::ClockId::kMonotonic, restarts) {}
  void left_queue(bool, RunnableList&) override {}
  using TimerNode::deadline_ns;
};

class Posted final : public Runnable {
 public:
  explicit Posted(std::function<void()> function) : function_(std::move(function)) {}
  void run_queued() override { function_(); }

 private:
  std::function<void()> function_;
};

// Takes 5 ms, and notes how many such ran before.
class Slow final : public Runnable {
 public:
  explicit Slow(std::atomic<size_t>& ran) : ran_(ran) {}
  void run_queued() override {
    const int64_t end_ns = monotonic_ns() + 5 * kNsPerMs;
    while (monotonic_ns() < end_ns) {
    }
    place_ = ran_++;
  }

  size_t place_ = SIZE_MAX;

 private:
  std::atomic<size_t>& ran_;
};

// Notes how many of them have run when it expires.
class CountingTimer final : public TimerNode {
 public:
  explicit CountingTimer(const std::atomic<size_t>& ran) : ran_now_(ran) {}
  void left_queue(bool, RunnableList&) override {
    ran_ = ran_now_;
    ended_.add();
  }

  size_t ran_ = SIZE_MAX;
  Tally ended_;

 private:
  const std::atomic<size_t>& ran_now_;
};

class PollerTest : public testing::Test {
 protected:
  explicit PollerTest(workflow::Clock& clock = workflow::system_clock())
      : poller_(clock, handlers_) {}
  void SetUp() override {
    ASSERT_TRUE(handlers_.start());
    ASSERT_TRUE(poller_.start());
  }
  void TearDown() override { stop(); }

  void stop() {
    if (!std::exchange(stopped_, true)) {
      timers_.stop();
      timers_.wait_until_ended();
      handlers_.stop();
      poller_.stop();
    }
  }

  // Runs the function on the poller's thread and waits for it.
  void on_poller(std::function<void()> function) {
    Tally ran;
    Posted item([&] {
      function();
      ran.add();
    });
    ASSERT_TRUE(poller_.post(&item));
    ASSERT_TRUE(ran.wait_for(1));
  }

  HandlerPool handlers_{1};
  Poller poller_;
  PollerTimers& timers_ = poller_.timers();
  Tally ended_;
  bool stopped_ = false;
};

class HandClockPollerTest : public PollerTest {
 protected:
  HandClockPollerTest() : PollerTest(clock_) {}
  void move_to(int64_t now_ns) {
    clock_.set(now_ns);
    poller_.ask_for_round();
  }

  static inline HandClock clock_;
};

class CountingIo final : public IoHandler {
 public:
  void on_events(uint32_t events, RunnableList&) override {
    last_events_ = events;
    events_.add();
  }
  void on_retired() override { retired_.add(); }

  Tally events_;
  Tally retired_;
  std::atomic<uint32_t> last_events_{0};
};

class ProbingIo final : public IoHandler {
 public:
  explicit ProbingIo(std::function<void()> probe) : probe_(std::move(probe)) {}
  void on_events(uint32_t, RunnableList&) override { probe_(); }
  void on_retired() override {}

 private:
  const std::function<void()> probe_;
};

void write_one(int fd) {
  const uint64_t one = 1;
  ASSERT_EQ(::write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

}  // namespace

TEST_F(PollerTest, TimerEndsOnceNotBeforeItsDeadline) {
  PolledTimer timer(ended_);
  const int64_t start_ns = monotonic_ns();
  EXPECT_EQ(timers_.start(&timer, 5 * kNsPerMs), Start::kQueued);
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_FALSE(timer.stopped());
  EXPECT_GE(timer.at_ns() - start_ns, 5 * kNsPerMs);
  stop();
  EXPECT_EQ(timer.runs(), 1);
}

TEST_F(PollerTest, AnEarlierTimerOvertakesALaterOne) {
  PolledTimer late(ended_);
  PolledTimer early(ended_);
  timers_.start(&late, 3600 * kNsPerSec);
  timers_.start(&early, kNsPerMs);
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(early.runs(), 1);
  EXPECT_EQ(late.runs(), 0);
  EXPECT_EQ(timers_.size(), 1u);
  stop();
  EXPECT_TRUE(late.stopped());
  EXPECT_EQ(late.runs(), 1);
}

TEST_F(PollerTest, CancelTakesTheTimerOut) {
  PolledTimer timer(ended_);
  timers_.start(&timer, kNever);
  EXPECT_EQ(timers_.size(), 1u);
  EXPECT_EQ(PollerTimers::cancel(&timer), Cancel::kTaken);
  EXPECT_EQ(timers_.size(), 0u);
  stop();
  EXPECT_EQ(timer.runs(), 0);
}

TEST_F(PollerTest, CancelBeforeStartIsMetByTheStart) {
  PolledTimer timer(ended_);
  EXPECT_EQ(PollerTimers::cancel(&timer), Cancel::kBeforeStart);
  EXPECT_EQ(timers_.start(&timer, 0), Start::kCancelled);
  EXPECT_EQ(timers_.size(), 0u);
}

TEST_F(PollerTest, CancelAfterExpiryIsTooLate) {
  PolledTimer timer(ended_);
  timers_.start(&timer, 0);
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(PollerTimers::cancel(&timer), Cancel::kTooLate);
}

TEST_F(PollerTest, CancelOrExpiryButNeverBoth) {
  int taken = 0;
  int too_late = 0;
  std::vector<std::unique_ptr<PolledTimer>> timers;
  for (int i = 0; i < 2000; i++) {
    timers.push_back(std::make_unique<PolledTimer>(ended_));
    ASSERT_EQ(timers_.start(timers.back().get(), i % 3 ? 1000 * (i % 50) : kNever), Start::kQueued);
    // The one that is due about now, most likely.
    const auto each = timers[timers.size() / 2].get();
    if (i % 2) {
      const Cancel result = PollerTimers::cancel(each);
      taken += result == Cancel::kTaken;
      too_late += result == Cancel::kTooLate;
    }
  }
  stop();
  int runs = 0;
  for (const auto& timer : timers) {
    ASSERT_LE(timer->runs(), 1);
    runs += timer->runs();
  }
  EXPECT_EQ(runs + taken, 2000);
  EXPECT_EQ(taken + too_late, 1000);
}

TEST_F(PollerTest, StopEndsEveryTimerAndRefusesNewOnes) {
  std::vector<std::unique_ptr<PolledTimer>> timers;
  for (int i = 0; i < 1000; i++) {
    timers.push_back(std::make_unique<PolledTimer>(ended_));
    timers_.start(timers.back().get(), i % 2 ? kNever : 3600 * kNsPerSec);
  }
  timers_.stop();
  timers_.wait_until_ended();
  EXPECT_EQ(timers_.size(), 0u);
  PolledTimer late(ended_);
  EXPECT_EQ(timers_.start(&late, 0), Start::kStopped);
  stop();
  for (const auto& timer : timers) {
    ASSERT_EQ(timer->runs(), 1);
    ASSERT_TRUE(timer->stopped());
  }
  EXPECT_EQ(late.runs(), 0);
}

TEST_F(PollerTest, CancelAfterStopIsTooLate) {
  PolledTimer timer(ended_);
  timers_.start(&timer, kNever);
  stop();
  EXPECT_EQ(PollerTimers::cancel(&timer), Cancel::kTooLate);
  EXPECT_EQ(timer.runs(), 1);
}

TEST_F(PollerTest, WhatIsDueAtItsStartIsNotQueuedAndCountsAsPopped) {
  for (const TimerDue due : {TimerDue::after(0), TimerDue::at(0), TimerDue::at(monotonic_ns())}) {
    DueNode node(due);
    EXPECT_EQ(timers_.start(&node, IfDue::kReport), Start::kDue);
    EXPECT_LE(node.deadline_ns(), monotonic_ns());
    EXPECT_EQ(timers_.size(), 0u);
    EXPECT_EQ(PollerTimers::move(&node, TimerDue::after(kNsPerSec)), Move::kTooLate);
    EXPECT_EQ(PollerTimers::remaining_ns(&node, workflow::system_clock()), -1);
    EXPECT_FALSE(PollerTimers::end_for_scope(&node));
    EXPECT_EQ(PollerTimers::cancel(&node), Cancel::kTooLate);
  }
}

TEST_F(PollerTest, OnlyWhatIsDueAtItsStartIsNotQueued) {
  for (const TimerDue due : {TimerDue::after(3600 * kNsPerSec), TimerDue::after(kNever),
                             TimerDue::at(monotonic_ns() + 3600 * kNsPerSec)}) {
    DueNode node(due);
    EXPECT_EQ(timers_.start(&node, IfDue::kReport), Start::kQueued);
    EXPECT_EQ(PollerTimers::cancel(&node), Cancel::kTaken);
  }
}

TEST_F(PollerTest, WhatIsDueAtItsStartMayBeRefused) {
  DueNode cancelled(TimerDue::after(0));
  EXPECT_EQ(PollerTimers::cancel(&cancelled), Cancel::kBeforeStart);
  EXPECT_EQ(timers_.start(&cancelled, IfDue::kReport), Start::kCancelled);
  DueNode in_scope(TimerDue::after(0));
  timers_.expect(&in_scope);
  EXPECT_FALSE(PollerTimers::end_for_scope(&in_scope));
  EXPECT_EQ(timers_.start(&in_scope, IfDue::kReport), Start::kScopeEnded);
  stop();
  DueNode late(TimerDue::after(0));
  EXPECT_EQ(timers_.start(&late, IfDue::kReport), Start::kStopped);
}

TEST_F(PollerTest, WhatRestartsAndIsDueIsEndedBeforeItsRestart) {
  DueNode node(TimerDue::after(0), true);
  EXPECT_EQ(timers_.start(&node, IfDue::kReport), Start::kDue);
  EXPECT_EQ(PollerTimers::restart(&node, 0, IfDue::kReport), Start::kDue);
  EXPECT_EQ(timers_.size(), 0u);
  EXPECT_EQ(PollerTimers::end(&node), Cancel::kBeforeRestart);
  EXPECT_EQ(PollerTimers::end(&node), Cancel::kTooLate);
  EXPECT_EQ(PollerTimers::restart(&node, 0, IfDue::kReport), Start::kCancelled);
}

TEST_F(PollerTest, ScheduledNodesMove) {
  PolledTimer timer(ended_);
  timers_.schedule(&timer, kNever);
  timers_.schedule(&timer, monotonic_ns() + 3600 * kNsPerSec);
  EXPECT_EQ(timers_.size(), 1u);
  timers_.schedule(&timer, monotonic_ns() + kNsPerMs);
  EXPECT_TRUE(ended_.wait_for(1));
  timers_.schedule(&timer, monotonic_ns());  // and come back
  EXPECT_TRUE(ended_.wait_for(2));
  timers_.schedule(&timer, kNever);
  timers_.unschedule(&timer);
  timers_.unschedule(&timer);
  EXPECT_EQ(timers_.size(), 0u);
  stop();
  timers_.schedule(&timer, 0);
  EXPECT_EQ(timer.runs(), 2);
}

TEST_F(PollerTest, PostRunsOnThePollersThreadInOrder) {
  std::vector<int> order;
  Tally ran;
  std::vector<std::unique_ptr<Posted>> items;
  for (int i = 0; i < 100; i++) {
    items.push_back(std::make_unique<Posted>([&, i] {
      EXPECT_EQ(ThreadContext::current().poller, &poller_);
      order.push_back(i);
      ran.add();
    }));
    EXPECT_TRUE(poller_.post(items.back().get()));
  }
  EXPECT_TRUE(ran.wait_for(100));
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST_F(PollerTest, PostAfterStopIsNotTaken) {
  stop();
  Posted item([] { ADD_FAILURE() << "ran though it was refused"; });
  EXPECT_FALSE(poller_.post(&item));
}

TEST_F(PollerTest, WhatWasPostedBeforeStopRuns) {
  std::atomic<int> runs{0};
  std::vector<std::unique_ptr<Posted>> items;
  for (int i = 0; i < 1000; i++) {
    items.push_back(std::make_unique<Posted>([&runs] { runs++; }));
    EXPECT_TRUE(poller_.post(items.back().get()));
  }
  stop();
  EXPECT_EQ(runs, 1000);
}

TEST_F(PollerTest, MuchThatWasPostedDelaysATimerByOneItem) {
  std::atomic<size_t> ran{0};
  std::atomic<bool> all_posted{false};
  CountingTimer timer(ran);
  Posted gate([&all_posted] {
    while (!all_posted) {
      std::this_thread::yield();
    }
  });
  ASSERT_TRUE(poller_.post(&gate));
  Posted starter([&] { timers_.start(&timer, 1); });
  ASSERT_TRUE(poller_.post(&starter));
  std::vector<std::unique_ptr<Slow>> items;
  for (int i = 0; i < 20; i++) {
    items.push_back(std::make_unique<Slow>(ran));
    ASSERT_TRUE(poller_.post(items.back().get()));
  }
  all_posted = true;
  ASSERT_TRUE(timer.ended_.wait_for(1));
  EXPECT_LE(timer.ran_, 2u);
  stop();
}

TEST_F(PollerTest, MuchThatWasPostedBeforeStopRunsInOrder) {
  std::atomic<size_t> ran{0};
  std::vector<std::unique_ptr<Slow>> items;
  for (int i = 0; i < 20; i++) {
    items.push_back(std::make_unique<Slow>(ran));
    ASSERT_TRUE(poller_.post(items.back().get()));
  }
  stop();
  for (size_t i = 0; i < items.size(); i++) {
    EXPECT_EQ(items[i]->place_, i);
  }
}

TEST_F(PollerTest, DescriptorEventsReachTheirHandler) {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  CountingIo io;
  ASSERT_EQ(poller_.add(fd.get(), EPOLLIN | EPOLLET, &io), 0);
  write_one(fd.get());
  EXPECT_TRUE(io.events_.wait_for(1));
  EXPECT_EQ(io.last_events_, static_cast<uint32_t>(EPOLLIN));
  write_one(fd.get());
  EXPECT_TRUE(io.events_.wait_for(2));
  EXPECT_EQ(io.retired_.count(), 0u);
  on_poller([&] { poller_.retire(fd.get(), &io); });
  EXPECT_TRUE(io.retired_.wait_for(1));
  const size_t seen = io.events_.count();
  write_one(fd.get());
  on_poller([] {});
  on_poller([] {});
  EXPECT_EQ(io.events_.count(), seen) << "an event after it was retired";
}

// So the thread that moves a manual clock waits for what that round has finished.
TEST_F(PollerTest, ARetiredDescriptorCountsUntilTheRoundIsOver) {
  const UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::atomic<bool> counted{false};
  ProbingIo* self = nullptr;
  ProbingIo io([&] {
    poller_.retire(fd.get(), self);
    counted = poller_.has_descriptors();
    ended_.add();
  });
  self = &io;
  ASSERT_EQ(poller_.add(fd.get(), EPOLLIN, &io), 0);
  write_one(fd.get());
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_TRUE(counted);
  EXPECT_TRUE(eventually([this] { return !poller_.has_descriptors(); }));
}

TEST_F(PollerTest, AddingABadDescriptorFails) {
  CountingIo io;
  EXPECT_EQ(poller_.add(-1, EPOLLIN, &io), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(PollerTest, AFloodOfTimersDoesNotStarveDescriptors) {
  const test_support::TimerFlood flood(poller_, 2000);
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  CountingIo io;
  ASSERT_EQ(poller_.add(fd.get(), EPOLLIN | EPOLLET, &io), 0);
  for (size_t i = 1; i <= 20; i++) {
    write_one(fd.get());
    ASSERT_TRUE(io.events_.wait_for(i));
  }
  on_poller([] {});
  stop();
}

TEST_F(HandClockPollerTest, TimersFollowTheClockTheyAreGiven) {
  clock_.set(1000);
  PolledTimer a(ended_);
  PolledTimer b(ended_);
  timers_.start(&a, 100);
  timers_.start(&b, 3600 * kNsPerSec);
  EXPECT_EQ(timers_.earliest_ns(), 1100);
  move_to(1099);
  on_poller([&] { EXPECT_FALSE(poller_.settled()); });  // before this round is over
  poller_.wait_for_round(poller_.ask_for_round());
  EXPECT_EQ(a.runs(), 0);
  EXPECT_TRUE(poller_.settled());
  move_to(1100);
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_EQ(a.runs(), 1);
  move_to(1000 + 3600 * kNsPerSec);
  EXPECT_TRUE(ended_.wait_for(2));
  EXPECT_EQ(timers_.earliest_ns(), kNever);
}

TEST_F(HandClockPollerTest, ATimerDueAlreadyNeedsNoMove) {
  clock_.set(5000);
  PolledTimer timer(ended_);
  timers_.start(&timer, 0);
  EXPECT_TRUE(ended_.wait_for(1));
}

TEST_F(HandClockPollerTest, WhatARoundLeavesToTheNextIsNotSettled) {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  Tally begun;
  Tally posted;
  Tally probed;
  Tally ran;
  ProbingIo between([&] {
    EXPECT_EQ(ran.count(), 0u);
    EXPECT_FALSE(poller_.settled());
    probed.add();
  });
  ASSERT_EQ(poller_.add(fd.get(), EPOLLIN | EPOLLET, &between), 0);
  Posted gate([&] {
    begun.add();
    EXPECT_TRUE(posted.wait_for(1));
  });
  Posted uses_up_the_round([&] {
    clock_.set(clock_.now_ns() + kNsPerSec);
    write_one(fd.get());
  });
  Posted left([&] { ran.add(); });
  ASSERT_TRUE(poller_.post(&gate));
  ASSERT_TRUE(begun.wait_for(1));
  ASSERT_TRUE(poller_.post(&uses_up_the_round));
  ASSERT_TRUE(poller_.post(&left));
  EXPECT_FALSE(poller_.settled());
  posted.add();
  EXPECT_TRUE(ran.wait_for(1));
  EXPECT_EQ(probed.count(), 1u);
  poller_.wait_for_round(poller_.ask_for_round());
  EXPECT_TRUE(poller_.settled());
}
