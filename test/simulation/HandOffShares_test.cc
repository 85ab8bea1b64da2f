// Which items a thread takes at a time, and in which order they begin, when each interleaving
// follows from a seed. In virtual time a thread that has something to do is never late.

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "kernel/Simulation.h"
#include "support/Item.h"
#include "support/Seeds.h"
#include "util/Mutex.h"

namespace {

using test_support::Item;
using workflow::BlockingScope;
using workflow::ComputePool;
using workflow::CondVar;
using workflow::FileOperation;
using workflow::FileRequest;
using workflow::FileThreads;
using workflow::HandlerPool;
using workflow::Mutex;
using workflow::MutexLock;
using workflow::RunnableList;
using workflow::Simulation;

// The numbers of the items that have begun. Virtual threads may wait for some.
class BegunItems {
 public:
  void add(size_t number) {
    MutexLock lock(mutex_);
    numbers_.push_back(number);
    changed_.notify_all();
  }
  // Waits until so many items have begun.
  void wait_for(size_t count) {
    MutexLock lock(mutex_);
    while (numbers_.size() < count) {
      changed_.wait(mutex_);
    }
  }
  size_t count() const {
    MutexLock lock(mutex_);
    return numbers_.size();
  }
  // Each item begins when all earlier ones have begun, but `held` of them.
  void expect_in_order_but(size_t held) const {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < numbers_.size(); i++) {
      EXPECT_LE(numbers_[i], i + held);
    }
  }
  void expect_in_order(size_t count) const {
    MutexLock lock(mutex_);
    std::vector<size_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(numbers_, expected);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<size_t> numbers_ WF_GUARDED_BY(mutex_);
};

// Both threads are held until all items wait. The thread that begins the first of them then keeps
// it for as long as the others take, so if it had taken others with it, the other thread would
// overtake these.
void play_computations(uint64_t seed) {
  static constexpr size_t kCount = 16;
  Simulation simulation(seed, {});
  BegunItems posted;
  BegunItems held;
  BegunItems begun;
  ComputePool pool(1);
  ASSERT_TRUE(pool.start());
  const auto post = [&pool](std::function<void()> function) {
    EXPECT_TRUE(pool.post(pool.queue("queue"), new Item(std::move(function))));
  };
  for (BegunItems* until : {&posted, &begun}) {
    post([&held, until] {
      held.add(0);
      until->wait_for(1);
    });
    simulation.run_for(1);
  }
  EXPECT_EQ(pool.increase_threads(), 0);  // the new thread begins with the second
  simulation.run_for(1);
  EXPECT_EQ(held.count(), 2U);
  for (size_t i = 0; i < kCount; i++) {
    post([&begun, i] {
      begun.add(i);
      if (i == 0) {
        begun.wait_for(kCount);
      }
    });
  }
  posted.add(0);
  simulation.run_for(workflow::kNsPerSec);
  pool.stop();
  begun.expect_in_order(kCount);
}

// The only thread takes all items, and the first of them blocks without saying so. After a look
// the others are in the pool again and count as long, so another thread takes them one by one, and
// then more and more of them. Some tell that they block, and a third thread, and so on, goes on
// with what is given back, and then with what was already there.
void play_items_that_block(uint64_t seed) {
  static constexpr size_t kCount = 64;
  Simulation simulation(seed, {.handler_threads = 1});
  HandlerPool& pool = simulation.runtime().handlers();
  BegunItems begun;
  RunnableList batch;
  for (size_t i = 0; i < kCount; i++) {
    batch.push_back(new Item([&begun, i] {
      begun.add(i);
      if (i == 0) {
        begun.wait_for(kCount);
      } else if (i % 7 == 3) {
        const BlockingScope blocking;
        begun.wait_for(kCount);
      }
    }));
  }
  pool.post(batch);
  simulation.run_for(3 * HandlerPool::kLookNs);
  EXPECT_EQ(begun.count(), 1U);
  EXPECT_EQ(pool.increase_threads(), 0);
  const auto result = simulation.run();
  EXPECT_EQ(result.outcome, Simulation::Outcome::kQuiet) << result.description;
  begun.expect_in_order(kCount);
}

// The only thread tells that it blocks, and goes on soon. Another one works in its place meanwhile,
// and both go on side by side afterwards. None of them has more than one item that has not begun.
void play_a_short_wait(uint64_t seed) {
  static constexpr size_t kCount = 64;
  Simulation simulation(seed, {.handler_threads = 1});
  BegunItems begun;
  RunnableList batch;
  for (size_t i = 0; i < kCount; i++) {
    batch.push_back(new Item([&begun, i] {
      begun.add(i);
      if (i == 3) {
        const BlockingScope blocking;
        begun.wait_for(6);
      }
    }));
  }
  simulation.runtime().handlers().post(batch);
  const auto result = simulation.run();
  EXPECT_EQ(result.outcome, Simulation::Outcome::kQuiet) << result.description;
  EXPECT_EQ(begun.count(), kCount);
  begun.expect_in_order_but(1);
}

// Whenever the first of several items blocks without saying so, the other thread has begun all that
// are behind it, or come when it has begun, within a millisecond, less what it takes to wake two
// threads. `post_all` posts the functions to a pool of two threads.
template <class PostAll>
void expect_to_be_taken_soon(Simulation& simulation, PostAll post_all) {
  static constexpr size_t kCount = 9;
  static constexpr int64_t kSoonNs = 700'000;
  using Functions = std::vector<std::function<void()>>;
  // Its supervisor looks from now on, so what follows begins at any time between two looks.
  post_all(Functions(2, [] {}));
  const auto offset_ns = static_cast<int64_t>(simulation.seed() % 64) * HandlerPool::kLookNs / 20;
  simulation.run_for(1 + offset_ns);
  int64_t begin_ns = simulation.now_ns();
  int64_t end_ns = workflow::kNever;
  BegunItems begun;
  Functions functions;
  for (size_t i = 0; i < kCount; i++) {
    functions.push_back([&, i] {
      begun.add(i);
      if (i == 0) {
        begun.wait_for(kCount);
        end_ns = simulation.now_ns();
      }
    });
  }
  if (simulation.seed() / 64 % 2 == 0) {  // the others come when the first has begun
    post_all({functions.front()});
    functions.erase(functions.begin());
    simulation.run_for(offset_ns / 3);
    begin_ns = simulation.now_ns();
  }
  post_all(functions);
  simulation.run_for(workflow::kNsPerSec);
  EXPECT_EQ(begun.count(), kCount);
  EXPECT_LE(end_ns - begin_ns, kSoonNs);
}

void play_behind_an_item_that_blocks(uint64_t seed) {
  Simulation simulation(seed, {.handler_threads = 2});
  expect_to_be_taken_soon(simulation, [&](const std::vector<std::function<void()>>& functions) {
    RunnableList batch;
    for (const std::function<void()>& function : functions) {
      batch.push_back(new Item(function));
    }
    simulation.runtime().handlers().post(batch);
  });
}

void play_behind_a_computation_that_blocks(uint64_t seed) {
  Simulation simulation(seed, {.compute_threads = 2});
  expect_to_be_taken_soon(simulation, [&](const std::vector<std::function<void()>>& functions) {
    ComputePool& pool = simulation.runtime().compute();
    for (const std::function<void()>& function : functions) {
      EXPECT_TRUE(pool.post(pool.queue("queue"), new Item(function)));
    }
  });
}

// Reads nothing. What happens when it begins may take virtual time.
class EmptyRead final : public FileOperation {
 public:
  explicit EmptyRead(std::function<void()> begin) : begin_(std::move(begin)) {}
  ~EmptyRead() override = default;

  FileRequest request() const override {
    begin_();
    FileRequest request;
    request.fd = -1;
    return request;
  }
  void finished(long /*result*/, RunnableList& /*done*/) override {}
  void aborted(RunnableList& /*done*/) override {}

 private:
  std::function<void()> begin_;
};

// One operation tells the pool that they take 4 us or so. Then many come, the first of which waits
// for another one to begin, and only one thread is awake. That these are worth another thread is
// known when they are posted: nobody has to wait for the supervisor, so no time passes.
void play_operations(uint64_t seed) {
  static constexpr size_t kCount = 16;
  Simulation simulation(seed, {.spurious_wakeups = false});
  simulation.run_for(1);  // at time zero nothing is measured
  FileThreads threads(simulation.runtime().handlers(), 2);
  EmptyRead measured([&simulation] { simulation.sleep_for(15'000); });
  EXPECT_EQ(threads.post(&measured, FileThreads::Progress::kNew), 0);
  simulation.run_for(workflow::kNsPerSec);
  const int64_t begin_ns = simulation.now_ns();
  int64_t end_ns = 0;
  BegunItems begun;
  std::vector<std::unique_ptr<EmptyRead>> operations;
  for (size_t i = 0; i < kCount; i++) {
    operations.push_back(std::make_unique<EmptyRead>([&, i] {
      begun.add(i);
      if (i == 0) {
        begun.wait_for(2);
        end_ns = simulation.now_ns();
      }
    }));
    EXPECT_EQ(threads.post(operations.back().get(), FileThreads::Progress::kNew), 0);
  }
  simulation.run_for(workflow::kNsPerSec);
  threads.refuse();
  threads.stop();
  EXPECT_EQ(begun.count(), kCount);
  EXPECT_EQ(end_ns, begin_ns);
}

}  // namespace

TEST(HandOffShares, ComputationsOfAQueueBeginInOrder) {
  for_each_seed(kSeeds / 4, play_computations);
}

TEST(HandOffShares, ItemsThatBlockLeaveTheOrderAsItWas) {
  for_each_seed(kSeeds / 8, play_items_that_block);
}

TEST(HandOffShares, ItemsBehindOneThatBlocksAreTakenSoon) {
  for_each_seed(kSeeds / 4, play_behind_an_item_that_blocks);
}

TEST(HandOffShares, ComputationsBehindOneThatBlocksAreTakenSoon) {
  for_each_seed(kSeeds / 4, play_behind_a_computation_that_blocks);
}

TEST(HandOffShares, AfterAWaitNoThreadKeepsItems) {
  for_each_seed(kSeeds / 4, play_a_short_wait);
}

TEST(HandOffShares, ManyFileOperationsWakeAThreadAtOnce) {
  for_each_seed(kSeeds / 4, play_operations);
}
