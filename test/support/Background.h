#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "support/Tally.h"

namespace test_support {

// A thread that reports when its function has returned. Joins it when destroyed.
class Background {
 public:
  explicit Background(std::function<void()> function)
      : thread_([this, function = std::move(function)] {
          function();
          done_.add();
        }) {}
  ~Background() { thread_.join(); }

  bool done_within(std::chrono::milliseconds time) const { return done_.wait_for(1, time); }
  bool done() const { return done_.wait_for(1); }

 private:
  Tally done_;
  std::thread thread_;
};

}  // namespace test_support
