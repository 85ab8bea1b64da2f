// How long frames live, and that depth costs no stack.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;
using F = WFTaskFactory;

// Notes when it is destroyed.
class Noted {
 public:
  Noted(std::string& log, const char* name) : log_(log), name_(name) {}
  ~Noted() { log_ += name_; }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  std::string& log_;
  const char* const name_;
};

using Suspension = std::function<WFCo<>(WFTimerTask* last)>;

// The innermost coroutine of each: it waits for `last`, whose callback cancels the series.
WFCo<> wait_innermost(std::string& log, WFTimerTask* last) {
  const Noted noted(log, "a");
  (void)co_await last;
  log += "never";
}
WFCo<int> wait_in_an_expression(std::string& log, WFTimerTask* last) {
  const Noted noted(log, "b");
  const Noted* argument = &noted;
  auto size = [](const WFEnd&, const Noted*) { return 1; };
  const int n = size(co_await last, argument);
  log += "never";
  co_return n;
}
WFCo<> wait_in_a_condition(std::string& log, WFTimerTask* last) {
  const Noted noted(log, "c");
  while (co_await last) {
    log += "never";
  }
}
WFCo<> wait_in_a_catch(std::string& log, WFTimerTask* last) {
  const Noted noted(log, "d");
  bool thrown = false;
  try {
    throw std::runtime_error("thrown");
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  if (thrown) (void)co_await last;
  log += "never";
}
WFCo<> nest(std::string& log, const Suspension& inner, WFTimerTask* last) {
  const Noted noted(log, "2");
  co_await inner(last);
  log += "never";
}
WFCo<> nest_twice(std::string& log, const Suspension& inner, WFTimerTask* last) {
  const Noted noted(log, "1");
  co_await nest(log, inner, last);
  log += "never";
}

// Runs a coroutine that is suspended there when its series is cancelled. Returns what was destroyed
// and in which order.
std::string destroyed_at(Suspension (*suspension)(std::string& log)) {
  std::string log;
  Tally ended;
  const Suspension inner = suspension(log);
  WFTimerTask* const last =
      F::create_timer_task(0, 0, [](WFTimerTask* task) { series_of(task)->cancel(); });
  auto* const first = wf::task(nest_twice, std::ref(log), std::cref(inner), last);
  SeriesWork* const series =
      Workflow::create_series_work(first, [&ended](const SeriesWork*) { ended.add(); });
  WFTimerTask* const dropped = F::create_timer_task(0, 0, [&log](WFTimerTask*) { log += "never"; });
  series->push_back(dropped);
  series->start();
  EXPECT_TRUE(ended.wait_for(1));
  return log;
}

TEST(CoroutineFrames, ACancelledSeriesDestroysThemInnermostFirst) {
  EXPECT_EQ(destroyed_at([](std::string& log) -> Suspension {
              return [&log](WFTimerTask* last) { return wait_innermost(log, last); };
            }),
            "a21");
  EXPECT_EQ(destroyed_at([](std::string& log) -> Suspension {
              return [&log](WFTimerTask* last) -> WFCo<> {
                const int n = co_await wait_in_an_expression(log, last);
                static_cast<void>(n);
              };
            }),
            "b21");
  EXPECT_EQ(destroyed_at([](std::string& log) -> Suspension {
              return [&log](WFTimerTask* last) { return wait_in_a_condition(log, last); };
            }),
            "c21");
  EXPECT_EQ(destroyed_at([](std::string& log) -> Suspension {
              return [&log](WFTimerTask* last) { return wait_in_a_catch(log, last); };
            }),
            "d21");
}

TEST(CoroutineFrames, AGroupEndsBeforeTheOneThatWaitsForItIsDestroyed) {
  std::string log;
  Tally ended;
  const auto child = [&log]() -> WFCo<> {
    const Noted noted(log, "child ");
    (co_await wf::sleep(1ms)).check();
  };
  const auto parent = [&]() -> WFCo<> {
    const Noted noted(log, "parent");
    auto* const canceller = F::create_timer_task(0, 0, nullptr);
    SeriesWork* const outer = co_await wf::own_series();
    canceller->set_callback([outer](WFTimerTask*) { outer->cancel(); });
    auto both = co_await wf::all(child(), canceller);
    static_cast<void>(both);
    log += "never";
  };
  Workflow::start_series_work(wf::task(parent), [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log, "child parent");
}

TEST(CoroutineFrames, ADismissedTaskNeverBegins) {
  bool begun = false;
  const auto co = [&begun]() -> WFCo<> {
    begun = true;
    co_return;
  };
  wf::task(co)->dismiss();
  EXPECT_FALSE(begun);
}

TEST(CoroutineFrames, CapturesOfALambdaLiveAsLongAsTheCoroutine) {
  Tally ended;
  {
    const std::string text(100, 'x');
    wf::task([text, &ended]() -> WFCo<> {
      (co_await wf::sleep(0ms)).check();
      EXPECT_EQ(text, std::string(100, 'x'));
      ended.add();
    })->start();
  }
  EXPECT_TRUE(ended.wait_for(1));
}

// Takes its time to be destroyed, and then says so.
class SlowlyGone {
 public:
  explicit SlowlyGone(std::shared_ptr<std::atomic<bool>> gone) : gone_(std::move(gone)) {}
  SlowlyGone(SlowlyGone&&) = default;
  ~SlowlyGone() {
    if (!gone_) return;
    std::this_thread::sleep_for(2ms);  // so that it would be seen if nobody waited
    *gone_ = true;
  }

 private:
  std::shared_ptr<std::atomic<bool>> gone_;
};

TEST(CoroutineFrames, WaitReturnsWhenTheArgumentsAndTheFunctionAreGone) {
  const auto argument_gone = std::make_shared<std::atomic<bool>>(false);
  wf::wait([](const SlowlyGone&) -> WFCo<> { co_return; }, SlowlyGone(argument_gone));
  EXPECT_TRUE(*argument_gone);
  const auto capture_gone = std::make_shared<std::atomic<bool>>(false);
  wf::wait([capture = SlowlyGone(capture_gone)]() -> WFCo<> { co_return; });
  EXPECT_TRUE(*capture_gone);
}

WFCo<int> one() {
  co_return 1;
}
WFCo<int> deep(int depth) {
  if (depth == 0) co_return 0;
  const int inner = co_await deep(depth - 1);
  co_return inner + 1;
}

TEST(CoroutineStack, AMillionSynchronousChildrenTakeConstantStack) {
  constexpr int kMany = 1000000;
  const auto run = []() -> WFCo<int> {
    int sum = 0;
    for (int i = 0; i < kMany; i++)
      sum += co_await one();
    co_return sum;
  };
  EXPECT_EQ(wf::wait(run), kMany);
}

TEST(CoroutineStack, ChildrenOfChildrenTakeConstantStack) {
  EXPECT_EQ(wf::wait(deep, 100000), 100000);
}

TEST(CoroutineStack, AMillionEmptyTasksTakeConstantStack) {
  const auto run = []() -> WFCo<> {
    for (int i = 0; i < 1000000; i++)
      (co_await F::create_empty_task()).check();
  };
  wf::wait(run);
}

TEST(CoroutineStack, ManyThatAreDestroyedAtOnceTakeConstantStack) {
  Tally ended;
  const auto deep_asleep = [](auto self, int depth) -> WFCo<> {
    if (depth > 0) {
      co_await self(self, depth - 1);
    } else {
      (void)co_await F::create_timer_task(0, 0,
                                          [](WFTimerTask* task) { series_of(task)->cancel(); });
    }
  };
  const auto run = [&deep_asleep]() -> WFCo<> { co_await deep_asleep(deep_asleep, 100000); };
  Workflow::start_series_work(wf::task(run), [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

}  // namespace
