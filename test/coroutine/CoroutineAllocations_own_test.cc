// What coroutines allocate: the frames, which each thread uses again, and no more than that for an
// await besides the task.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "support/Sanitizers.h"
#include "util/Pages.h"
#include "util/Sanitizers.h"
#include "workflow/WFCoroutine.h"

namespace {

// What this thread took. Threads of the library that have only just been started take blocks too.
thread_local size_t blocks_taken = 0;
thread_local size_t bytes_taken = 0;

void* count_block(size_t size) {
  blocks_taken++;
  bytes_taken += size;
  void* const block = std::malloc(size);
  if (!block) throw std::bad_alloc();
  return block;
}

}  // namespace

void* operator new(size_t size) {
  return count_block(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  blocks_taken++;
  bytes_taken += size;
  return std::malloc(size);
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, size_t) noexcept {
  std::free(block);
}

namespace {

using namespace std::chrono_literals;
using F = WFTaskFactory;

constexpr size_t kAwaits = 1000;
#if defined(WORKFLOW_ADDRESS_SANITIZER)
constexpr size_t kFramesOfWork = 1;  // no frame is used again
#else
constexpr size_t kFramesOfWork = 0;
#endif

// The blocks that `work` takes, after it has run once. It does not change its thread.
template <class W>
WFCo<size_t> blocks_of(W& work) {
  co_await work();
  const std::thread::id thread = std::this_thread::get_id();
  const size_t before = blocks_taken;
  co_await work();
  EXPECT_EQ(std::this_thread::get_id(), thread);
  co_return blocks_taken - before;
}
template <class W>
size_t measure(W work) {
  return wf::wait([&work]() -> WFCo<size_t> { return blocks_of(work); });
}

TEST(CoroutineAllocations, AnAwaitTakesNothingBesidesItsTask) {
  const auto empty = []() -> WFCo<> {
    for (size_t i = 0; i < kAwaits; i++)
      (co_await F::create_empty_task()).check();
  };
  EXPECT_EQ(measure(empty), kAwaits + kFramesOfWork);
  const auto count = []() -> WFCo<> {
    for (size_t i = 0; i < kAwaits; i++) {
      WFCounterTask* const counter = F::create_counter_task(1, nullptr);
      counter->count();
      (co_await counter).check();
    }
  };
  EXPECT_EQ(measure(count), kAwaits + kFramesOfWork);
}

WFCo<int> one_child() {
  co_return 1;
}

TEST(CoroutineAllocations, ChildrenUseFramesAgain) {
  if (kFramesOfWork != 0) GTEST_SKIP() << "under AddressSanitizer no frame is used again";
  const auto children = []() -> WFCo<> {
    for (size_t i = 0; i < kAwaits; i++)
      EXPECT_EQ(co_await one_child(), 1);
  };
  EXPECT_EQ(measure(children), 0u);
}

WFCo<> sleep_an_hour(size_t* sleeping) {
  ++*sleeping;
  (void)co_await wf::sleep(1h);
}

// What this thread took, and the process of Pages, from which the blocks of tasks, frames and
// timers come.
size_t all_bytes_taken() {
  using workflow::Pages;
  return bytes_taken + (Pages::plain() ? 0 : Pages::count() * Pages::kSize);
}

// Without optimisation clang keeps more in frames, and that is how sanitizers are used.
constexpr size_t kMax = test_support::kSanitized ? 450 : 320;

// 64 bytes for its task, 112 for its frame (96 with clang) and 136 for its timer.
TEST(CoroutineAllocations, ASleepingCoroutineTakes320Bytes) {
  const auto run = []() -> WFCo<> {
    static size_t sleeping = 0;
    // Started in a callback, so that each of them sleeps when start() returns.
    const auto start = [](size_t n) {
      for (size_t i = 0; i < n; i++)
        wf::task(sleep_an_hour, &sleeping)->start();
    };
    constexpr size_t n = 10'000;
    start(n / 10);  // now what is taken once is there
    const size_t bytes = all_bytes_taken();
    start(n);
    EXPECT_EQ(sleeping, n + n / 10);
    EXPECT_LE((all_bytes_taken() - bytes) / n, kMax);
    co_return;  // they end with the process
  };
  wf::wait(run);
}

}  // namespace
