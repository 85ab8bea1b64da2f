#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>

#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

// Very many timers of one name cancelled by one call.

using test_support::Tally;
using workflow::kNsPerMs;
using workflow::monotonic_ns;
using workflow::NamedTimerTask;
using workflow::Runtime;

namespace {

// A sanitizer multiplies the memory of each timer. The first case shows that very many are no
// problem; the others differ in who cancels and what the callbacks do.
constexpr int kVeryMany = test_support::kSanitized ? 100'000 : 1'000'000;
constexpr int kMany = kVeryMany / 5;

class Flood {
 public:
  enum class Callbacks { kDoNothing, kRecreate };

  Flood(int timers, Callbacks callbacks) : timers_(timers), callbacks_(callbacks) {
    for (int i = 0; i < timers; i++) {
      start_one();
    }
  }

  // One call that cancels the original timers; what it returned is in cancelled().
  void cancel_here() { cancelled_ = WFTaskFactory::cancel_by_name("flood"); }
  void cancel_in_a_callback() {
    WFTaskFactory::create_timer_task(0, 0, [this](WFTimerTask*) {
      cancel_here();
      returned_.add();
    })->start();
    ASSERT_TRUE(returned_.wait_for(1));
  }

  // Every original timer ended ECANCELED, and so do those that their callbacks made.
  void expect_all_cancelled() {
    const auto timers = static_cast<size_t>(timers_);
    EXPECT_EQ(cancelled_, timers_);
    ASSERT_TRUE(wait_for_ended(timers_));
    EXPECT_EQ(ended_cancelled_, timers_);
    if (callbacks_ == Callbacks::kRecreate) {
      recreate_ = false;
      EXPECT_EQ(NamedTimerTask::registry().count("flood"), timers);
      EXPECT_EQ(WFTaskFactory::cancel_by_name("flood"), timers_);
      ASSERT_TRUE(wait_for_ended(2 * timers_));
      EXPECT_EQ(ended_cancelled_, 2 * timers_);
    }
    EXPECT_EQ(WFTaskFactory::cancel_by_name("flood"), 0);
    EXPECT_TRUE(NamedTimerTask::registry().empty());
  }

 private:
  void start_one() {
    WFTaskFactory::create_timer_task("flood", -1, 0, [this](WFTimerTask* task) {
      if (callbacks_ == Callbacks::kRecreate && recreate_) {
        start_one();
      }
      ended_cancelled_ +=
          task->get_state() == WFT_STATE_SYS_ERROR && task->get_error() == ECANCELED;
      ended_++;
    })->start();
  }

  // A lock taken in each of a million callbacks would be what is measured; so this polls.
  bool wait_for_ended(int n) const {
    const int64_t give_up_ns = monotonic_ns() + 100'000 * kNsPerMs;
    while (ended_ < n && monotonic_ns() < give_up_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return ended_ == n;
  }

  const int timers_;
  const Callbacks callbacks_;
  int cancelled_ = -1;
  Tally returned_;
  std::atomic<bool> recreate_{true};
  std::atomic<int> ended_cancelled_{0};
  std::atomic<int> ended_{0};
};

}  // namespace

TEST(NamedTimerFlood, MillionCancelledByOneCall) {
  Flood flood(kVeryMany, Flood::Callbacks::kDoNothing);
  flood.cancel_here();
  flood.expect_all_cancelled();
}

TEST(NamedTimerFlood, ManyCancelledByACallback) {
  Flood flood(kMany, Flood::Callbacks::kDoNothing);
  flood.cancel_in_a_callback();
  flood.expect_all_cancelled();
}

TEST(NamedTimerFlood, ManyThatRecreateTheirNameCancelledByOneCall) {
  Flood flood(kMany, Flood::Callbacks::kRecreate);
  flood.cancel_here();
  flood.expect_all_cancelled();
}

TEST(NamedTimerFlood, ManyThatRecreateTheirNameCancelledByACallback) {
  Flood flood(kMany, Flood::Callbacks::kRecreate);
  flood.cancel_in_a_callback();
  flood.expect_all_cancelled();
}

// With one handler, which is the canceller itself or is busy with what was cancelled, nothing may
// wait for room in any queue.
TEST(NamedTimerFlood, OneHandlerCancelsItself) {
  Runtime::configure({.handler_threads = 1});
  for (const int timers : {20'000, 100'000}) {
    for (const auto callbacks : {Flood::Callbacks::kDoNothing, Flood::Callbacks::kRecreate}) {
      Flood flood(timers, callbacks);
      flood.cancel_in_a_callback();
      flood.expect_all_cancelled();
    }
  }
}

TEST(NamedTimerFlood, OneHandlerIsCancelledFor) {
  Runtime::configure({.handler_threads = 1});
  for (const int timers : {20'000, 100'000}) {
    for (const auto callbacks : {Flood::Callbacks::kDoNothing, Flood::Callbacks::kRecreate}) {
      Flood flood(timers, callbacks);
      flood.cancel_here();
      flood.expect_all_cancelled();
    }
  }
}

// What other names could do while a flood was cancelled.
struct Meanwhile {
  int64_t operations = 0;
  int64_t longest_ns = 0;

  // Here for what is plainly wrong: a machine with other work takes the processor away for longer
  // than the library's own bound.
  bool got_on() const { return operations > 100 && longest_ns < 500 * kNsPerMs; }
};

// Which names share the lock with "flood" is not known, so that many are tried.
Meanwhile use_other_names() {
  Flood flood(kMany, Flood::Callbacks::kDoNothing);
  std::atomic<bool> done{false};
  std::thread canceller([&] {
    flood.cancel_here();
    done = true;
  });
  Meanwhile all;
  while (!done) {
    const std::string name = "other " + std::to_string(all.operations++ % 1024);
    const int64_t begin_ns = monotonic_ns();
    WFTaskFactory::create_timer_task(name, -1, 0, nullptr)->dismiss();
    all.longest_ns = std::max(all.longest_ns, monotonic_ns() - begin_ns);
  }
  canceller.join();
  std::printf("%lld operations meanwhile, the longest took %lld us\n",
              static_cast<long long>(all.operations),
              static_cast<long long>(all.longest_ns / 1000));
  flood.expect_all_cancelled();
  return all;
}

// Others must get on while it goes on.
TEST(NamedTimerFlood, OtherNamesDoNotWaitForIt) {
  int floods = 1;
  while (!use_other_names().got_on()) {
    ASSERT_LT(floods++, 20);
  }
}
