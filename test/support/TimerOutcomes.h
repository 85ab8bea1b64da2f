#pragma once

#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

namespace test_support {

// Records how timers ended, in the order of their callbacks. Thread-safe. Must outlive the timers.
class TimerOutcomes {
 public:
  struct Outcome {
    int tag;
    int state;
    int error;
    int64_t at_ns;
    std::thread::id thread;
  };

  // Returns the callback for a timer that the test calls `tag`.
  timer_callback_t callback(int tag = 0) {
    return [this, tag](WFTimerTask* task) { add(tag, task); };
  }

  void add(int tag, const WFTimerTask* task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outcomes_.push_back({tag, task->get_state(), task->get_error(), workflow::monotonic_ns(),
                           std::this_thread::get_id()});
    }
    tally_.add();
  }

  bool wait_for(size_t n) const { return tally_.wait_for(n); }
  bool wait_for(size_t n, std::chrono::nanoseconds patience) const {
    return tally_.wait_for(n, patience);
  }

  std::vector<Outcome> all() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return outcomes_;
  }
  size_t size() const { return all().size(); }

  size_t count(int state, int error) const {
    size_t n = 0;
    for (const Outcome& outcome : all()) {
      n += outcome.state == state && outcome.error == error;
    }
    return n;
  }

  std::vector<int> tags() const {
    std::vector<int> result;
    for (const Outcome& outcome : all()) {
      result.push_back(outcome.tag);
    }
    return result;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Outcome> outcomes_;
  Tally tally_;
};

}  // namespace test_support
