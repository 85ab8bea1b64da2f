#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace test_support {

// How long a test waits for what must happen. This is far longer than it takes on any machine.
inline constexpr std::chrono::seconds kPatience{60};

// Counts what happens on other threads, and waits for it. Thread-safe.
class Tally {
 public:
  void add(size_t n = 1) {
    std::lock_guard<std::mutex> lock(mutex_);
    count_ += n;
    changed_.notify_all();
  }

  size_t count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

  // Waits until the count is at least `n`. Returns false if that takes too long.
  bool wait_for(size_t n, std::chrono::nanoseconds patience = kPatience) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, patience, [this, n] { return count_ >= n; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  size_t count_ = 0;
};

}  // namespace test_support
