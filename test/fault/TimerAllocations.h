#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <thread>

#include "support/MemoryFaults.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace fault {

constexpr long kAllThatFollow = 1'000'000'000;

// Records what becomes of one timer, without allocating memory for that. Outlives the timer.
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
      std::this_thread::sleep_for(
          std::chrono::milliseconds(1));  // its callback may be on the way out
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
  test_support::Tally first_;
  test_support::Tally calls_;
};

// Each allocation of each call about timers fails in its turn, alone or with all that follow: the
// call does all or nothing, and says which; nothing is left; what was started ends once.
class TimerAllocationTest : public testing::TestWithParam<long> {
 protected:
  void SetUp() override {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    WORKFLOW_library_init(&settings);
    Probe first;  // so that the library runs
    // One that enters the queue, which then has memory.
    WFTimer::create(std::chrono::milliseconds(1), first.callback())->start();
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
  void note(long how_many) {
    failed_ = how_many > 0;
    failures_ += how_many;
  }
  bool all_fail() const { return n_ == 1 && GetParam() == kAllThatFollow; }
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

// As many timers of one clock as their queue has room for before it needs memory again, less some.
class FullQueue {
 public:
  FullQueue(WFTimerClock clock, size_t less) {
    for (; started_ + less < kRoom; started_++) {
      WFTimer::create({std::chrono::hours(1), clock}, {"full"}, [this](WFTimerTask*) {
        ended_.add();
      })->start();
    }
  }
  ~FullQueue() {
    WFTaskFactory::cancel_by_name("full");
    EXPECT_TRUE(ended_.wait_for(started_));
  }

 private:
  static constexpr size_t kRoom = 2048 - 3;
  size_t started_ = 0;
  test_support::Tally ended_;
};

inline std::string name_of_failures(const testing::TestParamInfo<long>& more) {
  return more.param == 0 ? "One" : "AllThatFollow";
}

}  // namespace fault
