#include "workflow/detail/SeriesQueue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "workflow/SubTask.h"

using test_support::env_number;
using test_support::TestRandom;
using workflow::SeriesQueue;

namespace {

// A task that is never dispatched.
class Queued final : public SubTask {
 public:
  void dispatch() override { FAIL() << "dispatched"; }
  SubTask* done() override { return nullptr; }
};

// Which of the tasks `task` is; -1 for null.
template <class TASKS>
ptrdiff_t index_of(const TASKS& tasks, const SubTask* task) {
  return task ? static_cast<const Queued*>(task) - tasks.data() : -1;
}

TEST(SeriesQueue, TasksComeInTheirOrder) {
  std::array<Queued, 6> tasks;
  SeriesQueue queue;
  EXPECT_EQ(queue.pop(), nullptr);
  queue.push_back(&tasks[0]);
  EXPECT_EQ(index_of(tasks, queue.pop()), 0);
  EXPECT_EQ(queue.pop(), nullptr);

  queue.push_front(&tasks[2]);  // alone
  queue.push_back(&tasks[3]);   // from here on there is a list
  queue.push_front(&tasks[1]);
  queue.push_back(&tasks[4]);
  for (ptrdiff_t i = 1; i <= 4; i++) {
    EXPECT_EQ(index_of(tasks, queue.pop()), i);
  }
  EXPECT_EQ(queue.pop(), nullptr);
  queue.push_back(&tasks[5]);  // the list is over
  EXPECT_EQ(index_of(tasks, queue.pop()), 5);
  EXPECT_EQ(queue.pop(), nullptr);
}

// A pop() takes the whole list. What is pushed from then on comes before or behind that.
TEST(SeriesQueue, TasksArePushedAroundThoseThatWereTaken) {
  std::array<Queued, 9> tasks;
  SeriesQueue queue;
  queue.push_back(&tasks[0]);
  queue.push_back(&tasks[3]);
  queue.push_back(&tasks[6]);
  EXPECT_EQ(index_of(tasks, queue.pop()), 0);
  queue.push_front(&tasks[1]);  // alone
  EXPECT_EQ(index_of(tasks, queue.pop()), 1);
  queue.push_back(&tasks[7]);   // alone
  queue.push_front(&tasks[2]);  // from here on there is a list
  EXPECT_EQ(index_of(tasks, queue.pop()), 2);
  EXPECT_EQ(index_of(tasks, queue.pop()), 3);
  queue.push_front(&tasks[5]);
  queue.push_front(&tasks[4]);
  queue.push_back(&tasks[8]);
  for (ptrdiff_t i = 4; i <= 8; i++) {
    EXPECT_EQ(index_of(tasks, queue.pop()), i);
  }
  EXPECT_EQ(queue.pop(), nullptr);
}

// A task that is alone at the front becomes the first of a list.
TEST(SeriesQueue, TheFrontStaysTheFrontWhenAListBegins) {
  std::array<Queued, 5> tasks;
  SeriesQueue queue;
  queue.push_back(&tasks[0]);
  queue.push_back(&tasks[3]);
  EXPECT_EQ(index_of(tasks, queue.pop()), 0);
  queue.push_front(&tasks[2]);
  queue.push_back(&tasks[4]);
  queue.push_front(&tasks[1]);
  for (ptrdiff_t i = 1; i <= 4; i++) {
    EXPECT_EQ(index_of(tasks, queue.pop()), i);
  }
  EXPECT_EQ(queue.pop(), nullptr);
}

TEST(SeriesQueue, ATaskIsPutBackBeforeAllOthers) {
  std::array<Queued, 4> tasks;
  SeriesQueue queue;
  queue.put_back(&tasks[0]);
  EXPECT_EQ(index_of(tasks, queue.pop()), 0);

  queue.push_back(&tasks[1]);
  queue.push_back(&tasks[2]);
  queue.put_back(&tasks[0]);
  for (ptrdiff_t i = 0; i <= 1; i++) {
    EXPECT_EQ(index_of(tasks, queue.pop()), i);
  }
  queue.push_front(&tasks[1]);  // before task 2, which was taken
  queue.put_back(&tasks[0]);
  queue.push_back(&tasks[3]);
  for (ptrdiff_t i = 0; i <= 3; i++) {
    EXPECT_EQ(index_of(tasks, queue.pop()), i);
  }
  EXPECT_EQ(queue.pop(), nullptr);
}

// Threads push to either end while one pops, and now and then puts back what it has popped. Each
// task comes once. What a thread pushes to the back comes in its order, and a pop() that begins
// after a push has returned finds something.
TEST(SeriesQueueStress, NothingIsLostDoubledOrOvertaken) {
  constexpr size_t kThreads = 2;
  constexpr size_t kTasks = 400;
  const int64_t rounds = env_number("WORKFLOW_TEST_ROUNDS", test_support::kSanitized ? 100 : 1000);
  for (int64_t round = 0; round < rounds; round++) {
    std::vector<Queued> tasks(kThreads * kTasks);
    std::vector<char> to_front(tasks.size());
    TestRandom random(test_support::test_seed(), static_cast<uint64_t>(round));
    // From tasks that are alone to long lists.
    const uint64_t pause = random.below(60);
    for (char& front : to_front) {
      front = random.one_in(4) ? 1 : 0;
    }
    SeriesQueue queue;
    std::atomic<size_t> pushed{0};
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreads; thread++) {
      threads.emplace_back([&, thread] {
        for (size_t i = thread * kTasks; i < (thread + 1) * kTasks; i++) {
          if (to_front[i]) {
            queue.push_front(&tasks[i]);
          } else {
            queue.push_back(&tasks[i]);
          }
          pushed.fetch_add(1, std::memory_order_release);
          for (uint64_t k = 0; k < pause; k++) {
            (void)pushed.load(std::memory_order_relaxed);
          }
        }
      });
    }
    std::vector<char> seen(tasks.size());
    std::array<ptrdiff_t, kThreads> last{-1, -1};
    size_t popped = 0;
    while (popped < tasks.size()) {
      const bool has_some = pushed.load(std::memory_order_acquire) > popped;
      const ptrdiff_t i = index_of(tasks, queue.pop());
      if (i < 0) {
        EXPECT_FALSE(has_some) << "round " << round;
        continue;
      }
      const auto index = static_cast<size_t>(i);
      if (random.one_in(8)) {
        queue.put_back(&tasks[index]);
        continue;
      }
      EXPECT_FALSE(seen[index]) << "round " << round;
      seen[index] = 1;
      popped++;
      if (!to_front[index]) {
        EXPECT_GT(i, last[index / kTasks]) << "round " << round;
        last[index / kTasks] = i;
      }
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    ASSERT_EQ(queue.pop(), nullptr);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
