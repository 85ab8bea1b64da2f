// File tasks under every interleaving that many seeds find. The system calls are real, the threads
// that make them are virtual.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/Seeds.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"

namespace {

using workflow::UniqueFd;

// Starts file tasks and keeps account of their ends. Outlives the simulation.
class FileLedger {
 public:
  FileLedger() : fd_(::open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(::pwrite(fd_.get(), "0123456789", 10, 0), 10);
  }

  std::string path() const { return dir_.path("file"); }
  int fd() const { return fd_.get(); }

  WFFileIOTask* read(int fd) {
    return WFTaskFactory::create_pread_task(fd, buffer_, 4, 3, ended(created_++));
  }
  WFFileIOTask* read_path() {
    return WFTaskFactory::create_pread_task(path(), buffer_, 4, 3, ended(created_++));
  }
  WFFileIOTask* write() {
    return WFTaskFactory::create_pwrite_task(fd(), "3456", 4, 3, ended(created_++));
  }

  // Each of the tasks created has ended once, and as it may.
  void check() {
    ASSERT_EQ(calls_.size(), static_cast<size_t>(created_));
    for (int calls : calls_) {
      ASSERT_EQ(calls, 1);
    }
    ASSERT_EQ(succeeded_ + failed_ + aborted_ + too_late_, created_);
  }
  void clear() {
    calls_.clear();
    created_ = succeeded_ = failed_ = aborted_ = too_late_ = 0;
  }

  int created() const { return created_; }
  int succeeded() const { return succeeded_; }
  int failed() const { return failed_; }
  int aborted() const { return aborted_; }
  int too_late() const { return too_late_; }

 private:
  fio_callback_t ended(int number) {
    return [this, number](WFFileIOTask* task) {
      calls_.resize(static_cast<size_t>(created_));
      calls_[static_cast<size_t>(number)]++;
      if (task->get_state() == WFT_STATE_SUCCESS) {
        succeeded_++;
        EXPECT_EQ(task->get_retval(), 4);
        EXPECT_EQ(std::string(buffer_, 4), "3456");
      } else if (task->get_state() == WFT_STATE_ABORTED) {
        aborted_++;
        EXPECT_EQ(task->get_error(), 0);
      } else if (task->get_error() == ETIMEDOUT) {
        too_late_++;
      } else {
        failed_++;
        EXPECT_EQ(task->get_error(), EBADF);
      }
    };
  }

  test_support::TempDir dir_;
  UniqueFd fd_;
  char buffer_[5] = "3456";
  std::vector<int> calls_;
  int created_ = 0;
  int succeeded_ = 0;
  int failed_ = 0;
  int aborted_ = 0;
  int too_late_ = 0;
};

// Three flows of file tasks that begin when their deadlines pass.
void start_with_deadlines(FileLedger& ledger, WFSimulation& simulation) {
  constexpr auto kThen = std::chrono::nanoseconds(100);
  for (int i = 0; i < 3; i++) {
    SeriesWork* const series = Workflow::create_series_work(
        WFTaskFactory::create_timer_task(0, kThen.count(), nullptr), nullptr);
    *series << ledger.read(ledger.fd()) << ledger.read_path() << ledger.write();
    WFDeadlineTask* const task = with_deadline(series, kThen);
    simulation.spawn([task] { task->start(); });
  }
}

TEST(FileTasks, SeveralThreadsStartThem) {
  FileLedger ledger;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    WFSimulation simulation(seed);
    for (int i = 0; i < 3; i++) {
      simulation.spawn([&] {
        ledger.read(ledger.fd())->start();
        ledger.write()->start();
        ledger.read(-1)->start();
        ledger.read_path()->start();
      });
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ledger.check();
    EXPECT_EQ(ledger.failed(), 3);
    EXPECT_EQ(ledger.succeeded(), 9);
  });
}

TEST(FileTasks, SeriesOfThemAndTimers) {
  FileLedger ledger;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    int series_ended = 0;
    WFSimulation simulation(seed);
    for (int i = 0; i < 3; i++) {
      SeriesWork* series =
          Workflow::create_series_work(ledger.write(), [&](const SeriesWork*) { series_ended++; });
      series->push_back(WFTaskFactory::create_timer_task("timer", 1, 0, nullptr));
      series->push_back(ledger.read(ledger.fd()));
      series->push_back(ledger.read_path());
      series->start();
    }
    simulation.spawn([] { WFTaskFactory::cancel_by_name("timer", 2); });
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ledger.check();
    EXPECT_EQ(series_ended, 3);
    EXPECT_EQ(ledger.succeeded(), 9);
  });
}

TEST(FileTasks, FuturesAreWaitedForInCallbacks) {
  FileLedger ledger;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    int right = 0;
    WFSimulationOptions options;
    options.handler_threads = 1;
    WFSimulation simulation(seed, options);
    for (int i = 0; i < 2; i++) {
      WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
        char buffer[4];
        right += WFFacilities::async_pread(ledger.fd(), buffer, 4, 3).get() == 4;
        right += WFFacilities::async_fsync(ledger.fd()).get() == 0;
      })->start();
    }
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    EXPECT_EQ(right, 4);
  });
}

TEST(FileTasks, StopMeetsStartAndCompletion) {
  FileLedger ledger;
  int aborted = 0;
  int succeeded = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    {
      WFSimulation simulation(seed);
      // Whoever comes first also starts the threads, beside the stop.
      for (int i = 0; i < 3; i++) {
        simulation.spawn([&] {
          for (int k = 0; k < 3; k++) {
            ledger.read(ledger.fd())->start();
            ledger.read_path()->start();
          }
        });
      }
      simulation.run_for(0);
      const WFSimulationResult result = simulation.stop();
      ASSERT_TRUE(result.ok()) << result.description;
      ledger.read(ledger.fd())->start();
      ledger.read_path()->start();
      ledger.check();
      EXPECT_GE(ledger.aborted(), 2);
    }
    aborted += ledger.aborted();
    succeeded += ledger.succeeded();
  });
  EXPECT_GT(succeeded, 0);
  EXPECT_GT(aborted, 0);
}

TEST(FileTasks, CallbacksStartOthersWhileTheLibraryStops) {
  FileLedger ledger;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    int chains_ended = 0;
    std::function<void(int)> chain = [&](int left) {
      WFFileIOTask* task = ledger.read(ledger.fd());
      Workflow::start_series_work(task, [&, left](const SeriesWork*) {
        if (left > 0) {
          chain(left - 1);
        } else {
          chains_ended++;
        }
      });
    };
    WFSimulation simulation(seed);
    for (int i = 0; i < 3; i++) {
      simulation.spawn([&] { chain(5); });
    }
    const WFSimulationResult result = simulation.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    ledger.check();
    EXPECT_EQ(chains_ended, 3);
  });
}

TEST(FileTasks, TheSameSeedMakesTheSameSchedule) {
  FileLedger ledger;
  const auto hash_of = [&](uint64_t seed) {
    WFSimulation simulation(seed);
    for (int i = 0; i < 3; i++) {
      simulation.spawn([&] {
        ledger.read(ledger.fd())->start();
        ledger.read_path()->start();
      });
    }
    simulation.run();
    simulation.stop();
    return simulation.trace_hash();
  };
  for_each_seed(100, [&](uint64_t seed) { EXPECT_EQ(hash_of(seed), hash_of(seed)); });
}

}  // namespace

TEST(FileTasks, DeadlinesEndThem) {
  FileLedger ledger;
  int succeeded = 0;
  int too_late = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    WFSimulation simulation(seed);
    start_with_deadlines(ledger, simulation);
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ledger.check();
    EXPECT_EQ(ledger.succeeded() + ledger.too_late(), 9);
    succeeded += ledger.succeeded();
    too_late += ledger.too_late();
  });
  EXPECT_GT(succeeded, 0);
  EXPECT_GT(too_late, 0);
}

TEST(FileTasks, DeadlinesMeetTheStop) {
  FileLedger ledger;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    ledger.clear();
    WFSimulation simulation(seed);
    start_with_deadlines(ledger, simulation);
    simulation.run_for(100);
    const WFSimulationResult result = simulation.stop();
    ASSERT_TRUE(result.ok()) << result.description;
    ledger.check();
  });
}
