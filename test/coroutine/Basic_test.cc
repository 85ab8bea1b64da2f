// What every coroutine promises: when it begins, how it waits, and how it ends.

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

WFCo<> sleep_and_count(Tally& tally) {
  const WFEnd end = co_await wf::sleep(1ms);
  EXPECT_TRUE(end);
  tally.add();
}

TEST(CoroutineBasic, TaskRunsTheCoroutine) {
  Tally tally;
  wf::task(sleep_and_count, std::ref(tally))->start();
  tally.wait_for(1);
}

WFCo<> without_variables() {
  if (co_await wf::sleep(0ms)) co_return;
}
WFCo<> without_variables_in_a_loop() {
  while (!co_await wf::sleep(0ms)) {
  }
}

TEST(CoroutineBasic, ACoroutineNeedsNoVariables) {
  Tally tally;
  SeriesWork* series = Workflow::create_series_work(wf::task(without_variables),
                                                    [&tally](const SeriesWork*) { tally.add(); });
  series->push_back(wf::task(without_variables_in_a_loop));
  series->start();
  tally.wait_for(1);
}

WFCo<int> twice(int n) {
  co_return 2 * n;
}
WFCo<std::string> text_of(int n) {
  if (n < 0) throw std::runtime_error("negative");
  std::string text;
  for (int i = 0; i < n; i++)
    text += 'a';
  (co_await wf::sleep(0ms)).check();
  co_return text;
}
WFCo<> children(Tally& tally) {
  EXPECT_EQ(co_await twice(21), 42);
  EXPECT_EQ(co_await text_of(3), "aaa");
  EXPECT_EQ((co_await text_of(3)).size(), 3u);
  bool thrown = false;
  try {
    co_await text_of(-1);
  } catch (const std::runtime_error& error) {
    thrown = true;
    EXPECT_STREQ(error.what(), "negative");
  }
  EXPECT_TRUE(thrown);
  tally.add();
}

TEST(CoroutineBasic, ChildrenReturnValuesAndThrow) {
  Tally tally;
  wf::task(children, std::ref(tally))->start();
  tally.wait_for(1);
}

WFCo<> synchronous_children(Tally& tally) {
  long sum = 0;
  for (int i = 0; i < 100000; i++) {
    sum += co_await twice(1);
  }
  EXPECT_EQ(sum, 200000);
  tally.add();
}

TEST(CoroutineBasic, ManyChildrenTakeConstantStack) {
  Tally tally;
  wf::task(synchronous_children, std::ref(tally))->start();
  tally.wait_for(1);
}

WFCo<> goes(Tally& tally) {
  int borrowed = 5;
  auto end = co_await wf::go(
      "queue", [&borrowed](int n) { return borrowed + n; }, 7);
  EXPECT_TRUE(end);
  EXPECT_EQ(std::move(end).get(), 12);
  auto nothing = co_await wf::go("queue", [&borrowed] { borrowed = 1; });
  EXPECT_TRUE(nothing);
  EXPECT_EQ(borrowed, 1);
  tally.add();
}

TEST(CoroutineBasic, GoGivesTheResultOfTheFunction) {
  Tally tally;
  wf::task(goes, std::ref(tally))->start();
  tally.wait_for(1);
}

}  // namespace
