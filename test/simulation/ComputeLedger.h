#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

// A simulation, and what was promised to and seen of each go task made in it.
//
// close() stops the simulation and asserts of each task:
//   - dispatched, its callback ran exactly once; else neither function nor callback ran;
//   - the function began at most once, and began and returned before a callback that saw SUCCESS;
//   - SUCCESS: in time, if the start is known. ETIMEDOUT: only with a limit, exactly when it was
//     over (virtual time does not pass while anything can run). ABORTED: the function never began,
//     and something had been stopped. No other outcome;
//   - what the function had captured is freed, and not before it returned.
class ComputeLedger {
 public:
  static constexpr int64_t kNoLimit = -1;

  struct Record {
    int begun = 0;
    int returned = 0;
    int callbacks = 0;
    int state = WFT_STATE_UNDEFINED;
    int error = 0;
    int64_t limit_ns = kNoLimit;
    int64_t started_ns = -1;  // unknown when a series dispatches it
    int64_t returned_ns = -1;
    bool dispatched = true;
    std::weak_ptr<int> captured;
  };

  // Where a task runs: a queue of the library's, or an executor.
  struct Place {
    std::string name = "queue";
    ExecQueue* queue = nullptr;
    Executor* executor = nullptr;
  };

  explicit ComputeLedger(uint64_t seed, const WFSimulationOptions& options = {})
      : simulation_(seed, options) {}

  WFSimulation& simulation() { return simulation_; }

  // A task whose function takes `duration_ns` of virtual time, then does `then`.
  WFGoTask* create(const Place& place, int64_t limit_ns, int64_t duration_ns,
                   std::function<void()> then = nullptr) {
    Record& record = records_.emplace_back();
    record.limit_ns = limit_ns;
    auto token = std::make_shared<int>(7);
    record.captured = token;
    const auto function = [this, &record, duration_ns, then = std::move(then),
                           token = std::move(token)] {
      record.begun++;
      if (duration_ns > 0) simulation_.sleep_for(duration_ns);
      if (then) then();
      EXPECT_EQ(*token, 7);
      record.returned++;
      record.returned_ns = simulation_.now_ns();
    };
    WFGoTask* task = make(place, limit_ns, function);
    task->user_data = &record;
    task->set_callback([this, &record](WFGoTask* done) { saw(record, done); });
    return task;
  }

  static Record& record_of(const WFGoTask* task) { return *static_cast<Record*>(task->user_data); }

  void start(WFGoTask* task) {
    record_of(task).started_ns = simulation_.now_ns();
    task->start();
  }
  void create_and_start(const Place& place, int64_t limit_ns, int64_t duration_ns,
                        std::function<void()> then = nullptr) {
    start(create(place, limit_ns, duration_ns, std::move(then)));
  }
  void dismiss(WFGoTask* task) {
    Record& record = record_of(task);
    record.dispatched = false;
    task->dismiss();
    EXPECT_TRUE(record.captured.expired());
  }

  // From now on tasks may be aborted.
  void may_abort() { may_abort_ = true; }

  size_t ended(int state) const {
    size_t n = 0;
    for (const Record& record : records_)
      n += record.callbacks > 0 && record.state == state;
    return n;
  }
  std::deque<Record>& records() { return records_; }

  // Until nothing can happen any more.
  void run() {
    const WFSimulationResult result = simulation_.run();
    EXPECT_TRUE(result.ok()) << result.description;
  }

  void close() {
    may_abort();
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    for (size_t i = 0; i < records_.size(); i++)
      check(records_[i], i);
    workflow::Runtime& runtime = workflow::Runtime::current();
    for (size_t i = 0; i < runtime.poller_count(); i++)
      EXPECT_EQ(runtime.poller(i).timers().size(), 0u);
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;

  static WFGoTask* make(const Place& place, int64_t limit_ns, std::function<void()> function) {
    const time_t seconds = limit_ns / kSecond;
    const long nanoseconds = limit_ns % kSecond;
    if (place.executor) {
      return limit_ns == kNoLimit
                 ? WFTaskFactory::create_go_task(place.queue, place.executor, std::move(function))
                 : WFTaskFactory::create_timedgo_task(seconds, nanoseconds, place.queue,
                                                      place.executor, std::move(function));
    }
    return limit_ns == kNoLimit ? WFTaskFactory::create_go_task(place.name, std::move(function))
                                : WFTaskFactory::create_timedgo_task(
                                      seconds, nanoseconds, place.name, std::move(function));
  }

  void saw(Record& record, const WFGoTask* task) {
    record.callbacks++;
    record.state = task->get_state();
    record.error = task->get_error();
    const bool known = record.started_ns >= 0 && record.limit_ns != kNoLimit;
    switch (record.state) {
      case WFT_STATE_SUCCESS:
        EXPECT_EQ(record.error, 0);
        EXPECT_EQ(record.returned, 1);
        if (known && !may_abort_) {  // the stop ends limits
          EXPECT_LE(record.returned_ns, record.started_ns + record.limit_ns);
        }
        break;
      case WFT_STATE_SYS_ERROR:
        EXPECT_EQ(record.error, ETIMEDOUT);
        EXPECT_NE(record.limit_ns, kNoLimit);
        if (known) {
          EXPECT_EQ(simulation_.now_ns(), record.started_ns + record.limit_ns);
        }
        break;
      default:
        EXPECT_EQ(record.state, WFT_STATE_ABORTED);
        EXPECT_EQ(record.error, 0);
        EXPECT_TRUE(may_abort_);
    }
  }

  static void check(const Record& record, size_t i) {
    EXPECT_EQ(record.callbacks, record.dispatched ? 1 : 0) << "task " << i;
    EXPECT_LE(record.begun, record.dispatched ? 1 : 0) << "task " << i;
    EXPECT_EQ(record.begun, record.returned) << "task " << i;
    EXPECT_TRUE(record.captured.expired()) << "task " << i;
    if (record.state == WFT_STATE_SUCCESS) {
      EXPECT_EQ(record.begun, 1) << "task " << i;
    }
    if (record.state == WFT_STATE_ABORTED) {
      EXPECT_EQ(record.begun, 0) << "task " << i;
    }
  }

  WFSimulation simulation_;
  std::deque<Record> records_;
  bool may_abort_ = false;
};

// An executor of the user's in the ledger's simulation, with one queue.
class OwnThreads {
 public:
  explicit OwnThreads(size_t n) {
    EXPECT_EQ(queue_.init(), 0);
    EXPECT_EQ(executor_->init(n), 0);
  }
  ComputeLedger::Place place() { return {.queue = &queue_, .executor = executor_.get()}; }
  Executor& executor() { return *executor_; }
  void destroy() { executor_.reset(); }

 private:
  ExecQueue queue_;
  std::unique_ptr<Executor> executor_ = std::make_unique<Executor>();
};
