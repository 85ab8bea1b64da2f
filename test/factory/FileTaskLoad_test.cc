#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/CpuTime.h"
#include "support/FileProbes.h"
#include "support/TestSeed.h"

// Many file tasks at once, on both backends: none is lost, each gets its own data.

namespace {

using probes::success;
using probes::UniqueFd;
using test_support::Tally;
using test_support::TestRandom;

constexpr size_t kNumbers = 20'000;

// A file that holds the numbers from 0 on, 8 bytes each.
class FileTaskLoad : public probes::OnEachBackend {
 protected:
  explicit FileTaskLoad(int max_events = 8) : OnEachBackend(max_events) {
    std::vector<uint64_t> numbers(kNumbers);
    for (size_t i = 0; i < kNumbers; i++) {
      numbers[i] = i;
    }
    fd_ = open(path(), O_RDWR | O_CREAT);
    const size_t size = kNumbers * sizeof(uint64_t);
    EXPECT_EQ(::pwrite(fd_.get(), numbers.data(), size, 0), static_cast<ssize_t>(size));
  }

  // Reads number `i`, and checks it.
  WFFileIOTask* read_number(size_t i, std::function<void(WFFileIOTask*)> then) {
    auto number = std::make_shared<uint64_t>(UINT64_MAX);
    const auto offset = static_cast<off_t>(i * sizeof(uint64_t));
    return WFTaskFactory::create_pread_task(
        fd_.get(), number.get(), sizeof(uint64_t), offset,
        [number, i, then = std::move(then)](WFFileIOTask* task) {
          EXPECT_EQ(probes::outcome_of(task), success(sizeof(uint64_t)));
          EXPECT_EQ(*number, i);
          then(task);
        });
  }

  UniqueFd fd_;
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskLoad);

class FileTaskOneAtATime : public FileTaskLoad {
 protected:
  FileTaskOneAtATime() : FileTaskLoad(1) {}
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskOneAtATime);

class FileTaskManyAtATime : public FileTaskLoad {
 protected:
  FileTaskManyAtATime() : FileTaskLoad(4096) {}
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskManyAtATime);

}  // namespace

TEST_P(FileTaskLoad, ThousandsMoreThanTheRingTakes) {
  Tally ended;
  for (size_t i = 0; i < kNumbers; i++) {
    read_number(i, [&](auto*) { ended.add(); })->start();
  }
  EXPECT_TRUE(ended.wait_for(kNumbers));
}

TEST_P(FileTaskManyAtATime, ThousandsAtOnce) {
  Tally ended;
  for (size_t i = 0; i < kNumbers; i++) {
    read_number(i, [&](auto*) { ended.add(); })->start();
  }
  EXPECT_TRUE(ended.wait_for(kNumbers));
}

// A file that is open for appending is extended by each write, whatever its offset (pwrite(2),
// BUGS), so it shows their order. The callbacks may run in another order, on two handlers at once.
TEST_P(FileTaskOneAtATime, AreDoneInTheOrderOfTheirStart) {
  constexpr size_t kWrites = 1000;
  const UniqueFd fd = open(path("order"), O_WRONLY | O_CREAT | O_APPEND);
  std::vector<uint64_t> numbers(kWrites);
  Tally ended;
  for (size_t i = 0; i < kWrites; i++) {
    numbers[i] = i;
    WFTaskFactory::create_pwrite_task(fd.get(), &numbers[i], sizeof(uint64_t), 0,
                                      [&](WFFileIOTask* task) {
                                        EXPECT_EQ(probes::outcome_of(task),
                                                  success(sizeof(uint64_t)));
                                        ended.add();
                                      })
        ->start();
  }
  ASSERT_TRUE(ended.wait_for(kWrites));
  const std::string written = probes::text_of(path("order"));
  ASSERT_EQ(written.size(), kWrites * sizeof(uint64_t));
  EXPECT_EQ(std::memcmp(written.data(), numbers.data(), written.size()), 0);
}

TEST_P(FileTaskLoad, EightThreadsStartThem) {
  constexpr size_t kThreads = 8;
  constexpr size_t kEach = 2000;
  const uint64_t seed = test_support::test_seed();
  Tally ended;
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      TestRandom random(seed, t);
      for (size_t i = 0; i < kEach; i++) {
        read_number(random.below(kNumbers), [&](auto*) { ended.add(); })->start();
        if (random.one_in(100)) {
          ended.wait_for(random.below(ended.count() + 1));
          std::this_thread::yield();
        }
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_TRUE(ended.wait_for(kThreads * kEach));
}

TEST_P(FileTaskLoad, CallbacksStartTheNext) {
  constexpr size_t kChains = 50;
  constexpr size_t kLinks = 200;
  Tally ended;
  std::function<void(size_t, size_t)> link = [&](size_t chain, size_t left) {
    read_number((chain * kLinks + left) % kNumbers, [&, chain, left](auto*) {
      ended.add();
      if (left > 1) {
        link(chain, left - 1);
      }
    })->start();
  };
  for (size_t chain = 0; chain < kChains; chain++) {
    link(chain, kLinks);
  }
  EXPECT_TRUE(ended.wait_for(kChains * kLinks));
}

TEST_P(FileTaskLoad, LongSeriesRunInOrder) {
  constexpr size_t kTasks = 10'000;
  size_t next = 0;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(),
                                                    [&](const SeriesWork*) { ended.add(); });
  for (size_t i = 0; i < kTasks; i++) {
    series->push_back(read_number(i, [&, i](auto*) { EXPECT_EQ(i, next++); }));
  }
  series->start();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(next, kTasks);
}

// By every way that there is: descriptors and paths, the ring and, as /dev/null is no file,
// threads; reading, writing, syncing.
TEST_P(FileTaskLoad, AllKindsTogether) {
  constexpr size_t kRounds = 500;
  constexpr size_t kKinds = 7;
  const UniqueFd null = open("/dev/null", O_WRONLY);
  const UniqueFd out = open(path("out"), O_RDWR | O_CREAT);
  static const std::string text = "0123456789";
  Tally ended;
  const auto expect = [&ended](long retval) {
    return [&ended, retval](auto* task) {
      EXPECT_EQ(probes::outcome_of(task), success(retval));
      ended.add();
    };
  };
  std::vector<std::string> buffers(kRounds, std::string(10, '\0'));
  for (size_t i = 0; i < kRounds; i++) {
    const auto at = static_cast<off_t>(i * 10);
    read_number(i, [&](auto*) { ended.add(); })->start();
    WFTaskFactory::create_pwrite_task(out.get(), text.data(), 10, at, expect(10))->start();
    WFTaskFactory::create_pwrite_task(null.get(), text.data(), 10, 0, expect(10))->start();
    WFTaskFactory::create_pwrite_task(path("by path"), text.data(), 10, at, expect(10))->start();
    WFTaskFactory::create_pread_task(path(), buffers[i].data(), 10, 0, expect(10))->start();
    WFTaskFactory::create_fsync_task(null.get(), [&](auto* task) {
      EXPECT_EQ(probes::outcome_of(task), probes::failure(EINVAL));
      ended.add();
    })->start();
    WFTaskFactory::create_fdatasync_task(i % 100 ? -1 : out.get(), [&, i](auto* task) {
      EXPECT_EQ(probes::outcome_of(task), i % 100 ? probes::failure(EBADF) : success(0));
      ended.add();
    })->start();
  }
  ASSERT_TRUE(ended.wait_for(kRounds * kKinds));
  std::string all;
  for (size_t i = 0; i < kRounds; i++) {
    all += text;
  }
  EXPECT_TRUE(probes::text_of(path("out")) == all);
  EXPECT_TRUE(probes::text_of(path("by path")) == all);
}

// All threads of the library wait while nothing is to be done.
TEST_P(FileTaskLoad, IdlenessTakesNoProcessorTime) {
  Tally ended;
  read_number(7, [&](auto*) { ended.add(); })->start();
  ASSERT_TRUE(ended.wait_for(1));
  const int64_t before_us = test_support::cpu_us();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the claim is about real time
  EXPECT_LE(test_support::cpu_us() - before_us, 100'000);
}
