// Works that run side by side: all, any, each, within and scope.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

constexpr auto kNever = 1h;

WFCo<int> number(int n) {
  (co_await wf::sleep(0ms)).check();
  co_return n;
}
WFCo<std::string> text() {
  co_return "text";
}
WFCo<> nothing() {
  co_return;
}
WFCo<int> fail() {
  (co_await wf::sleep(0ms)).check();
  throw std::runtime_error("failed");
}
// Counts its end: `ended` is what its wait saw.
WFCo<int> forever(WFEnd& ended) {
  ended = co_await wf::sleep(kNever);
  co_return 0;
}

TEST(CoroutineJoin, AllGivesATupleOfResults) {
  const auto run = []() -> WFCo<> {
    auto [n, s, none, end] = co_await wf::all(number(1), text(), nothing(), wf::sleep(0ms));
    EXPECT_EQ(n, 1);
    EXPECT_EQ(s, "text");
    EXPECT_EQ(none, std::monostate());
    EXPECT_TRUE(end);
  };
  wf::wait(run);
}

TEST(CoroutineJoin, AllEndsTheOthersWhenOneThrows) {
  WFEnd seen;
  const auto run = [&seen]() -> WFCo<> {
    auto both = co_await wf::all(forever(seen), fail());
    static_cast<void>(both);
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
  EXPECT_EQ(seen, (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}));
}

TEST(CoroutineJoin, AllEndedGivesWhatWasThrown) {
  const auto run = []() -> WFCo<> {
    auto [n, failed, none, end] =
        co_await wf::all_ended(number(1), fail(), nothing(), wf::sleep(0ms));
    EXPECT_EQ(std::move(n).get(), 1);
    EXPECT_FALSE(failed);
    EXPECT_THROW(static_cast<void>(std::move(failed).get()), std::runtime_error);
    EXPECT_TRUE(none);
    EXPECT_TRUE(end);
  };
  wf::wait(run);
}

TEST(CoroutineJoin, AllEndedGivesWhatWasThrownBesideAWaitForAResource) {
  int thing = 0;
  void* resources[1] = {&thing};
  WFResourcePool pool(resources, 1);
  const auto run = [&pool]() -> WFCo<> {
    auto [failed] = co_await wf::all_ended(wf::within(kNever, wf::all(wf::take(pool), fail())));
    EXPECT_THROW(static_cast<void>(std::move(failed).get()), std::runtime_error);
  };
  wf::wait(run);
}

TEST(CoroutineJoin, AnyGivesTheFirstAndEndsTheOthers) {
  WFEnd seen;
  const auto run = [&seen]() -> WFCo<> {
    auto first = co_await wf::any(forever(seen), number(5), wf::sleep(kNever));
    EXPECT_EQ(first.index, 1u);
    EXPECT_EQ(std::get<1>(first.value), 5);
    EXPECT_EQ(seen, (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}));
  };
  wf::wait(run);
}

TEST(CoroutineJoin, WithinEndsWhatTakesTooLong) {
  WFEnd seen;
  const auto run = [&seen]() -> WFCo<> {
    const WFEnd late = co_await wf::within(1ms, wf::sleep(kNever));
    EXPECT_EQ(late, (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
    auto in_time = co_await wf::within(kNever, number(3));
    EXPECT_EQ(std::move(in_time).get(), 3);
    auto too_late = co_await wf::within(1ms, forever(seen));
    EXPECT_EQ(static_cast<WFEnd&>(too_late), (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
    EXPECT_EQ(seen, (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
  };
  wf::wait(run);
}

TEST(CoroutineJoin, WithinSaysThatACoroutineWhichReturnsAnOutcomeIsLate) {
  const WFEnd success = {WFT_STATE_SUCCESS, 0};
  const WFEnd failure = {WFT_STATE_TASK_ERROR, 7};
  const WFEnd timed_out = {WFT_STATE_SYS_ERROR, ETIMEDOUT};
  const auto end_as = [](std::chrono::nanoseconds doze, WFEnd end) -> WFCo<WFEnd> {
    (void)co_await wf::sleep(doze);
    co_return end;
  };
  const auto value_as = [](std::chrono::nanoseconds doze, WFEnd end) -> WFCo<WFEnded<int>> {
    (void)co_await wf::sleep(doze);
    co_return WFEnded<int>{end, 5};
  };
  const auto run = [&]() -> WFCo<> {
    for (const WFEnd& end : {success, failure}) {
      const auto ended = co_await wf::within(kNever, end_as(0ns, end));
      EXPECT_EQ(ended, end);
      const auto late = co_await wf::within(1ms, end_as(kNever, end));
      EXPECT_EQ(late, timed_out);
      const auto five = co_await wf::within(kNever, value_as(0ns, end));
      EXPECT_EQ(static_cast<const WFEnd&>(five), end);
      EXPECT_EQ(five.value, 5);
      const auto late_five = co_await wf::within(1ms, value_as(kNever, end));
      EXPECT_EQ(static_cast<const WFEnd&>(late_five), timed_out);
      EXPECT_EQ(late_five.value, 5);
    }
  };
  wf::wait(run);
}

TEST(CoroutineJoin, EachGivesResultsInOrderAndKeepsTheLimit) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto square = [&](int n) -> WFCo<int> {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    (co_await wf::sleep(100us)).check();
    --running;
    co_return n* n;
  };
  const auto run = [&]() -> WFCo<std::vector<int>> {
    std::vector<int> numbers;
    for (int i = 0; i < 20; i++)
      numbers.push_back(i);
    auto squares = co_await wf::each(numbers, 3, square);
    co_return squares;
  };
  const std::vector<int> squares = wf::wait(run);
  ASSERT_EQ(squares.size(), 20u);
  for (int i = 0; i < 20; i++)
    EXPECT_EQ(squares[static_cast<size_t>(i)], i * i);
  EXPECT_LE(most, 3);
}

TEST(CoroutineJoin, EachOfNoneAtATimeTakesOneAtATime) {
  int running = 0;
  int calls = 0;
  const auto alone = [&](int) -> WFCo<> {
    calls++;
    EXPECT_EQ(++running, 1);
    (co_await wf::sleep(100us)).check();
    --running;
  };
  const std::vector<int> numbers(3);
  const auto run = [&]() -> WFCo<> { co_await wf::each(numbers, 0, alone); };
  wf::wait(run);
  EXPECT_EQ(calls, 3);
}

TEST(CoroutineJoin, EachWithoutResultsStopsAtAnException) {
  std::atomic<int> begun{0};
  const auto run = [&]() -> WFCo<> {
    const std::vector<int> numbers(100, 1);
    const auto work = [&](int) -> WFCo<> {
      if (++begun == 3) throw std::runtime_error("third");
      (co_await wf::sleep(0ms)).check();
    };
    co_await wf::each(numbers, 1, work);
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
  EXPECT_EQ(begun, 3);
}

TEST(CoroutineJoin, ScopeJoinsWhatItHasStarted) {
  std::atomic<int> ended{0};
  const auto run = [&]() -> WFCo<int> {
    const auto body = [&](WFScope& scope) -> WFCo<int> {
      for (int i = 0; i < 10; i++) {
        EXPECT_TRUE(scope.start([&ended, i]() -> WFCo<> {
          (co_await wf::sleep(std::chrono::microseconds(i))).check();
          ended++;
        }));
      }
      co_return 7;
    };
    const int result = co_await wf::scope(body);
    EXPECT_EQ(ended, 10);
    co_return result;
  };
  EXPECT_EQ(wf::wait(run), 7);
}

TEST(CoroutineJoin, ScopeEndsItsChildrenWhenOneThrows) {
  WFEnd seen;
  WFScope kept;
  const auto run = [&]() -> WFCo<> {
    co_await wf::scope([&](WFScope& scope) {
      kept = scope;
      scope.start(forever, std::ref(seen));
      scope.start(fail);
    });
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
  EXPECT_EQ(seen, (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}));
  EXPECT_FALSE(kept.start(nothing));
  EXPECT_EQ(errno, ECANCELED);
}

TEST(CoroutineJoin, ScopeCancelEndsWhatWaits) {
  const auto run = []() -> WFCo<> {
    const auto body = [](WFScope& scope) -> WFCo<> {
      scope.cancel(EINTR);
      EXPECT_EQ(co_await wf::sleep(kNever), (WFEnd{WFT_STATE_SYS_ERROR, EINTR}));
    };
    co_await wf::scope(body);
    EXPECT_TRUE(co_await wf::sleep(0ms));
  };
  wf::wait(run);
}

TEST(CoroutineJoin, AllEndedKeepsWhatAFunctionThrows) {
  const auto run = []() -> WFCo<> {
    const auto thrower = []() -> int { throw std::runtime_error("computed"); };
    auto [ended] = co_await wf::all_ended(wf::go("queue", thrower));
    EXPECT_FALSE(ended);
    EXPECT_THROW(static_cast<void>(std::move(ended).get()), std::runtime_error);
  };
  wf::wait(run);
}

// clang 14 does not compile the views of libstdc++ 12.
#if !defined(__clang__)
TEST(CoroutineJoin, EachTakesEndlessRanges) {
  const auto run = []() -> WFCo<> {
    const auto stop_at_ten = [](int n) -> WFCo<> {
      if (n == 10) throw std::runtime_error("ten");
      co_return;
    };
    co_await wf::each(std::views::iota(0), 2, stop_at_ten);
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
}
#endif

// Its iterator has the item in itself, which the next one overwrites.
struct NumbersOfAStream {
  std::istringstream in;
  auto begin() { return std::istream_iterator<int>(in); }
  auto end() { return std::istream_iterator<int>(); }
};

TEST(CoroutineJoin, EachKeepsTheItemsOfAnInputRange) {
  const auto same = [](const int& n) -> WFCo<int> {
    (co_await wf::sleep(0ms)).check();
    co_return n;
  };
  const auto run = [&same]() -> WFCo<std::vector<int>> {
    NumbersOfAStream numbers{std::istringstream("1 2 3 4 5")};
    auto all = co_await wf::each(std::move(numbers), 2, same);
    co_return all;
  };
  EXPECT_EQ(wf::wait(run), (std::vector<int>{1, 2, 3, 4, 5}));
}

struct Constant {
  explicit Constant(int of) : n(of) {}
  const int n;  // so it cannot be assigned
};

TEST(CoroutineJoin, ResultsMayBeReferencesOrConstant) {
  int variable = 0;
  const auto refer = [&variable]() -> WFCo<int&> { co_return variable; };
  const auto constant = []() -> WFCo<Constant> { co_return Constant(4); };
  const auto run = [&]() -> WFCo<> {
    auto gone = co_await wf::go("queue", [&variable]() -> int& { return variable; });
    EXPECT_EQ(&std::move(gone).get(), &variable);
    auto in_time = co_await wf::within(kNever, refer());
    EXPECT_EQ(&std::move(in_time).get(), &variable);
    auto both = co_await wf::all_ended(refer(), constant());
    EXPECT_EQ(&std::move(std::get<0>(both)).get(), &variable);
    EXPECT_EQ(std::move(std::get<1>(both)).get().n, 4);
    auto made = co_await wf::within(kNever, wf::go("queue", [] { return Constant(5); }));
    EXPECT_EQ(std::move(made).get().n, 5);
    auto all = co_await wf::all(refer(), constant());
    EXPECT_EQ(&std::get<0>(all).get(), &variable);
    EXPECT_EQ(std::get<1>(all).n, 4);
  };
  wf::wait(run);
}

TEST(CoroutineJoin, StartFailsInAScopeOfAnotherKind) {
  const WFScope none;
  EXPECT_FALSE(none.start(nothing));
  EXPECT_EQ(errno, EINVAL);
  WFScopeTask* const task =
      WFTaskFactory::create_scope_task(WFTaskFactory::create_empty_task(), nullptr);
  EXPECT_FALSE(task->scope().start(nothing));
  EXPECT_EQ(errno, EINVAL);
  task->dismiss();
}

}  // namespace
