#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "support/Sanitizers.h"
#include "workflow/WFGenericTask.h"

namespace probes {

// How far apart, per thread, the stack was when callbacks ran. Thread-safe.
class StackSpread {
 public:
  void note() {
    // The frame, not the address of a local: sanitizers may put locals elsewhere.
    const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    std::lock_guard<std::mutex> lock(mutex_);
    Range& range = ranges_.try_emplace(std::this_thread::get_id(), Range{here, here}).first->second;
    range.low = std::min(range.low, here);
    range.high = std::max(range.high, here);
    notes_++;
  }
  size_t spread() const {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t widest = 0;
    for (const auto& [thread, range] : ranges_) {
      widest = std::max<size_t>(widest, range.high - range.low);
    }
    return widest;
  }
  int notes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return notes_;
  }

 private:
  struct Range {
    uintptr_t low;
    uintptr_t high;
  };
  mutable std::mutex mutex_;
  std::map<std::thread::id, Range> ranges_;
  int notes_ = 0;
};

// So many tasks in a row would overflow a stack if each took a frame of it. Frames are larger, and
// everything takes several times as long, under a sanitizer.
inline constexpr int kDeep = test_support::kSanitized ? 100'000 : 1'000'000;

// Some nested calls without optimisation and with a sanitizer, but no call per task.
inline constexpr size_t kSpread = 16 * 1024;

// The bound where tasks started alone nest in the callbacks that start them: up to a limit.
inline constexpr size_t kNestedSpread = 256 * 1024;

// A task that completes at once and notes the stack in its callback.
class NotingTask : public WFGenericTask {
 public:
  explicit NotingTask(StackSpread* stack, std::function<void(NotingTask*)> callback = nullptr)
      : stack_(stack), callback_(std::move(callback)) {}

 protected:
  SubTask* done() override {
    stack_->note();
    if (callback_) {
      callback_(this);
    }
    return WFGenericTask::done();
  }

 private:
  StackSpread* const stack_;
  const std::function<void(NotingTask*)> callback_;
};

}  // namespace probes
