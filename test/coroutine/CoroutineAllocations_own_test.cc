// What coroutines allocate: the frames, which each thread uses again, and no more than that for an
// await besides the task.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

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

WFCo<> sleep_an_hour(WFTimerHandle* handle) {
  (void)co_await wf::sleep(1h, handle);
}

TEST(CoroutineAllocations, ASleepingCoroutineTakesItsTaskItsFrameAndItsTimer) {
  const auto run = []() -> WFCo<> {
    WFTimerHandle handle;
    wf::task(sleep_an_hour, &handle)->start();  // now slots of handles and the like are there
    EXPECT_EQ(handle.cancel(), WF_TIMER_WON);
    const size_t blocks = blocks_taken;
    const size_t bytes = bytes_taken;
    // Started in a callback, so that it sleeps when start() returns.
    wf::task(sleep_an_hour, &handle)->start();
    EXPECT_LE(blocks_taken - blocks, 3u);
    EXPECT_LE(bytes_taken - bytes, 450u);
    EXPECT_EQ(handle.cancel(), WF_TIMER_WON);
    co_return;
  };
  wf::wait(run);
}

}  // namespace
