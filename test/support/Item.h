#pragma once

#include <functional>
#include <utility>

#include "workflow/detail/Runnable.h"

namespace test_support {

// Runs a function once and deletes itself.
class Item final : public workflow::Runnable {
 public:
  explicit Item(std::function<void()> function) : function_(std::move(function)) {}
  void run_queued() override {
    function_();
    delete this;
  }

 private:
  std::function<void()> function_;
};

}  // namespace test_support
