#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "factory/CounterTask.h"
#include "factory/GuardTask.h"
#include "factory/NamedMessageTask.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

namespace race {

// Threads that create, start, send, count, signal, submit, release, post, dismiss and cancel at
// random over all kinds of waiting tasks, and then an account of every single one:
//
// 1. A started task ended exactly once, a dropped one never: a callback; of a conditional the run
//    of its task, or its drop.
// 2. It ended SUCCESS exactly if what it waited for was brought.
// 3. Calls by name returned as many as got something.
// 4. A selector has one winner, that of its message; all of them are freed.
// 5. Never two hold a guard or a resource; every resource is back.
// 6. Each message of the queue was taken once.
// 7. Nothing is left in the registries.
class WaitingRace final : public Round {
 public:
  struct Options {
    int threads = 4;
    int steps = 100;  // of each thread
  };

  WaitingRace(uint64_t number, workflow::Runtime* runtime, const Options& options)
      : Round(number, runtime),
        options_(options),
        capacity_(static_cast<size_t>(options.threads) * static_cast<size_t>(options.steps) * 4),
        table_(std::make_unique<Entry[]>(capacity_)) {
    for (int i = 0; i < options_.threads; i++) {
      start_thread([this, i] { run(static_cast<uint64_t>(i)); });
    }
  }

  std::string finish() override {
    join_threads();
    if (end_all()) {
      account();
    } else {
      require(false, "ends are missing: " + std::to_string(started_.load()) + " started, " +
                         std::to_string(ended_.count()) + " ended");
    }
    return problem();
  }

  // Also those that were dropped.
  size_t tasks() const override { return created(); }
  size_t outcomes(int state) const override {
    size_t n = 0;
    for (size_t i = 0; i < created(); i++) {
      n += table_[i].ends > 0 && table_[i].state == state;
    }
    return n;
  }

 private:
  enum Kind : size_t { kCounter, kMailbox, kSelector, kConditional, kGuard, kPool, kQueue, kKinds };
  static constexpr size_t kNames = 3;
  static constexpr size_t kResources = 2;
  static constexpr size_t kCandidates = 3;

  struct Entry {
    Kind kind = kCounter;
    size_t name = kNames;  // kNames: none
    bool dropped = false;
    bool may_be_cancelled = false;
    std::atomic<int> ends{0};
    int state = WFT_STATE_UNDEFINED;
    int error = 0;
    void* slot = nullptr;
    std::atomic<int> brought{0};  // sent to, or won by a submit
    std::atomic<void*> winner{nullptr};
  };
  using Random = test_support::TestRandom;

  // A task that a conditional runs or drops.
  class Inner final : public WFGenericTask {
   public:
    Inner(WaitingRace* race, Entry* entry) : race_(race), entry_(entry) {}

   protected:
    ~Inner() override {
      if (!ran_ && !entry_->dropped) {
        race_->ended(*entry_, WFT_STATE_ABORTED, 0);
      }
    }
    SubTask* done() override {
      ran_ = true;
      race_->enter();
      race_->hold(*entry_);
      race_->ended(*entry_, WFT_STATE_SUCCESS, 0);
      return WFGenericTask::done();
    }

   private:
    WaitingRace* const race_;
    Entry* const entry_;
    bool ran_ = false;
  };

  class Selector final : public WFSelectorTask {
   public:
    Selector(WaitingRace* race, selector_callback_t callback)
        : WFSelectorTask(kCandidates, std::move(callback)), race_(race) {
      race_->selectors_++;
    }

   protected:
    ~Selector() override { race_->selectors_--; }

   private:
    WaitingRace* const race_;
  };

  size_t created() const { return std::min(created_.load(), capacity_); }
  std::string name_of(size_t name) const { return "name " + std::to_string(name); }

  // The threads ------------------------------------------------------------------------------

  void run(uint64_t thread) {
    Random random(test_support::test_seed(), number() * 1000 + thread);
    for (int i = 0; i < options_.steps; i++) {
      step(random);
    }
  }

  void step(Random& random) {
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        bring(random);
        break;
      case 3:
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(30)));
        break;
      default:
        make(random);
    }
  }

  Entry* add(Kind kind, size_t name) {
    const size_t id = created_.fetch_add(1);
    if (id >= capacity_) return nullptr;
    table_[id].kind = kind;
    table_[id].name = name;
    return &table_[id];
  }

  void make(Random& random) {
    const Kind kind = static_cast<Kind>(random.below(kKinds));
    const bool named = kind == kGuard || (kind != kSelector && kind < kPool && random.one_in(2));
    Entry* entry = add(kind, named ? random.below(kNames) : kNames);
    if (!entry) return;
    switch (kind) {
      case kCounter:
        return make_counter(random, *entry);
      case kMailbox:
        return make_mailbox(random, *entry);
      case kSelector:
        return make_selector(random, *entry);
      case kConditional:
        return make_conditional(random, *entry);
      default:
        return make_holder(random, *entry);
    }
  }

  auto callback(Entry& entry) {
    return [this, &entry](auto* task) {
      enter();
      ended(entry, task->get_state(), task->get_error());
    };
  }

  void make_counter(Random& random, Entry& entry) {
    const auto target = static_cast<unsigned int>(1 + random.below(3));
    if (entry.name < kNames) {
      WFCounterTask* task =
          WFTaskFactory::create_counter_task(name_of(entry.name), target, callback(entry));
      start_or_drop(random, task, entry);
      return;
    }
    WFCounterTask* task = WFTaskFactory::create_counter_task(target, callback(entry));
    entry.brought = 1;
    // As often as it may be counted; some by others.
    for (unsigned int i = 0; i < target; i++) {
      if (random.one_in(2)) {
        task->count();
      } else {
        elsewhere(random, [task] { task->count(); });
      }
    }
    start(task);
  }

  void make_mailbox(Random& random, Entry& entry) {
    if (entry.name < kNames) {
      start_or_drop(
          random,
          WFTaskFactory::create_mailbox_task(name_of(entry.name), &entry.slot, callback(entry)),
          entry);
      return;
    }
    WFMailboxTask* task = WFTaskFactory::create_mailbox_task(&entry.slot, callback(entry));
    elsewhere(random, [this, task] { task->send(this); });
    start(task);
  }

  void make_conditional(Random& random, Entry& entry) {
    SubTask* inner = new Inner(this, &entry);
    if (entry.name < kNames) {
      start_or_drop(random,
                    WFTaskFactory::create_conditional(name_of(entry.name), inner, &entry.slot),
                    entry);
      return;
    }
    WFConditional* task = WFTaskFactory::create_conditional(inner, &entry.slot);
    elsewhere(random, [this, task] { task->signal(this); });
    start(task);
  }

  void make_selector(Random& random, Entry& entry) {
    WFSelectorTask* task = new Selector(this, [this, &entry](WFSelectorTask* finished) {
      enter();
      entry.slot = finished->get_message();
      ended(entry, finished->get_state(), finished->get_error());
    });
    for (size_t i = 0; i < kCandidates; i++) {
      void* message = random.one_in(3) ? nullptr : &resources_[i % kResources];
      elsewhere(random, [task, message, &entry] {
        if (task->submit(message)) {
          entry.brought++;
          entry.winner = message;
        }
      });
    }
    start_or_drop(random, task, entry);
  }

  // Makes a task that holds a guard, a resource or a message.
  void make_holder(Random& random, Entry& entry) {
    SubTask* inner = new Inner(this, &entry);
    WFConditional* task = nullptr;
    if (entry.kind == kGuard) {
      task = WFTaskFactory::create_guard(name_of(entry.name), inner);
    } else if (entry.kind == kPool) {
      task = pool_.get(inner, &entry.slot);
    } else {
      task = queue_.get(inner, &entry.slot);
    }
    if (random.one_in(4)) {
      // In a series that is cancelled at some time, but before its end.
      entry.may_be_cancelled = true;
      WFCounterTask* gate = WFTaskFactory::create_counter_task(1, nullptr);
      SeriesWork* series = Workflow::create_series_work(task, nullptr);
      ParallelWork* both = Workflow::create_parallel_work(&series, 1, nullptr);
      both->add_series(Workflow::create_series_work(gate, nullptr));
      started_++;
      both->start();
      // The branch lives as long as the other does: until the gate is counted, or aborted.
      if (!is_stopped_meanwhile()) {
        series->cancel();
      }
      gate->count();
    } else {
      start_or_drop(random, task, entry);
    }
    if (entry.kind == kQueue && !entry.dropped) {
      const size_t message = posted_.fetch_add(1);
      elsewhere(random, [this, message] { queue_.post(&table_[message]); });
    }
  }

  template <class Task>
  void start(Task* task) {
    started_++;
    task->start();
  }

  template <class Task>
  void start_or_drop(Random& random, Task* task, Entry& entry) {
    if (random.one_in(4)) {
      entry.dropped = true;
      task->dismiss();
    } else {
      start(task);
    }
  }

  // Now, or on another thread, soon.
  template <class Function>
  void elsewhere(Random& random, Function function) {
    if (random.one_in(3)) {
      function();
      return;
    }
    pending_++;
    const auto done = [this, function](auto*) {
      enter();
      function();
      done_.add();
    };
    if (random.one_in(2)) {
      WFTaskFactory::create_timer_task(static_cast<unsigned int>(random.below(20)), done)->start();
    } else {
      WFTaskFactory::create_counter_task(0, done)->start();
    }
  }

  void bring(Random& random) {
    const size_t name = random.below(kNames);
    const size_t max = random.one_in(2) ? SIZE_MAX : random.below(3);
    switch (random.below(3)) {
      case 0:
        reached_[name] += WFTaskFactory::count_by_name(
            name_of(name), static_cast<unsigned int>(1 + random.below(4)));
        break;
      case 1:
        sent_[name] += WFTaskFactory::send_by_name(name_of(name), this, max);
        break;
      default:
        signalled_[name] += WFTaskFactory::signal_by_name(name_of(name), this, max);
    }
  }

  // Ends -------------------------------------------------------------------------------------

  void ended(Entry& entry, int state, int error) {
    entry.state = state;
    entry.error = error;
    entry.ends++;
    ended_.add();
  }

  // The task of a conditional runs.
  void hold(Entry& entry) {
    if (entry.kind == kGuard) {
      std::atomic<int>& holders = guard_holders_[entry.name];
      doubles_ += holders++ != 0;
      std::this_thread::yield();
      holders--;
      Random random(test_support::test_seed(),
                    (number() << 32) + static_cast<size_t>(&entry - table_.get()));
      if (random.one_in(2)) {
        WFTaskFactory::release_guard(name_of(entry.name), nullptr);
      } else {
        WFTaskFactory::release_guard_safe(name_of(entry.name), nullptr);
      }
    } else if (entry.kind == kPool) {
      const size_t which = static_cast<size_t>(static_cast<int*>(entry.slot) - resources_);
      doubles_ += resource_holders_[which]++ != 0;
      std::this_thread::yield();
      resource_holders_[which]--;
      pool_.post(entry.slot);
    }
  }

  // The account ------------------------------------------------------------------------------

  // Until everything that was started has ended; false when that takes too long.
  bool end_all() {
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    while (done_.count() != pending_.load() || ended_.count() != started_.load()) {
      for (size_t name = 0; name < kNames; name++) {
        reached_[name] += WFTaskFactory::count_by_name(name_of(name), 1000);
        sent_[name] += WFTaskFactory::send_by_name(name_of(name), this);
        signalled_[name] += WFTaskFactory::signal_by_name(name_of(name), this);
      }
      ended_.wait_for(started_.load(), std::chrono::milliseconds(2));
      done_.wait_for(pending_.load(), std::chrono::milliseconds(2));
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    // Selectors are freed by the last to come, a moment after its submit.
    while (selectors_ != 0 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    // A guard passed through cancelled series is released a moment after their end.
    while (!workflow::GuardTask::registry().empty() && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    return true;
  }

  void account() {
    std::array<int, kNames> counters{}, mailboxes{}, conditionals{}, dropped_counters{};
    std::vector<int> taken(posted_);
    for (size_t id = 0; id < created(); id++) {
      const Entry& entry = table_[id];
      account_for(entry);
      const bool got = entry.slot != nullptr;
      if (entry.name < kNames) {
        counters[entry.name] += entry.kind == kCounter && entry.state == WFT_STATE_SUCCESS;
        dropped_counters[entry.name] += entry.kind == kCounter && entry.dropped;
        mailboxes[entry.name] += entry.kind == kMailbox && got;
        conditionals[entry.name] += entry.kind == kConditional && got;
      }
      if (entry.kind == kQueue && entry.state == WFT_STATE_SUCCESS) {
        taken[static_cast<size_t>(static_cast<Entry*>(entry.slot) - table_.get())]++;
      }
    }
    for (size_t name = 0; name < kNames; name++) {
      require(reached_[name] >= counters[name] &&
                  reached_[name] <= counters[name] + dropped_counters[name],
              "the counts of counters are not the outcomes");
      require(sent_[name] == mailboxes[name], "the counts of sends are not the messages");
      require(signalled_[name] == conditionals[name], "the counts of signals are not the messages");
    }
    for (const int times : taken) {
      require(times <= 1, "a message was taken twice");
    }
    require(doubles_ == 0, "two held the same");
    require(selectors_ == 0, "selectors are left");
    require(workflow::NamedCounterTask::registry().empty() &&
                workflow::NamedMailboxTask::registry().empty() &&
                workflow::NamedConditional::registry().empty() &&
                workflow::GuardTask::registry().empty(),
            "a name is left in a registry");
    if (!is_stopped_meanwhile()) {
      account_for_resources(taken);
    }
  }

  // Every resource is back, and the messages of cancelled getters are in the queue.
  void account_for_resources(const std::vector<int>& taken) {
    test_support::Tally got;
    void* resources[kResources] = {};
    for (void*& resource : resources) {
      pool_
          .get(WFTaskFactory::create_counter_task(0, [&got](WFCounterTask*) { got.add(); }),
               &resource)
          ->start();
    }
    require(got.wait_for(kResources), "a resource was lost");
    require(resources[0] != resources[1], "a resource was doubled");
    const auto left = static_cast<size_t>(std::count(taken.begin(), taken.end(), 0));
    std::vector<void*> messages(left);
    for (void*& message : messages) {
      queue_
          .get(WFTaskFactory::create_counter_task(0, [&got](WFCounterTask*) { got.add(); }),
               &message)
          ->start();
    }
    require(got.wait_for(kResources + left), "a message was lost");
    std::vector<int> all = taken;
    for (void* message : messages) {
      all[static_cast<size_t>(static_cast<Entry*>(message) - table_.get())]++;
    }
    require(std::count(all.begin(), all.end(), 1) == static_cast<ptrdiff_t>(all.size()),
            "a message was lost or doubled");
  }

  void account_for(const Entry& entry) {
    require(entry.ends == (entry.dropped ? 0 : 1), "not exactly one end", entry);
    if (entry.dropped) {
      require(entry.brought <= (entry.kind == kSelector ? 1 : 0), "two winners", entry);
      return;
    }
    const bool aborted = entry.state == WFT_STATE_ABORTED && entry.error == 0 &&
                         (is_stopped_meanwhile() || entry.may_be_cancelled);
    switch (entry.kind) {
      case kSelector:
        require(entry.brought == (entry.state == WFT_STATE_SUCCESS), "not one winner", entry);
        require(entry.slot == entry.winner, "not the winner's message", entry);
        require(entry.state != WFT_STATE_SYS_ERROR || entry.error == ENOMSG, "strange error",
                entry);
        return;
      case kMailbox:
      case kConditional:
        require((entry.slot != nullptr) == (entry.state == WFT_STATE_SUCCESS),
                "the outcome is not the message", entry);
        break;
      default:
        break;
    }
    require(entry.state == WFT_STATE_SUCCESS || aborted, "strange outcome", entry);
  }

  using Round::require;
  void require(bool holds, const char* what, const Entry& entry) {
    if (!holds) {
      require(false, std::string(what) + ": task " + std::to_string(&entry - table_.get()) +
                         ", kind " + std::to_string(entry.kind) + ", name " +
                         std::to_string(entry.name) + ", ends " + std::to_string(entry.ends) +
                         ", state " + std::to_string(entry.state) + ", error " +
                         std::to_string(entry.error) + ", brought " +
                         std::to_string(entry.brought));
    }
  }

  const Options options_;
  const size_t capacity_;
  const std::unique_ptr<Entry[]> table_;
  int resources_[kResources] = {};
  void* const resource_list_[kResources] = {&resources_[0], &resources_[1]};
  WFResourcePool pool_{resource_list_, kResources};
  WFMessageQueue queue_;
  std::atomic<size_t> created_{0};  // may pass capacity_
  std::atomic<size_t> started_{0};
  std::atomic<size_t> pending_{0};  // what is brought elsewhere
  std::atomic<size_t> posted_{0};
  std::atomic<int> selectors_{0};
  std::atomic<int> doubles_{0};
  std::array<std::atomic<int>, kNames> reached_{}, sent_{}, signalled_{}, guard_holders_{};
  std::array<std::atomic<int>, kResources> resource_holders_{};
  test_support::Tally ended_;
  test_support::Tally done_;
};

}  // namespace race
