// A series whose timers are ended from outside, under every interleaving that many seeds find: with
// their start, their expiry, cancels by name and the stop.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>

#include "ScopedSeries.h"
#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

namespace {

// Ends when it is released, whatever stops meanwhile: until then its series is there.
class Hold final : public WFGenericTask {
 public:
  void release() {
    released_ = true;
    if (dispatched_) {
      WFGenericTask::dispatch();
    }
  }

 private:
  void dispatch() override {
    dispatched_ = true;
    if (released_) {
      WFGenericTask::dispatch();
    }
  }

  // Threads of a simulation take turns at locks only.
  bool dispatched_ = false;
  bool released_ = false;
};

// Timers of one run, and what became of them.
class Ledger {
 public:
  explicit Ledger(const WFSimulation& simulation) : simulation_(simulation) {}

  WFTimerTask* create(const std::string& name, int64_t delay_ns) {
    created_++;
    auto callback = [this](WFTimerTask* task) { saw(task); };
    return name.empty() ? WFTaskFactory::create_timer_task(0, delay_ns, callback)
                        : WFTaskFactory::create_timer_task(name, 0, delay_ns, callback);
  }
  int cancel(const std::string& name) {
    const int n = WFTaskFactory::cancel_by_name(name);
    counted_ += n;
    return n;
  }

  // Each that was created has ended once; who was cancelled by name saw it.
  void check() const {
    EXPECT_EQ(succeeded_ + canceled_ + aborted_, created_);
    EXPECT_GE(canceled_, counted_);
    EXPECT_TRUE(workflow::NamedTimerTask::registry().empty());
    EXPECT_EQ(workflow::Runtime::current().poller(0).timers().size(), 0u);
  }
  int canceled() const { return canceled_; }
  int succeeded() const { return succeeded_; }
  int64_t last_ns() const { return last_ns_; }

 private:
  void saw(WFTimerTask* task) {
    last_ns_ = simulation_.now_ns();
    switch (task->get_state()) {
      case WFT_STATE_SUCCESS:
        succeeded_++;
        break;
      case WFT_STATE_SYS_ERROR:
        EXPECT_EQ(task->get_error(), ECANCELED);
        canceled_++;
        break;
      default:
        EXPECT_EQ(task->get_state(), WFT_STATE_ABORTED);
        aborted_++;
    }
  }

  const WFSimulation& simulation_;
  int64_t last_ns_ = 0;
  int created_ = 0;
  int counted_ = 0;
  int succeeded_ = 0;
  int canceled_ = 0;
  int aborted_ = 0;
};

}  // namespace

// The series lives until the canceller has counted.
TEST(ScopeProtocol, MeetsStartExpiryAndCancel) {
  int cancelled_early = 0;
  int all_in_time = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    WFSimulation simulation(seed);
    Ledger ledger(simulation);
    WFCounterTask* last = WFTaskFactory::create_counter_task(1, nullptr);
    // Without a delay they are due when they are started.
    const int64_t delay_ns = seed % 3 == 0 ? 0 : 100;
    ScopedSeries* series = new ScopedSeries(ledger.create("a", delay_ns));
    const workflow::Ref<workflow::DeadlineScope> scope = series->scope();
    series->push_back(ledger.create("b", delay_ns));
    series->push_back(ledger.create("", delay_ns));
    series->push_back(last);
    const int64_t cancel_ns = static_cast<int64_t>(random() % 4) * 100;
    const int64_t end_ns = static_cast<int64_t>(random() % 5) * 100;
    simulation.spawn([&] { series->start(); });
    simulation.spawn([&, cancel_ns] {
      simulation.sleep_for(cancel_ns);
      ledger.cancel("a");
      ledger.cancel("b");
    });
    simulation.spawn([&, end_ns] {
      simulation.sleep_for(end_ns);
      scope->cancel(ECANCELED);
      last->count();
    });
    EXPECT_TRUE(simulation.run().ok());
    ledger.check();
    cancelled_early += ledger.canceled() == 3;
    all_in_time += ledger.succeeded() == 3;
    EXPECT_TRUE(simulation.stop().ok());
  });
  if (!std::getenv("WORKFLOW_TEST_SEED")) {
    EXPECT_GT(cancelled_early, 0);
    EXPECT_GT(all_in_time, 0);
  }
}

TEST(ScopeProtocol, ReachesTheBranchesOfParallels) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulation simulation(seed);
    Ledger ledger(simulation);
    WFCounterTask* last = WFTaskFactory::create_counter_task(2, nullptr);
    ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
    for (const char* name : {"a", "b", ""}) {
      SeriesWork* branch = Workflow::create_series_work(ledger.create(name, 999'999'999), nullptr);
      branch->push_back(ledger.create("", 999'999'999));
      parallel->add_series(branch);
    }
    ScopedSeries* series = new ScopedSeries(parallel);
    const workflow::Ref<workflow::DeadlineScope> scope = series->scope();
    series->push_back(WFTaskFactory::create_module_task(ledger.create("a", 999'999'999), nullptr));
    series->push_back(last);
    simulation.spawn([&] { series->start(); });
    simulation.spawn([&] { ledger.cancel("a"); });
    for (int i = 0; i < 2; i++) {
      simulation.spawn([&] {
        scope->cancel(ECANCELED);
        last->count();
      });
    }
    EXPECT_TRUE(simulation.run().ok());
    ledger.check();
    EXPECT_EQ(ledger.succeeded(), 0);
    EXPECT_LT(ledger.last_ns(), 999'999'999) << "somebody waited";
    EXPECT_TRUE(simulation.stop().ok());
  });
}

TEST(ScopeProtocol, MeetsTheStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    WFSimulation simulation(seed);
    Ledger ledger(simulation);
    Hold* last = new Hold;
    ScopedSeries* series = new ScopedSeries(ledger.create("a", 200));
    const workflow::Ref<workflow::DeadlineScope> scope = series->scope();
    series->push_back(ledger.create("", 999'999'999));
    series->push_back(last);
    simulation.spawn([&] { series->start(); });
    simulation.spawn([&] {
      simulation.sleep_for(100);
      scope->cancel(ECANCELED);
      last->release();
    });
    simulation.run_for(static_cast<int64_t>(random() % 3) * 100);
    EXPECT_TRUE(simulation.stop().ok());
    ledger.check();
  });
}

// The deadline may leave the queue while the series inside ends by itself, before its turn has
// come.
TEST(ScopeProtocol, LeavesNoDeadlineBehind) {
  int ended_by_itself = 0;
  for_each_seed(kSeeds, [&ended_by_itself](uint64_t seed) {
    WFSimulation simulation(seed);
    bool ended = false;
    WFScopeTask* const task = WFTaskFactory::create_deadline_task(
        WFTaskFactory::create_timer_task(0, 1'000'000, nullptr), std::chrono::milliseconds(1),
        [&ended](WFScopeTask*) { ended = true; });
    const WFScope scope = task->scope();
    task->start();
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ASSERT_TRUE(ended);
    const bool by_itself = scope.error() == 0;
    ended_by_itself += by_itself;
    using std::chrono::nanoseconds;
    EXPECT_EQ(scope.remaining(), by_itself ? nanoseconds::max() : nanoseconds(0));
    EXPECT_TRUE(simulation.stop().ok());
  });
  if (!std::getenv("WORKFLOW_TEST_SEED")) {
    EXPECT_GT(ended_by_itself, 0);
  }
}
