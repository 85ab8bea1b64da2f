#include "workflow/detail/FutexMutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/TestSeed.h"
#include "util/FutexCondition.h"
#include "util/Time.h"

// The mutex and the condition variable of the library's own locks. test/model/mutex.pml has every
// order of their steps; here they run, with the memory orders that they have.

namespace {

using test_support::TestRandom;
using workflow::FutexCondition;
using workflow::FutexMutex;
using workflow::kNever;
using workflow::kNsPerMs;
using workflow::monotonic_ns;

constexpr int kThreads = 4;

template <class BODY>
void run_threads(int count, const BODY& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; i++) {
    threads.emplace_back([&body, i] { body(i); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Long enough, at random, for others to stop trying and to sleep.
void stay(TestRandom& random) {
  if (random.one_in(50)) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(60)));
  }
}

}  // namespace

TEST(FutexMutex, IsOneWord) {
  EXPECT_EQ(sizeof(FutexMutex), 4U);
}

TEST(FutexMutex, CanBeTakenOnce) {
  FutexMutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(FutexMutex, OneThreadAtATimeHoldsIt) {
  const uint64_t seed = test_support::test_seed();
  FutexMutex mutex;
  int64_t count = 0;  // guarded by the mutex
  run_threads(kThreads, [&](int thread) {
    TestRandom random(seed + static_cast<uint64_t>(thread));
    for (int i = 0; i < 5000; i++) {
      const std::lock_guard lock(mutex);
      const int64_t before = count;
      stay(random);
      count = before + 1;
    }
  });
  EXPECT_EQ(count, kThreads * 5000);
}

// A thread that sleeps is woken, however many others sleep.
TEST(FutexMutex, WhoeverSleepsIsWoken) {
  FutexMutex mutex;
  for (int round = 0; round < 200; round++) {
    std::atomic<int> over{0};
    mutex.lock();
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
      threads.emplace_back([&] {
        mutex.lock();
        mutex.unlock();
        over++;
      });
    }
    // In some rounds all of them sleep by now.
    std::this_thread::sleep_for(std::chrono::microseconds(round * 5));
    EXPECT_EQ(over, 0);
    mutex.unlock();
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(over, kThreads);
  }
}

// The thread that unlocked it before does not use it any more.
TEST(FutexMutex, MayBeDestroyedByTheNextThreadThatHasLockedIt) {
  struct Shared {
    FutexMutex mutex;
    bool is_last = false;
  };
  const uint64_t seed = test_support::test_seed();
  TestRandom random(seed);
  for (int round = 0; round < 2000; round++) {
    auto* const shared = new Shared;
    const uint64_t pause = random.below(30);
    const auto leave = [shared] {
      shared->mutex.lock();
      const bool is_last = shared->is_last;
      shared->is_last = true;
      shared->mutex.unlock();
      if (is_last) {
        delete shared;
      }
    };
    std::thread other(leave);
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
    leave();
    other.join();
  }
}

TEST(FutexCondition, AWaitEndsWhenItsTimeHasPassed) {
  FutexMutex mutex;
  FutexCondition condition;
  mutex.lock();
  errno = EDOM;
  for (const int64_t deadline_ns : {int64_t{-1}, int64_t{0}, monotonic_ns()}) {
    EXPECT_FALSE(condition.wait_until(mutex, deadline_ns));
    EXPECT_EQ(errno, EDOM);  // a mutex or condition of the standard library keeps it, too
  }
  const int64_t deadline_ns = monotonic_ns() + 5 * kNsPerMs;
  while (condition.wait_until(mutex, deadline_ns)) {
  }
  EXPECT_GE(monotonic_ns(), deadline_ns);
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
}

// Two threads that hand a number to each other would stop if a wake-up got lost.
TEST(FutexCondition, NoWakeUpIsLost) {
  const uint64_t seed = test_support::test_seed();
  for (const bool notify_locked : {false, true}) {
    FutexMutex mutex;
    FutexCondition changed;
    int number = 0;  // guarded by the mutex
    run_threads(2, [&](int parity) {
      TestRandom random(seed + static_cast<uint64_t>(parity));
      for (int i = 0; i < 5000; i++) {
        mutex.lock();
        while (number % 2 != parity) {
          changed.wait(mutex);
        }
        stay(random);
        number++;
        if (notify_locked) {
          changed.notify_one();
        }
        mutex.unlock();
        if (!notify_locked) {
          changed.notify_one();
        }
      }
    });
    EXPECT_EQ(number, 10'000);
  }
}

// As many consumers are woken as there are items, whether a wait has a deadline or not.
TEST(FutexCondition, EachItemWakesAConsumer) {
  constexpr int kItems = 4000;
  const uint64_t seed = test_support::test_seed();
  FutexMutex mutex;
  FutexCondition arrived;
  int items = 0;  // both are guarded by the mutex
  int64_t timeouts = 0;
  run_threads(2 * kThreads, [&](int thread) {
    TestRandom random(seed + static_cast<uint64_t>(thread));
    const bool is_producer = thread < kThreads;
    for (int i = 0; i < kItems; i++) {
      mutex.lock();
      if (is_producer) {
        items++;
        stay(random);
        mutex.unlock();
        arrived.notify_one();
        continue;
      }
      while (items == 0) {
        const bool has_deadline = random.one_in(2);
        const auto span_ns = static_cast<int64_t>(random.below(50'000));
        const int64_t deadline_ns = has_deadline ? monotonic_ns() + span_ns : kNever;
        if (!arrived.wait_until(mutex, deadline_ns)) {
          EXPECT_TRUE(has_deadline);
          timeouts++;
        }
      }
      items--;
      mutex.unlock();
    }
  });
  EXPECT_EQ(items, 0);
  std::printf("%lld waits ended by their deadlines\n", static_cast<long long>(timeouts));
}

TEST(FutexCondition, AllAreWoken) {
  FutexMutex mutex;
  FutexCondition opened;
  for (int round = 0; round < 500; round++) {
    int waiting = 0;  // both are guarded by the mutex
    bool is_open = false;
    run_threads(kThreads + 1, [&](int thread) {
      mutex.lock();
      if (thread < kThreads) {
        waiting++;
        while (!is_open) {
          opened.wait(mutex);
        }
      } else {
        while (waiting < kThreads) {
          mutex.unlock();
          std::this_thread::yield();
          mutex.lock();
        }
        is_open = true;
        opened.notify_all();
      }
      mutex.unlock();
    });
  }
}
