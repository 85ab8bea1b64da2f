// Deadlines under every interleaving that many seeds find: with what ends the tasks they cover,
// with deadlines around them, and with the stop.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>

#include "support/Seeds.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::nanoseconds;

// How the tasks of one run have ended.
class Account {
 public:
  template <class Task>
  std::function<void(Task*)> callback() {
    created_++;
    return [this](Task* task) {
      const bool failed = task->get_state() == WFT_STATE_SYS_ERROR;
      if (task->get_state() == WFT_STATE_SUCCESS) {
        in_time_++;
      } else if (task->get_state() == WFT_STATE_ABORTED) {
        aborted_++;
      } else if (failed && task->get_error() == ETIMEDOUT) {
        too_late_++;
      } else {
        EXPECT_TRUE(failed && task->get_error() == ECANCELED);
        canceled_++;
      }
    };
  }
  void won(int64_t cancels) { won_ += cancels; }

  void check() const {
    EXPECT_EQ(in_time_ + too_late_ + canceled_ + aborted_, created_);
    EXPECT_EQ(canceled_, won_);
  }
  int64_t in_time() const { return in_time_; }
  int64_t too_late() const { return too_late_; }
  int64_t created() const { return created_; }

 private:
  int64_t created_ = 0;
  int64_t in_time_ = 0;
  int64_t too_late_ = 0;
  int64_t canceled_ = 0;
  int64_t aborted_ = 0;
  int64_t won_ = 0;
};

// A timer, a counter, a selector, a mailbox and a computation, one after the other.
class Flow {
 public:
  Flow(Account& account, std::mt19937_64& random) : account_(account), random_(random) {}

  SubTask* create() {
    timer_ = WFTimer::create(nanoseconds(100), {"timer"}, account_.callback<WFTimerTask>());
    counter_ = WFTaskFactory::create_counter_task(1, account_.callback<WFCounterTask>());
    selector_ = WFTaskFactory::create_selector_task(1, account_.callback<WFSelectorTask>());
    WFGoTask* const go = WFTaskFactory::create_go_task("queue", [] {});
    go->set_callback(account_.callback<WFGoTask>());
    SeriesWork* const series = Workflow::create_series_work(timer_, nullptr);
    *series << counter_ << go << selector_
            << WFTaskFactory::create_mailbox_task("mailbox", account_.callback<WFMailboxTask>());
    WFDeadlineTask* const inner = with_deadline(series, some_time());
    inner->set_callback(account_.callback<WFDeadlineTask>());
    WFDeadlineTask* const outer = with_deadline(inner, some_time());
    outer->set_callback(account_.callback<WFDeadlineTask>());
    return outer;
  }

  // Each thread brings something, some time.
  void spawn(WFSimulation& simulation) {
    const auto later = [&](std::function<void()> errand) {
      const int64_t when_ns = static_cast<int64_t>(random_() % 5) * 100;
      simulation.spawn([&simulation, when_ns, errand = std::move(errand)] {
        simulation.sleep_for(when_ns);
        errand();
      });
    };
    later([this] { counter_->count(); });
    later([this] { selector_->submit(this); });
    later([this] { WFTaskFactory::send_by_name("mailbox", this, 1); });
    later([this] { account_.won(WFTaskFactory::cancel_by_name("timer")); });
  }

 private:
  nanoseconds some_time() { return nanoseconds(100 * (random_() % 5)); }

  Account& account_;
  std::mt19937_64& random_;
  WFTimerTask* timer_ = nullptr;
  WFCounterTask* counter_ = nullptr;
  WFSelectorTask* selector_ = nullptr;
};

}  // namespace

TEST(DeadlineProtocol, MeetsAllThatEndsTasks) {
  int64_t in_time = 0;
  int64_t too_late = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    WFSimulation simulation(seed);
    Account account;
    Flow flow(account, random);
    SubTask* const task = flow.create();
    simulation.spawn([&] { Workflow::start_series_work(task, nullptr); });
    flow.spawn(simulation);
    // A message to a mailbox that is not there yet is lost: then its deadline ends it.
    EXPECT_TRUE(simulation.run().ok());
    in_time += account.in_time();
    too_late += account.too_late();
    EXPECT_TRUE(simulation.stop().ok());
    account.check();
  });
  if (!std::getenv("WORKFLOW_TEST_SEED")) {
    EXPECT_GT(in_time, 0);
    EXPECT_GT(too_late, 0);
  }
}

TEST(DeadlineProtocol, MeetsTheStop) {
  for_each_seed(kSeeds, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    WFSimulation simulation(seed);
    Account account;
    Flow flow(account, random);
    SubTask* const task = flow.create();
    simulation.spawn([&] { Workflow::start_series_work(task, nullptr); });
    flow.spawn(simulation);
    simulation.run_for(static_cast<int64_t>(random() % 6) * 100);
    EXPECT_TRUE(simulation.stop().ok());
    account.check();
  });
}
