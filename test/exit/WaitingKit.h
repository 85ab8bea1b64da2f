#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "factory/CounterTask.h"
#include "factory/NamedMessageTask.h"
#include "support/ExitKit.h"
#include "support/Tally.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

// What the scenarios of tasks that wait for others have in common. Used by the child.

namespace exit_kit {

// How often each of the tasks that a scenario starts ended, and how. Thread-safe. Lives for ever.
class Ledger {
 public:
  struct Entry {
    const char* kind;
    std::atomic<int> ended{0};
    std::atomic<int> state{WFT_STATE_UNDEFINED};
  };

  // A new entry; the callback of its task.
  auto callback(const char* kind, std::function<void()> then = nullptr) {
    Entry& entry = add(kind);
    return [&entry, then = std::move(then)](auto* task) {
      end(entry, task->get_state());
      if (then) {
        then();
      }
    };
  }
  // For those whose callbacks see no state.
  auto stateless(const char* kind) {
    Entry& entry = add(kind);
    return [&entry](const auto*) { end(entry, WFT_STATE_SUCCESS); };
  }

  // Checks that each has ended exactly once, in `state` or in `other`. Says what is wrong, and a
  // summary.
  void say_all(int state, int other = WFT_STATE_UNDEFINED) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t good = 0;
    for (const Entry* entry : entries_) {
      if (entry->ended == 1 && (entry->state == state || entry->state == other)) {
        good++;
      } else {
        say(std::string(entry->kind) + " ended " + std::to_string(entry->ended) + " times, state " +
            std::to_string(entry->state));
      }
    }
    say(std::to_string(good) + " of " + std::to_string(entries_.size()) + " as expected");
  }

 private:
  Entry& add(const char* kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(new Entry{kind});
    return *entries_.back();
  }
  static void end(Entry& entry, int state) {
    entry.state = state;
    entry.ended++;
  }

  mutable std::mutex mutex_;
  std::vector<Entry*> entries_;
};

inline Ledger& ledger() {
  static Ledger& ledger = *new Ledger;
  return ledger;
}

// A task that a conditional drops: it tells that it was.
class Dropped final : public WFGenericTask {
 public:
  explicit Dropped(std::function<void(Dropped*)> callback) : callback_(std::move(callback)) {}

 protected:
  ~Dropped() override {
    if (!ran_) {
      state = WFT_STATE_ABORTED;
      callback_(this);
    }
  }
  SubTask* done() override {
    ran_ = true;
    callback_(this);
    return WFGenericTask::done();
  }

 private:
  const std::function<void(Dropped*)> callback_;
  bool ran_ = false;
};

inline SubTask* dropped(const char* kind, std::function<void()> then = nullptr) {
  return new Dropped(ledger().callback(kind, std::move(then)));
}

inline std::string names_left() {
  const bool none = workflow::NamedCounterTask::registry().empty() &&
                    workflow::NamedMailboxTask::registry().empty() &&
                    workflow::NamedConditional::registry().empty();
  return none ? "no name left" : "names left";
}

// Begins the exit, after which each task of the ledger must have ended once, in `state`, or perhaps
// in `other`.
inline void exit_with_all(int state, int other = WFT_STATE_UNDEFINED) {
  begin_exit([state, other] {
    ledger().say_all(state, other);
    say(names_left());
  });
}

inline WFResourcePool& empty_pool() {
  static WFResourcePool& pool = *new WFResourcePool(0);
  return pool;
}

inline WFMessageQueue& empty_queue() {
  static WFMessageQueue& queue = *new WFMessageQueue;
  return queue;
}

// One of each waiting kind, started.
inline void start_every_waiting_kind(std::function<void()> then = nullptr) {
  WFTaskFactory::create_counter_task(2, ledger().callback("counter", then))->start();
  WFTaskFactory::create_counter_task("name", 2, ledger().callback("named counter", then))->start();
  WFTaskFactory::create_mailbox_task(ledger().callback("mailbox", then))->start();
  WFTaskFactory::create_mailbox_task("name", ledger().callback("named mailbox", then))->start();
  WFTaskFactory::create_selector_task(2, ledger().callback("selector", then))->start();
  WFTaskFactory::create_conditional(dropped("conditional", then))->start();
  WFTaskFactory::create_conditional("name", dropped("named conditional", then))->start();
  WFTaskFactory::create_guard("held", dropped("waiting guard", then))->start();
  empty_pool().get(dropped("getter of a pool", then))->start();
  empty_queue().get(dropped("getter of a queue", then))->start();
}

inline void hold_the_guard() {
  test_support::Tally held;
  WFTaskFactory::create_guard(
      "held", WFTaskFactory::create_counter_task(0, [&held](WFCounterTask*) { held.add(); }))
      ->start();
  held.wait_for(1);
}

}  // namespace exit_kit
