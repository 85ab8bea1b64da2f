#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/Tally.h"
#include "workflow/WFTask.h"
#include "workflow/Workflow.h"

namespace probes {

// Long enough for what must not happen to show itself: nothing else tells that something will not
// happen.
inline constexpr std::chrono::milliseconds kQuiet{30};

// Messages are addresses of these.
inline int messages[8];

// Letters in the order in which things happened. Thread-safe.
class Log {
 public:
  void add(const std::string& letters) {
    std::lock_guard<std::mutex> lock(mutex_);
    text_ += letters;
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    text_.clear();
  }
  std::string text() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }
  // The letters in alphabetical order.
  std::string sorted() const {
    std::string letters = text();
    std::sort(letters.begin(), letters.end());
    return letters;
  }
  bool before(char earlier, char later) const {
    const std::string letters = text();
    return letters.find(earlier) < letters.find(later) && letters.find(later) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// A task that completes at once, writes its letters when its callback runs, then calls the
// function. Counts how many of its kind live.
class LogTask : public WFGenericTask {
 public:
  using Callback = std::function<void(LogTask*)>;

  explicit LogTask(Log* log, std::string letters = "", Callback callback = nullptr)
      : log_(log), letters_(std::move(letters)), callback_(std::move(callback)) {
    alive_++;
  }

  static int alive() { return alive_; }

 protected:
  ~LogTask() override { alive_--; }

  SubTask* done() override {
    log_->add(letters_);
    if (callback_) {
      callback_(this);
    }
    return WFGenericTask::done();
  }

 private:
  inline static std::atomic<int> alive_{0};
  Log* const log_;
  const std::string letters_;
  const Callback callback_;
};

// A task that ends when the test says so, on the thread that says so.
class HeldTask : public LogTask {
 public:
  using LogTask::LogTask;

  // Any thread, once; waits for the dispatch.
  void release() {
    dispatched_.wait_for(1);
    subtask_done();
  }
  bool wait_dispatched() { return dispatched_.wait_for(1); }

 protected:
  ~HeldTask() override = default;
  void dispatch() override { dispatched_.add(); }

 private:
  test_support::Tally dispatched_;
};

// A series that counts how many of its kind live.
class CountedSeries : public SeriesWork {
 public:
  CountedSeries(SubTask* first, series_callback_t function)
      : SeriesWork(first, std::move(function)) {
    alive_++;
  }
  void* get_specific(const char* key) override {
    return std::string(key) == "self" ? this : nullptr;
  }
  void cancel() override {
    cancels_++;
    SeriesWork::cancel();
  }
  int cancels() const { return cancels_; }
  static int alive() { return alive_; }

 protected:
  ~CountedSeries() override { alive_--; }

 private:
  inline static std::atomic<int> alive_{0};
  int cancels_ = 0;
};

// A callback of a series or parallel that counts.
inline auto counting(test_support::Tally& tally) {
  return [&tally](const auto*) { tally.add(); };
}

// Starts the series and waits until it has ended; its callback is replaced.
inline bool run(SeriesWork* series) {
  test_support::Tally ended;
  series->set_callback(counting(ended));
  series->start();
  return ended.wait_for(1);
}

inline bool run(SubTask* first) {
  return run(Workflow::create_series_work(first, nullptr));
}

// A series of one task that writes the letters.
inline SeriesWork* series_with(Log* log, const std::string& letters) {
  return Workflow::create_series_work(new LogTask(log, letters), nullptr);
}

// Waits until no LogTask and no CountedSeries lives: for tests whose end is told by a callback of
// a task, which dies a moment later. False when that takes too long.
inline bool all_gone() {
  const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
  while (LogTask::alive() > 0 || CountedSeries::alive() > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Whether the calling thread is one of the library's.
inline bool on_framework_thread() {
  return workflow::ThreadContext::current().on_framework_thread();
}

// Whether the calling thread is one of those that compute.
inline bool on_compute_thread() {
  return workflow::ThreadContext::current().pool == &workflow::Runtime::current().compute();
}

}  // namespace probes
