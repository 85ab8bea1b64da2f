#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "store/StoreBackend.h"
#include "store/StoreOpener.h"
#include "support/Tally.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// What tests of durable timers have in common.

namespace store_test {

// Waits until the handlers of a store have ended, since they use what the test owns, and closes it.
struct CloseAndDelete {
  void operator()(WFTimerStore* store) const {
    EXPECT_TRUE(store->close(test_support::kPatience) || errno == EDEADLK);
    delete store;
  }
};
using StorePtr = std::unique_ptr<WFTimerStore, CloseAndDelete>;

// A store in memory that no other test has.
inline std::string fresh_url() {
  static std::atomic<int> number{0};
  return "memory:test " + std::to_string(++number);
}

inline StorePtr open_store(const std::string& url, const WFStoreOptions& options = {}) {
  std::string message;
  StorePtr store(WFTimerStore::open(url, options, &message));
  EXPECT_TRUE(store) << message;
  return store;
}
inline StorePtr open_store(const WFStoreOptions& options = {}) {
  return open_store(fresh_url(), options);
}

// Opens a store in memory whose backend `wrap` may put another one around.
using Wrap = std::function<std::unique_ptr<workflow::StoreBackend>(
    std::unique_ptr<workflow::StoreBackend>, const workflow::StoreBackendOptions&)>;

inline StorePtr open_wrapped(const std::string& url, const WFStoreOptions& options,
                             const Wrap& wrap) {
  workflow::StoreFailure failure;
  const std::string place = url.substr(url.find(':') + 1);
  const auto make = [&](const workflow::StoreBackendOptions& backend_options,
                        workflow::StoreFailure* why) {
    return wrap(workflow::open_memory_backend(place, backend_options, &why->error, &why->message),
                backend_options);
  };
  StorePtr store(workflow::StoreOpener::open(options, make, &failure));
  EXPECT_TRUE(store) << failure.message;
  return store;
}

// One run as its handler saw it.
struct SeenRun {
  std::string name;
  std::string kind;
  std::string payload;
  uint64_t timer = 0;
  std::chrono::system_clock::time_point due;
  std::chrono::system_clock::time_point began;  // by the clock of the store
  unsigned attempt = 0;
  std::chrono::microseconds lateness{};
  uint64_t fence = 0;
};

// The runs of a store, in the order in which they began. Thread-safe.
class SeenRuns {
 public:
  // A handler that notes the run and then calls `then`, if there is one.
  WFTimerStore::Handler handler(const WFTimerStore& store,
                                std::function<void(WFStoredTimer*)> then = nullptr) {
    return [this, &store, then = std::move(then)](WFStoredTimer* timer) {
      add(store, timer);
      if (then) {
        then(timer);
      }
      handled_.add();
    };
  }

  // Waits until so many handlers have returned.
  bool wait_for(size_t n) const { return handled_.wait_for(n); }

  size_t count() const {
    const std::lock_guard lock(mutex_);
    return runs_.size();
  }
  std::vector<SeenRun> all() const {
    const std::lock_guard lock(mutex_);
    return runs_;
  }
  SeenRun at(size_t i) const { return all().at(i); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const SeenRun& run : all()) {
      names.push_back(run.name);
    }
    return names;
  }

 private:
  void add(const WFTimerStore& store, WFStoredTimer* timer) {
    const auto now = store.now();
    const std::lock_guard lock(mutex_);
    runs_.push_back({timer->name(), timer->kind(), timer->payload(), timer->timer(), timer->due(),
                     now, timer->attempt(), timer->lateness(), timer->fence()});
  }

  mutable std::mutex mutex_;
  std::vector<SeenRun> runs_;
  test_support::Tally handled_;
};

// A task that waits until it is opened, for the series of runs that have to last. Thread-safe.
class Gate {
 public:
  SubTask* wait() {
    const std::lock_guard lock(mutex_);
    WFCounterTask* const counter = WFTaskFactory::create_counter_task(
        1, [this](WFCounterTask* task) { note(task->get_error()); });
    if (open_) {
      counter->count();
    } else {
      waiting_.push_back(counter);
    }
    return counter;
  }
  // Ends all that wait now and later.
  void open() {
    std::vector<WFCounterTask*> waiting;
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      waiting.swap(waiting_);
    }
    for (WFCounterTask* const counter : waiting) {
      counter->count();
    }
  }
  // How those that have ended did: 0, or the errno value of their scope.
  std::vector<int> errors() const {
    const std::lock_guard lock(mutex_);
    return errors_;
  }
  bool wait_for_ended(size_t n) const { return ended_.wait_for(n); }

  // A handler that notes the run, which then waits.
  WFTimerStore::Handler handler(SeenRuns& runs, const WFTimerStore& store) {
    return runs.handler(store,
                        [this](WFStoredTimer* timer) { series_of(timer)->push_back(wait()); });
  }

 private:
  void note(int error) {
    {
      const std::lock_guard lock(mutex_);
      errors_.push_back(error);
    }
    ended_.add();
  }

  mutable std::mutex mutex_;
  std::vector<WFCounterTask*> waiting_;
  std::vector<int> errors_;
  bool open_ = false;
  test_support::Tally ended_;
};

}  // namespace store_test
