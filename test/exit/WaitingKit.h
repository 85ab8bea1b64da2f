#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "factory/CounterTask.h"
#include "factory/NamedMessageTask.h"
#include "support/ChildProcess.h"
#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

// For tests of what happens when a process ends while tasks wait for others. Each runs its program
// again as a child, which plays the scenario named in the environment and ends; what it sees on the
// way out it writes to stdout, which is the test's pipe.

namespace exit_kit {

inline constexpr const char* kScenarioVariable = "WORKFLOW_EXIT_SCENARIO";

// The child's side ------------------------------------------------------------------------------

inline void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

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

// Runs what a scenario left for it when the library has stopped: it is constructed before the
// library is used, so that it is destroyed after it.
class LastWord {
 public:
  ~LastWord() {
    if (word) {
      word();
    }
  }
  std::function<void()> word;
};

inline LastWord last_word;

inline std::string names_left() {
  const bool none = workflow::NamedCounterTask::registry().empty() &&
                    workflow::NamedMailboxTask::registry().empty() &&
                    workflow::NamedConditional::registry().empty();
  return none ? "no name left" : "names left";
}

// What all scenarios say in the end: each task of the ledger ended once, in `state`, or perhaps in
// `other`.
inline void say_at_the_end(int state, int other = WFT_STATE_UNDEFINED) {
  const int64_t end_of_main_ns = workflow::monotonic_ns();
  last_word.word = [end_of_main_ns, state, other] {
    const int64_t took_ns = workflow::monotonic_ns() - end_of_main_ns;
    ledger().say_all(state, other);
    say(names_left());
    say("took_us=" + std::to_string(took_ns / workflow::kNsPerUs));
  };
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

struct Scenario {
  const char* name;
  void (*play)();
};

inline std::string_view scenario_name() {
  const char* name = std::getenv(kScenarioVariable);
  return name ? name : "";
}

// The test's side -------------------------------------------------------------------------------

inline std::string play(const char* scenario) {
  const test_support::ChildResult result = test_support::run_self(
      {std::string(kScenarioVariable) + "=" + scenario}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

// What it says but for how long it took, which is checked.
inline std::string play_promptly(const char* scenario) {
  std::string output = play(scenario);
  const size_t at = output.find("took_us=");
  if (at == std::string::npos) {
    ADD_FAILURE() << output;
    return output;
  }
  const int64_t took_us = std::stoll(output.substr(at + 8));
  std::printf("exit took %lld us\n", static_cast<long long>(took_us));
  EXPECT_LT(took_us, test_support::kSanitized ? 20'000'000 : 2'000'000);
  return output.substr(0, at);
}

// The main of both sides.
template <size_t N>
int run(const Scenario (&scenarios)[N], int argc, char** argv) {
  for (const Scenario& scenario : scenarios) {
    if (scenario_name() == scenario.name) {
      scenario.play();
      return 0;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace exit_kit
