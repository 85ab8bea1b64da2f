#include "kernel/Channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "kernel/HandClock.h"
#include "kernel/HandlerPool.h"
#include "kernel/Poller.h"
#include "support/Tally.h"

using workflow::Channel;
using workflow::HandlerPool;
using workflow::MutexLock;
using workflow::Poller;
using workflow::PollerTimers;
using workflow::RunnableList;
using workflow::TimerNode;
using workflow::UniqueFd;

namespace {

// A connection that hears of its deadline, and of nothing else.
class Connection final : public Channel {
 public:
  explicit Connection(Poller& poller) : Channel(poller, UniqueFd()) {}

  bool set(int64_t deadline_ns) {
    MutexLock lock(mutex_);
    return set_deadline(deadline_ns);
  }

  test_support::Tally told_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> passed_{false};

 private:
  void on_ready(uint32_t, RunnableList&) override {}
  void on_deadline(bool stopped, RunnableList&) override {
    MutexLock lock(mutex_);
    stopped_ = stopped;
    passed_ = deadline_passed();
    told_.add();
  }
  void on_closing() override {}
  void end() override {}
};

// When its time comes, the poller refuses all timers, as at the beginning of a stop.
class Refusal final : public TimerNode {
 public:
  explicit Refusal(PollerTimers& timers) : timers_(timers) {}
  void left_queue(bool, RunnableList&) override { timers_.refuse(); }

 private:
  PollerTimers& timers_;
};

}  // namespace

// The deadline has moved later, and the earlier one leaves the queue just as the poller stops.
TEST(Channel, HearsAtOnceOfADeadlineThatCannotBeQueuedAgain) {
  HandClock clock;
  HandlerPool handlers(1);
  Poller poller(clock, handlers);
  PollerTimers& timers = poller.timers();
  ASSERT_TRUE(handlers.start());
  ASSERT_TRUE(poller.start());
  Refusal refusal(timers);
  Connection connection(poller);
  ASSERT_TRUE(timers.schedule(&refusal, 1999));
  ASSERT_TRUE(connection.set(2000));
  ASSERT_TRUE(connection.set(5000));
  clock.set(3000);  // both leave the queue in one hold of its lock
  poller.wait_for_round(poller.ask_for_round());
  EXPECT_EQ(connection.told_.count(), 1u);
  EXPECT_TRUE(connection.stopped_);
  EXPECT_TRUE(connection.passed_);
  timers.stop();
  timers.wait_until_ended();
  handlers.stop();
  poller.stop();
  EXPECT_EQ(connection.told_.count(), 1u);
}
