// Deadlines of a few microseconds over tasks of all kinds, while other threads bring what these
// wait for, cancel them and hold what they want. Then an account of every task.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::microseconds;
using test_support::Tally;
using test_support::TestRandom;

constexpr int kMaxFlowUs = 200;

// What became of the tasks of one round. Outlives them.
struct FlowAccount {
  std::atomic<long> alive{0};
  std::atomic<long> called_twice{0};
  std::atomic<long> never_called{0};  // that had to be
  std::atomic<size_t> in_time{0};
  std::atomic<size_t> too_late{0};
  std::atomic<long> canceled{0};
  std::atomic<long> strange{0};
  std::atomic<long> cancels_won{0};
  std::array<std::atomic<bool>, 2> held{};
};

// One task's entry: what its callback has captured.
class FlowEntry {
 public:
  FlowEntry(FlowAccount& account, bool may_be_dropped)
      : account_(account), may_be_dropped_(may_be_dropped) {
    account_.alive++;
  }
  ~FlowEntry() {
    account_.called_twice += calls_ > 1;
    account_.never_called += calls_ == 0 && !may_be_dropped_;
    account_.alive--;
  }
  FlowEntry(const FlowEntry&) = delete;
  FlowEntry& operator=(const FlowEntry&) = delete;

  template <class Task>
  void ended(const Task* task) {
    calls_++;
    const bool failed = task->get_state() == WFT_STATE_SYS_ERROR;
    if (task->get_state() == WFT_STATE_SUCCESS) {
      account_.in_time++;
    } else if (failed && task->get_error() == ETIMEDOUT) {
      account_.too_late++;
    } else if (failed && task->get_error() == ECANCELED) {
      account_.canceled++;
    } else {
      account_.strange++;
    }
  }

  void* resource = nullptr;

 private:
  FlowAccount& account_;
  const bool may_be_dropped_;
  std::atomic<int> calls_{0};
};

class DeadlineRound final : public race::Round {
 public:
  // Adds to `canceled` how many tasks were.
  DeadlineRound(uint64_t number, workflow::Runtime* runtime, long& canceled)
      : Round(number, runtime), random_(test_support::test_seed(), number), canceled_(canceled) {
    std::vector<WFDeadlineTask*> tasks;
    for (size_t i = 0; i < kFlows; i++) {
      tasks.push_back(flow());
    }
    for (const auto& errands : errands_) {
      start_thread([&errands] {
        for (const auto& errand : errands) {
          errand();
        }
      });
    }
    for (WFDeadlineTask* task : tasks) {
      task->start();
    }
  }

  std::string finish() override {
    join_threads();
    if (!ended_.wait_for(kFlows)) return "callbacks are missing: " + std::to_string(ended_.count());
    // What the last callbacks have captured goes just after them.
    for (int i = 0; i < 10'000 && account_.alive > 0; i++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(account_.alive, 0);
    EXPECT_EQ(account_.called_twice, 0);
    EXPECT_EQ(account_.never_called, 0);
    EXPECT_EQ(account_.strange, 0);
    EXPECT_EQ(account_.canceled, account_.cancels_won);
    canceled_ += account_.canceled;
    EXPECT_EQ(WFTimer::count("timer"), 0u);
    for (const char* name : {"0", "1"}) {
      EXPECT_EQ(WFTaskFactory::release_guard(name, nullptr), 0) << "a guard is in the line";
    }
    std::array<void*, 2> slots{};
    Tally got;
    for (void*& slot : slots) {
      SubTask* const task =
          WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) { got.add(); });
      pool_.get(task, &slot)->start();
    }
    EXPECT_TRUE(got.wait_for(2)) << "a resource is lost";
    EXPECT_NE(slots[0], slots[1]);
    return "";
  }

  // Counts only the failed tasks that were too late.
  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? account_.in_time.load()
           : state == WFT_STATE_SYS_ERROR ? account_.too_late.load()
                                          : size_t{0};
  }

 private:
  static constexpr size_t kFlows = 30;

  using EntryPtr = std::shared_ptr<FlowEntry>;

  microseconds some_time() { return microseconds(random_.below(kMaxFlowUs)); }
  void later(std::function<void()> errand) {
    errands_[random_.below(errands_.size())].push_back(std::move(errand));
  }
  template <class Task>
  static auto noting(EntryPtr entry) {
    return [entry = std::move(entry)](Task* task) { entry->ended(task); };
  }

  WFDeadlineTask* flow() {
    const bool begins_with_conditional = random_.one_in(8);
    const bool drops = begins_with_conditional || random_.one_in(3);
    SeriesWork* const series = Workflow::create_series_work(
        begins_with_conditional ? conditional(std::make_shared<FlowEntry>(account_, true))
                                : step(drops),
        nullptr);
    for (uint64_t more = random_.below(4); more > 0; more--) {
      series->push_back(step(drops));
    }
    const auto entry = std::make_shared<FlowEntry>(account_, false);
    WFDeadlineTask* const task = with_deadline(series, some_time());
    task->set_callback([this, entry](WFDeadlineTask* ended) {
      entry->ended(ended);
      ended_.add();
    });
    return task;
  }

  // `drops`: the flow may have conditionals, which take what follows with them; so nobody may know
  // an address of what may follow, nor be told that he has cancelled it.
  SubTask* step(bool drops) {
    if (random_.one_in(6)) return nested(drops);
    const auto entry = std::make_shared<FlowEntry>(account_, drops);
    switch (random_.below(6)) {
      case 0:
        return WFTimer::create(some_time(), noting<WFTimerTask>(entry));
      case 1:
        return selector(entry);
      case 2:
        return named_counter(entry);
      case 3:
        return named_mailbox(entry);
      case 4:
        return computation(entry);
      default:
        return drops ? dropping(entry) : known(entry);
    }
  }

  SubTask* known(const EntryPtr& entry) {
    switch (random_.below(3)) {
      case 0:
        return counter(entry);
      case 1:
        return mailbox(entry);
      default:
        return cancelled_timer(entry);
    }
  }

  SubTask* dropping(const EntryPtr& entry) {
    switch (random_.below(3)) {
      case 0:
        return named_conditional(entry);
      case 1:
        return guard(entry);
      default:
        return pool_.get(returning(entry), &entry->resource);
    }
  }

  SubTask* computation(const EntryPtr& entry) {
    WFGoTask* task = nullptr;
    if (random_.one_in(2)) {
      task = WFTaskFactory::create_go_task("go", [] {});
    } else {
      // Half of the limits are longer than any deadline here.
      const long ns = static_cast<long>(random_.below(2 * kMaxFlowUs)) * 1000;
      task = WFTaskFactory::create_timedgo_task(0, ns, "go", [] {});
    }
    task->set_callback(noting<WFGoTask>(entry));
    return task;
  }

  SubTask* nested(bool drops) {
    SubTask* const inside = step(drops);
    switch (random_.below(3)) {
      case 0: {
        const auto entry = std::make_shared<FlowEntry>(account_, drops);
        return with_deadline(inside, some_time(), noting<WFDeadlineTask>(entry));
      }
      case 1:
        return WFTaskFactory::create_module_task(inside, nullptr);
      default: {
        ParallelWork* const parallel = Workflow::create_parallel_work(nullptr);
        parallel->add_series(Workflow::create_series_work(inside, nullptr));
        parallel->add_series(Workflow::create_series_work(step(drops), nullptr));
        return parallel;
      }
    }
  }

  SubTask* cancelled_timer(const EntryPtr& entry) {
    if (random_.one_in(2)) {
      later([this] { account_.cancels_won += WFTaskFactory::cancel_by_name("timer", 1); });
      return WFTimer::create(some_time(), {"timer"}, noting<WFTimerTask>(entry));
    }
    WFTimerTask* const task = WFTimer::create(some_time(), noting<WFTimerTask>(entry));
    const WFTimerHandle handle = WFTimer::handle_of(task);
    later([this, handle] { account_.cancels_won += handle.cancel() == WFTimerCancel::kWon; });
    return task;
  }

  SubTask* counter(const EntryPtr& entry) {
    WFCounterTask* const task = WFTaskFactory::create_counter_task(2, noting<WFCounterTask>(entry));
    later([task] { task->count(); });
    later([task] { task->count(); });
    return task;
  }

  SubTask* named_counter(const EntryPtr& entry) {
    const std::string name = std::to_string(next_name_++);
    later([name] { WFTaskFactory::count_by_name(name, 1); });
    return WFTaskFactory::create_counter_task(name, 1, noting<WFCounterTask>(entry));
  }

  SubTask* mailbox(const EntryPtr& entry) {
    WFMailboxTask* const task = WFTaskFactory::create_mailbox_task(noting<WFMailboxTask>(entry));
    later([task] { task->send(task); });
    return task;
  }

  SubTask* named_mailbox(const EntryPtr& entry) {
    const std::string name = std::to_string(next_name_++);
    later([this, name] { WFTaskFactory::send_by_name(name, this, 1); });
    return WFTaskFactory::create_mailbox_task(name, noting<WFMailboxTask>(entry));
  }

  SubTask* selector(const EntryPtr& entry) {
    WFSelectorTask* const task =
        WFTaskFactory::create_selector_task(2, noting<WFSelectorTask>(entry));
    later([task] { task->submit(nullptr); });
    later([task] { task->submit(task); });
    return task;
  }

  SubTask* conditional(const EntryPtr& entry) {
    WFConditional* const task =
        WFTaskFactory::create_conditional(WFTimer::create(some_time(), noting<WFTimerTask>(entry)));
    later([task] { task->signal(nullptr); });
    return task;
  }

  SubTask* named_conditional(const EntryPtr& entry) {
    const std::string name = std::to_string(next_name_++);
    later([name] { WFTaskFactory::signal_by_name(name, nullptr); });
    return WFTaskFactory::create_conditional(
        name, WFTimer::create(some_time(), noting<WFTimerTask>(entry)));
  }

  SubTask* guard(const EntryPtr& entry) {
    const size_t index = random_.below(2);
    const std::string name = std::to_string(index);
    return WFTaskFactory::create_guard(
        name, WFTimer::create(microseconds(5), [this, entry, index, name](WFTimerTask* task) {
          entry->ended(task);
          EXPECT_FALSE(account_.held[index].exchange(true)) << "two hold it";
          account_.held[index] = false;
          WFTaskFactory::release_guard(name, nullptr);
        }));
  }

  SubTask* returning(const EntryPtr& entry) {
    return WFTimer::create(microseconds(5), [this, entry](WFTimerTask* task) {
      entry->ended(task);
      pool_.post(entry->resource);
    });
  }

  TestRandom random_;
  long& canceled_;
  int next_name_ = 1000;
  FlowAccount account_;
  std::array<int, 2> resources_{};
  std::array<void*, 2> const resource_pointers_{&resources_[0], &resources_[1]};
  WFResourcePool pool_{resource_pointers_.data(), resource_pointers_.size()};
  std::array<std::vector<std::function<void()>>, 3> errands_;
  Tally ended_;
};

}  // namespace

TEST(DeadlineRace, EveryTaskIsToldOnce) {
  long canceled = 0;
  const race::Totals totals =
      race::run_rounds(race::rounds(400), [&](uint64_t number, workflow::Runtime* runtime) {
        return std::make_unique<DeadlineRound>(number, runtime, canceled);
      });
  std::printf("%ld cancelled\n", canceled);
  race::expect_each_side_won(totals, 0);
  EXPECT_GT(canceled, 0);
}
