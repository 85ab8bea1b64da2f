// What a program may not do with coroutines: it does not compile, or ends with a message.

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "workflow/WFCoroutine.h"

namespace {

using namespace std::chrono_literals;

template <class T>
concept CanBeAwaited = requires(workflow::CoPromise<void>& promise, T&& what) {
  promise.await_transform(std::forward<T>(what));
};

static_assert(CanBeAwaited<WFCo<int>>);
static_assert(!CanBeAwaited<WFCo<int>&>, "a coroutine is awaited where it is made");
static_assert(!CanBeAwaited<const WFCo<int>&>);
static_assert(!std::is_move_constructible_v<WFCo<int>> && !std::is_copy_constructible_v<WFCo<int>>);
static_assert(!std::is_move_assignable_v<WFCo<int>> && !std::is_copy_assignable_v<WFCo<int>>);
static_assert(!std::is_default_constructible_v<WFCo<int>>);

using Sleep = decltype(wf::sleep(1s));
using Hold = decltype(wf::hold("name"));
static_assert(CanBeAwaited<Sleep> && !CanBeAwaited<Sleep&>);
static_assert(CanBeAwaited<Hold> && !CanBeAwaited<Hold&>);
static_assert(CanBeAwaited<WFTimerTask*&> && CanBeAwaited<SubTask*> && CanBeAwaited<SeriesWork*>);
static_assert(!CanBeAwaited<int> && !CanBeAwaited<std::string>);
// Nothing of the library can be awaited in somebody else's coroutine.
template <class T>
concept IsAwaitable = requires(T what) {
  what.await_ready();
}
|| requires(T what) {
  what.operator co_await();
}
|| requires(T what) {
  operator co_await(what);
};
static_assert(!IsAwaitable<WFCo<int>&> && !IsAwaitable<Sleep&> && !IsAwaitable<Hold&>);
// g++ 12 destroys such temporaries in a co_await twice, unless nothing happens then.
static_assert(std::is_trivially_destructible_v<Sleep>);

WFCo<> awaits(SubTask* task) {
  const WFEnd end = co_await task;
  static_cast<void>(end);
}

TEST(CoroutineBadUseDeathTest, ANullTask) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SubTask* const none = nullptr;
  EXPECT_DEATH(wf::wait(awaits, none), "co_await of a null task");
}

TEST(CoroutineBadUseDeathTest, ATaskThatWasStarted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  WFCounterTask* const counter = WFTaskFactory::create_counter_task(1, nullptr);
  counter->start();
  EXPECT_DEATH(wf::wait(awaits, static_cast<SubTask*>(counter)),
               "co_await of a task that was started, or is in a series already");
  counter->count();
}

TEST(CoroutineBadUseDeathTest, ACoroutineThatIsNeverAwaited) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH({ const auto forgotten = awaits(nullptr); },
               "a coroutine was created, but never awaited nor given away");
}

WFCo<> throws() {
  throw std::runtime_error("out of the outermost coroutine");
  co_return;
}

TEST(CoroutineBadUseDeathTest, AnExceptionThatLeavesTheOutermostCoroutine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        wf::task(throws)->start();
        for (;;)
          std::this_thread::sleep_for(1h);
      },
      "out of the outermost coroutine");
}

TEST(CoroutineBadUse, AnExceptionBeforeTheAwaitDestroysTheCoroutine) {
  const auto give = [](WFCo<>, int) {};
  const auto fail = []() -> int { throw std::runtime_error("before"); };
  EXPECT_THROW(give(awaits(nullptr), fail()), std::runtime_error);
}

}  // namespace
