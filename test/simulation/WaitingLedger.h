#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "factory/CounterTask.h"
#include "factory/GuardTask.h"
#include "factory/NamedMessageTask.h"
#include "factory/TimerTask.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

// A simulation, and what was promised to and seen of each waiting task made in it.
//
// close() stops the simulation and asserts the protocol:
//   - each dispatched task ended exactly once, each other never: a callback, or for a conditional
//     the run of its task or, aborted or cancelled, its drop;
//   - it ended SUCCESS exactly if what it waited for was brought, else ABORTED;
//   - the counts that calls by name returned are the numbers of tasks that they ended;
//   - a selector has one winner, that of its message, and is freed when all have submitted;
//   - no name is left, no task lives.
class WaitingLedger {
 public:
  enum Kind { kCounter, kMailbox, kSelector, kConditional, kGuard, kGetter };

  struct Record {
    Kind kind = kCounter;
    bool named = false;
    bool dispatched = true;
    bool may_be_cancelled = false;
    int ended = 0;
    int state = WFT_STATE_UNDEFINED;
    int error = 0;
    void* slot = nullptr;  // of messages
    int won = 0;           // kSelector: how many submits returned 1
    void* winner = nullptr;
    bool held = false;  // kGuard: its task has run
  };

  explicit WaitingLedger(uint64_t seed, const WFSimulationOptions& options = {})
      : simulation_(seed, options) {}

  WFSimulation& simulation() { return simulation_; }
  std::deque<Record>& records() { return records_; }
  bool stopping() const { return stopping_; }

  // What is sent, submitted and posted.
  void* message(size_t i) { return &messages_[i]; }

  WFCounterTask* counter(const std::string& name, unsigned int target,
                         std::function<void()> then = nullptr) {
    Record& record = add(kCounter, name);
    const auto callback = [this, &record, then = std::move(then)](WFCounterTask* task) {
      saw(record, task);
      if (then) then();
    };
    return own(record, name.empty() ? WFTaskFactory::create_counter_task(target, callback)
                                    : WFTaskFactory::create_counter_task(name, target, callback));
  }
  int count(const std::string& name, unsigned int n) {
    return counted(kCounter, WFTaskFactory::count_by_name(name, n));
  }

  WFMailboxTask* mailbox(const std::string& name, std::function<void()> then = nullptr) {
    Record& record = add(kMailbox, name);
    const auto callback = [this, &record, then = std::move(then)](WFMailboxTask* task) {
      saw(record, task);
      if (then) then();
    };
    void** slot = &record.slot;
    return own(record, name.empty() ? WFTaskFactory::create_mailbox_task(slot, callback)
                                    : WFTaskFactory::create_mailbox_task(name, slot, callback));
  }
  int send(const std::string& name, size_t max = SIZE_MAX) {
    return counted(kMailbox, WFTaskFactory::send_by_name(name, message(0), max));
  }

  // Its submits go through submit().
  WFSelectorTask* selector(size_t candidates) {
    Record& record = add(kSelector, "");
    return own(record, new Selector(candidates, [this, &record](WFSelectorTask* task) {
                 record.slot = task->get_message();
                 saw(record, task);
               }));
  }
  void submit(WFSelectorTask* selector, Record& record, void* message) {
    if (const int won = selector->submit(message)) {
      EXPECT_EQ(won, 1);
      record.won++;
      record.winner = message;
    }
  }

  WFConditional* conditional(const std::string& name, std::function<void()> then = nullptr) {
    Record& record = add(kConditional, name);
    SubTask* task = inner(record, std::move(then));
    return own(record, name.empty() ? WFTaskFactory::create_conditional(task, &record.slot)
                                    : WFTaskFactory::create_conditional(name, task, &record.slot));
  }
  int signal(const std::string& name, size_t max = SIZE_MAX) {
    return counted(kConditional, WFTaskFactory::signal_by_name(name, message(0), max));
  }

  WFConditional* guard(const std::string& name, std::function<void()> then) {
    Record& record = add(kGuard, name);
    return own(record, WFTaskFactory::create_guard(name, inner(record, std::move(then))));
  }

  WFConditional* getter(workflow::ResourceSource& source, std::function<void()> then,
                        void** slot = nullptr) {
    Record& record = add(kGetter, "");
    return own(record, source.get(inner(record, std::move(then)), slot ? slot : &record.slot));
  }

  template <class Task>
  void dismiss(Task* task) {
    record_of(task).dispatched = false;
    task->dismiss();
  }

  // The record of a task that is not gone.
  template <class Task>
  Record& record_of(Task* task) {
    return *static_cast<Record*>(series_or_user(task));
  }

  size_t ended(int state) const {
    size_t n = 0;
    for (const Record& record : records_)
      n += record.ended > 0 && record.state == state;
    return n;
  }

  void run() {
    const WFSimulationResult result = simulation_.run();
    EXPECT_TRUE(result.ok()) << result.description;
  }

  void close() {
    stopping_ = true;
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    int delivered[kGetter + 1] = {};
    for (const Record& record : records_) {
      check(record);
      if (record.named) delivered[record.kind] += brought(record);
    }
    for (const Kind kind : {kMailbox, kConditional}) {
      EXPECT_EQ(counted_[kind] + direct_[kind], delivered[kind]) << "kind " << kind;
    }
    EXPECT_EQ(Inner::alive, 0);
    EXPECT_EQ(Selector::alive, 0);
    EXPECT_TRUE(workflow::NamedCounterTask::registry().empty());
    EXPECT_TRUE(workflow::NamedMailboxTask::registry().empty());
    EXPECT_TRUE(workflow::NamedConditional::registry().empty());
    EXPECT_TRUE(workflow::GuardTask::registry().empty());
    EXPECT_TRUE(workflow::NamedTimerTask::registry().empty());
  }

  // A message that went to a named task, and not by its name.
  void note_direct(Kind kind) { direct_[kind]++; }
  int counted(Kind kind) const { return counted_[kind]; }

 private:
  class Selector final : public WFSelectorTask {
   public:
    Selector(size_t candidates, selector_callback_t callback)
        : WFSelectorTask(candidates, std::move(callback)) {
      alive++;
    }
    static inline int alive = 0;

   protected:
    ~Selector() override { alive--; }
  };

  // The task of a conditional.
  class Inner final : public WFGenericTask {
   public:
    Inner(WaitingLedger* ledger, Record* record, std::function<void()> then)
        : ledger_(ledger), record_(record), then_(std::move(then)) {
      alive++;
    }
    static inline int alive = 0;

   protected:
    ~Inner() override {
      alive--;
      if (!ran_ && record_->dispatched) {
        record_->ended++;
        record_->state = WFT_STATE_ABORTED;
        EXPECT_TRUE(ledger_->stopping_ || record_->may_be_cancelled);
      }
    }
    SubTask* done() override {
      ran_ = true;
      record_->held = true;
      record_->ended++;
      record_->state = WFT_STATE_SUCCESS;
      if (then_) then_();
      return WFGenericTask::done();
    }

   private:
    WaitingLedger* const ledger_;
    Record* const record_;
    const std::function<void()> then_;
    bool ran_ = false;
  };

  Record& add(Kind kind, const std::string& name) {
    Record& record = records_.emplace_back();
    record.kind = kind;
    record.named = !name.empty();
    return record;
  }
  template <class Task>
  Task* own(Record& record, Task* task) {
    task->user_data = &record;
    return task;
  }
  template <class Task>
  static void* series_or_user(Task* task) {
    return task->user_data;
  }
  SubTask* inner(Record& record, std::function<void()> then) {
    return new Inner(this, &record, std::move(then));
  }
  int counted(Kind kind, int n) {
    EXPECT_GE(n, 0);
    counted_[kind] += n;
    return n;
  }

  void saw(Record& record, WFGenericTask* task) {
    record.ended++;
    record.state = task->get_state();
    record.error = task->get_error();
    EXPECT_TRUE(record.state != WFT_STATE_ABORTED || stopping_);
  }

  static bool brought(const Record& record) { return record.slot != nullptr; }

  void check(const Record& record) {
    const auto number = &record - &records_.front();
    EXPECT_EQ(record.ended, record.dispatched ? 1 : 0)
        << "task " << number << " of kind " << record.kind;
    if (record.kind == kSelector) {
      EXPECT_LE(record.won, 1);
      if (record.dispatched) {
        EXPECT_EQ(record.won, record.state == WFT_STATE_SUCCESS);
        EXPECT_EQ(record.winner, record.slot);
      }
    } else if (record.kind == kMailbox || record.kind == kConditional) {
      if (record.dispatched && !record.may_be_cancelled) {
        EXPECT_EQ(brought(record), record.state == WFT_STATE_SUCCESS)
            << "task " << number << " of kind " << record.kind;
      }
    }
  }

  WFSimulation simulation_;
  std::deque<Record> records_;
  int messages_[64] = {};
  int counted_[kGetter + 1] = {};
  int direct_[kGetter + 1] = {};
  bool stopping_ = false;
};

// One to three handlers.
inline WFSimulationOptions threads_of(uint64_t seed) {
  WFSimulationOptions options;
  options.handler_threads = 1 + static_cast<int>(seed % 3);
  return options;
}

// Stops at once, or when nothing can happen any more.
inline void end(WaitingLedger& ledger, uint64_t seed) {
  if (seed % 2) {
    ledger.run();
  }
  ledger.close();
}
