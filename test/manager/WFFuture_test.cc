#include "workflow/WFFuture.h"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "FutureStatus.h"
#include "support/Tally.h"

using manager_test::kReady;
using manager_test::kTimeout;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using test_support::kPatience;

namespace {

int64_t to_ns(double seconds) {
  return workflow::Duration(std::chrono::duration<double>(seconds)).positive_ns();
}

}  // namespace

TEST(WFFuture, GivesTheValueThatWasSetBefore) {
  WFPromise<int> promise;
  WFFuture<int> future = promise.get_future();
  promise.set_value(42);
  EXPECT_EQ(future.wait_for(nanoseconds(0)), kReady);
  EXPECT_EQ(future.get(), 42);
  EXPECT_FALSE(future.valid());
}

TEST(WFFuture, WaitsForTheValueOfAnotherThread) {
  WFPromise<std::string> promise;
  WFFuture<std::string> future = promise.get_future();
  std::thread setter([&promise] { promise.set_value("value"); });
  EXPECT_EQ(future.get(), "value");
  setter.join();
}

TEST(WFFuture, OfVoid) {
  WFPromise<void> promise;
  WFFuture<void> future = promise.get_future();
  EXPECT_EQ(future.wait_for(milliseconds(1)), kTimeout);
  std::thread setter([&promise] { promise.set_value(); });
  future.wait();
  future.get();
  EXPECT_FALSE(future.valid());
  setter.join();
}

TEST(WFFuture, OfAMoveOnlyTypeAndOfOneWithoutDefaultConstructor) {
  struct NoDefault {
    explicit NoDefault(int v) : value(v) {}
    int value;
  };
  WFPromise<std::unique_ptr<int>> first;
  WFFuture<std::unique_ptr<int>> first_future = first.get_future();
  first.set_value(std::make_unique<int>(1));
  EXPECT_EQ(*first_future.get(), 1);
  WFPromise<NoDefault> second;
  WFFuture<NoDefault> second_future = second.get_future();
  const NoDefault kept(2);
  second.set_value(kept);
  EXPECT_EQ(second_future.get().value, 2);
  WFPromise<std::pair<int, int>> third;
  WFFuture<std::pair<int, int>> third_future = third.get_future();
  third.set_value({3, 4});
  EXPECT_EQ(third_future.get(), (std::pair<int, int>{3, 4}));
}

TEST(WFFuture, OnlyTheFirstValueCounts) {
  WFPromise<int> promise;
  WFFuture<int> future = promise.get_future();
  promise.set_value(1);
  promise.set_value(2);
  EXPECT_EQ(future.get(), 1);
}

TEST(WFFuture, ValidTellsWhetherThereIsAnythingToWaitFor) {
  WFFuture<int> future;
  EXPECT_FALSE(future.valid());
  WFPromise<int> promise;
  future = promise.get_future();
  EXPECT_TRUE(future.valid());
  WFFuture<int> moved = std::move(future);
  EXPECT_FALSE(future.valid());
  EXPECT_TRUE(moved.valid());
  EXPECT_FALSE(promise.get_future().valid());
}

TEST(WFFuture, TimedWaitsEndWithoutAValueAndNotEarly) {
  WFPromise<int> promise;
  WFFuture<int> future = promise.get_future();
  EXPECT_EQ(future.wait_for(nanoseconds(0)), kTimeout);
  EXPECT_EQ(future.wait_for(milliseconds(-5)), kTimeout);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(future.wait_for(milliseconds(20)), kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(20));
  EXPECT_EQ(future.wait_until(begin + milliseconds(40)), kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(40));
  EXPECT_EQ(future.wait_until(std::chrono::system_clock::now() - milliseconds(1)), kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  promise.set_value(1);
  EXPECT_EQ(future.wait_for(milliseconds(-5)), kReady);
  EXPECT_EQ(future.wait_until(begin), kReady);
}

TEST(WFFuture, TimedWaitsEndWithTheValue) {
  WFPromise<int> promise;
  WFFuture<int> future = promise.get_future();
  std::thread setter([&promise] { promise.set_value(1); });
  EXPECT_EQ(future.wait_for(std::chrono::hours::max()), kReady);
  EXPECT_EQ(future.wait_until(std::chrono::steady_clock::time_point::max()), kReady);
  EXPECT_EQ(future.wait_for(std::chrono::duration<double>(1e300)), kReady);
  setter.join();
}

TEST(WFFuture, DurationsAreRoundedUpAndLimited) {
  EXPECT_EQ(to_ns(0), 0);
  EXPECT_EQ(to_ns(-1), 0);
  EXPECT_EQ(to_ns(std::numeric_limits<double>::quiet_NaN()), 0);
  EXPECT_EQ(to_ns(0.1e-9), 1);
  EXPECT_EQ(to_ns(1.5), 1'500'000'000);
  EXPECT_EQ(to_ns(1e30), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(to_ns(std::numeric_limits<double>::infinity()), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(workflow::Duration(std::chrono::hours::min()).positive_ns(), 0);
}

TEST(WFFuture, ABrokenPromiseEndsTheWaitAndGetThrows) {
  std::optional<WFPromise<int>> promise(std::in_place);
  WFFuture<int> future = promise->get_future();
  std::thread breaker([&promise] { promise.reset(); });
  future.wait();
  breaker.join();
  EXPECT_EQ(future.wait_for(nanoseconds(0)), kReady);
  try {
    future.get();
    FAIL();
  } catch (const std::future_error& error) {
    EXPECT_EQ(error.code(), std::future_errc::broken_promise);
  }
  EXPECT_FALSE(future.valid());
}

TEST(WFFuture, PromisesMove) {
  WFPromise<int> first;
  WFFuture<int> first_future = first.get_future();
  WFPromise<int> second = std::move(first);
  second.set_value(1);
  EXPECT_EQ(first_future.get(), 1);
  WFPromise<int> third;
  WFFuture<int> third_future = third.get_future();
  third = WFPromise<int>();
  EXPECT_EQ(third_future.wait_for(nanoseconds(0)), kReady);
  EXPECT_THROW(third_future.get(), std::future_error);
  EXPECT_TRUE(third.get_future().valid());
}

TEST(WFFuture, ThePromiseMayDieAsSoonAsTheWaiterIsAwake) {
  for (int round = 0; round < 2000; round++) {
    std::thread setter;
    {
      WFPromise<std::string> promise;
      WFFuture<std::string> future = promise.get_future();
      setter = std::thread([&promise] { promise.set_value("value"); });
      EXPECT_EQ(future.get(), "value");
    }
    setter.join();
  }
}

TEST(WFFuture, TakesOverAFutureOfTheStandardLibrary) {
  std::promise<std::string> promise;
  std::future<std::string> standard = promise.get_future();
  WFFuture<std::string> future(std::move(standard));
  EXPECT_FALSE(standard.valid());
  EXPECT_TRUE(future.valid());
  EXPECT_EQ(future.wait_for(nanoseconds(0)), kTimeout);
  EXPECT_EQ(future.wait_for(milliseconds(1)), kTimeout);
  EXPECT_EQ(future.wait_until(std::chrono::steady_clock::now() + milliseconds(1)), kTimeout);
  WFFuture<std::string> moved = std::move(future);
  EXPECT_FALSE(future.valid());
  std::thread setter([&promise] { promise.set_value("value"); });
  moved.wait();
  EXPECT_EQ(moved.wait_for(nanoseconds(-1)), kReady);
  EXPECT_EQ(moved.get(), "value");
  EXPECT_FALSE(moved.valid());
  setter.join();
}

TEST(WFFuture, GivesTheExceptionOfAFutureOfTheStandardLibrary) {
  std::promise<void> promise;
  WFFuture<void> future = promise.get_future();
  promise.set_exception(std::make_exception_ptr(std::runtime_error("reason")));
  EXPECT_EQ(future.wait_for(nanoseconds(0)), kReady);
  EXPECT_THROW(future.get(), std::runtime_error);
  EXPECT_FALSE(future.valid());
  EXPECT_FALSE(WFFuture<int>(std::future<int>()).valid());
}

TEST(WFFuture, RunsADeferredFunctionOfTheStandardLibrary) {
  WFFuture<int> future(std::async(std::launch::deferred, [] { return 42; }));
  EXPECT_EQ(future.wait_for(milliseconds(1)), std::future_status::deferred);
  EXPECT_EQ(future.get(), 42);
}
