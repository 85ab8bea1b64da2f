// Periodic timers under every interleaving that many seeds find. For each timer:
// 1. The callback ran once, and after it no tick; none while another ran, unless they may overlap.
// 2. At most one call reported that it won. It did so if, and only if, the callback saw ECANCELED.
// 3. No tick began before it was due, and every multiple of the period was ticked or missed.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <string>

#include "factory/TimerTask.h"
#include "kernel/Runtime.h"
#include "support/Sanitizers.h"
#include "support/Seeds.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::nanoseconds;

constexpr uint64_t kPeriodicSeeds = 600;
constexpr int64_t kEvery = 100;

class PeriodicLedger {
 public:
  struct Record {
    bool overlap = false;
    int64_t started_ns = 0;
    uint64_t accounted = 0;  // ticked or missed
    uint64_t ticks = 0;
    int running = 0;
    int callbacks = 0;
    int state = 0;
    int error = 0;
    int won = 0;
    bool ended_by_tick = false;
    WFTimerHandle handle;
  };

  // With every third seed the first tick is due when the timer is started, else a period later.
  explicit PeriodicLedger(uint64_t seed) : simulation_(seed), due_at_start_(seed % 3 == 1) {}

  WFSimulation& simulation() { return simulation_; }

  // in_tick(tick, record) is called in each tick; each takes `tick_ns`.
  template <class InTick>
  Record& start(const std::string& name, bool overlap, int64_t tick_ns, InTick in_tick) {
    Record& record = records_.emplace_back();
    record.overlap = overlap;
    WFTimerPeriod period;
    period.every = nanoseconds(kEvery);
    period.overlap = overlap;
    if (due_at_start_) {
      period.first = nanoseconds(0);
    }
    WFTimerOptions options;
    if (!name.empty()) {
      options.name = name;
    }
    WFTimerTask* task = WFTimer::create_periodic(
        period, options,
        [this, &record, tick_ns, in_tick](const WFTimerTick& tick) {
          begin_tick(record, tick);
          if (tick_ns > 0) {
            simulation_.sleep_for(tick_ns);
          }
          in_tick(tick, record);
          record.running--;
        },
        [&record](WFTimerTask* ended) {
          EXPECT_EQ(record.running, 0);
          record.callbacks++;
          record.state = ended->get_state();
          record.error = ended->get_error();
        });
    record.handle = WFTimer::handle_of(task);
    record.started_ns = simulation_.now_ns() - (due_at_start_ ? kEvery : 0);
    task->start();
    return record;
  }

  void cancel(Record& record) { record.won += record.handle.cancel() == WFTimerCancel::kWon; }

  void close() {
    const WFSimulationResult result = simulation_.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    for (const Record& record : records_) {
      EXPECT_EQ(record.callbacks, 1);
      EXPECT_LE(record.won, 1);
      const bool cancelled = record.state == WFT_STATE_SYS_ERROR && record.error == ECANCELED;
      EXPECT_EQ(record.won == 1, cancelled) << record.state;
      EXPECT_TRUE(cancelled || record.state == WFT_STATE_ABORTED ||
                  (record.state == WFT_STATE_SUCCESS && record.ended_by_tick));
    }
    EXPECT_TRUE(workflow::NamedTimerTask::registry().empty());
  }

 private:
  void begin_tick(Record& record, const WFTimerTick& tick) {
    EXPECT_EQ(record.callbacks, 0);
    EXPECT_TRUE(record.running == 0 || record.overlap);
    EXPECT_TRUE(tick.number == record.ticks || record.overlap);
    record.running++;
    record.ticks++;
    record.accounted += 1 + tick.missed;
    const int64_t passed_ns = simulation_.now_ns() - record.started_ns;
    EXPECT_LE(static_cast<int64_t>(record.accounted) * kEvery, passed_ns);
    if (!record.overlap) {
      EXPECT_EQ(passed_ns - tick.late.count(), static_cast<int64_t>(record.accounted) * kEvery);
    }
  }

  WFSimulation simulation_;
  const bool due_at_start_;
  std::deque<Record> records_;
};

const auto kNothing = [](const WFTimerTick&, PeriodicLedger::Record&) {};

}  // namespace

TEST(PeriodicProtocol, CancelMeetsTicks) {
  for_each_seed(kPeriodicSeeds, [](uint64_t seed) {
    PeriodicLedger ledger(seed);
    for (const char* name : {"a", ""}) {
      for (const bool overlap : {false, true}) {
        PeriodicLedger::Record& record = ledger.start(name, overlap, seed % 3 * 70, kNothing);
        for (const int64_t at_ns : {200, 300}) {
          ledger.simulation().spawn([&, at_ns] {
            ledger.simulation().sleep_for(at_ns);
            ledger.cancel(record);
          });
        }
      }
    }
    const WFSimulationResult result = ledger.simulation().run();
    EXPECT_TRUE(result.ok()) << result.description;
    ledger.close();
  });
}

TEST(PeriodicProtocol, CancelByNameMeetsCancelByHandleAndTheEndByATick) {
  for_each_seed(kPeriodicSeeds, [](uint64_t seed) {
    PeriodicLedger ledger(seed);
    for (const bool overlap : {false, true}) {
      const std::string name = overlap ? "overlapping" : "one by one";
      PeriodicLedger::Record& record =
          ledger.start(name, overlap, seed % 3 * 70, [](const WFTimerTick& tick, auto& seen) {
            if (tick.number == 1) {
              seen.ended_by_tick = true;
              tick.end();
            }
          });
      ledger.simulation().spawn([&ledger, &record, name] {
        ledger.simulation().sleep_for(200);
        record.won += WFTaskFactory::cancel_by_name(name);
      });
      ledger.simulation().spawn([&ledger, &record] {
        ledger.simulation().sleep_for(200);
        ledger.cancel(record);
      });
    }
    const WFSimulationResult result = ledger.simulation().run();
    EXPECT_TRUE(result.ok()) << result.description;
    ledger.close();
  });
}

TEST(PeriodicProtocol, TheEndByATickMeetsTheStopAndCancels) {
  for_each_seed(kPeriodicSeeds, [](uint64_t seed) {
    PeriodicLedger ledger(seed);
    for (const char* name : {"a", ""}) {
      for (const bool overlap : {false, true}) {
        PeriodicLedger::Record& record =
            ledger.start(name, overlap, seed % 2 * 150,
                         [](const WFTimerTick&, auto& seen) { seen.ended_by_tick = true; });
        ledger.simulation().spawn([&ledger, &record] {
          ledger.simulation().sleep_for(100);
          ledger.cancel(record);
        });
      }
    }
    ledger.close();  // at once: the stop meets the rest
  });
}

TEST(PeriodicProtocol, WhoWaitsReturnsAfterTheLastTick) {
  for_each_seed(kPeriodicSeeds, [](uint64_t seed) {
    PeriodicLedger ledger(seed);
    for (const char* name : {"a", ""}) {
      for (const bool overlap : {false, true}) {
        PeriodicLedger::Record& record = ledger.start(name, overlap, 130, kNothing);
        ledger.simulation().spawn([&ledger, &record] {
          ledger.simulation().sleep_for(200);
          record.won += record.handle.cancel_and_wait() == WFTimerCancel::kWon;
          EXPECT_EQ(record.callbacks, 1);
          EXPECT_EQ(record.running, 0);
        });
      }
    }
    const WFSimulationResult result = ledger.simulation().run();
    EXPECT_TRUE(result.ok()) << result.description;
    ledger.close();
  });
}

TEST(PeriodicProtocol, DoesNotDriftInAMillionPeriods) {
  WFSimulationOptions options;
  options.max_steps = UINT64_MAX;
  WFSimulation simulation(1, options);
  constexpr uint64_t kPeriods = test_support::kSanitized ? 100'000 : 1'000'000;
  const int64_t every_ns = 333'333'333;
  uint64_t ticks = 0;
  int64_t last_ns = 0;
  WFTimerPeriod period;
  period.every = nanoseconds(every_ns);
  WFTimer::create_periodic(
      period, {},
      [&](const WFTimerTick& tick) {
        ticks++;
        last_ns = simulation.now_ns();
        EXPECT_EQ(tick.late, nanoseconds(0));
        if (tick.number + 1 == kPeriods) {
          tick.end();
        }
      },
      [](WFTimerTask* task) { EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS); })
      ->start();
  const WFSimulationResult result = simulation.run();
  EXPECT_TRUE(result.ok()) << result.description;
  EXPECT_EQ(ticks, kPeriods);
  EXPECT_EQ(last_ns, static_cast<int64_t>(kPeriods) * every_ns);
  simulation.stop();
}
