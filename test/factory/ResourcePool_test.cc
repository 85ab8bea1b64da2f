#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

int things[4];
void* const kThings[] = {&things[0], &things[1], &things[2], &things[3]};

// What those who got a resource got, in their order.
class Takers {
 public:
  // Starts one more.
  void take(workflow::ResourceSource& source) {
    const size_t i = slots_.size();
    slots_.push_back(std::make_unique<void*>(nullptr));
    source
        .get(new LogTask(&log_, std::string(1, static_cast<char>('a' + i)),
                         [this](LogTask*) { ended_.add(); }),
             slots_.back().get())
        ->start();
  }
  bool wait_for(size_t n) const { return ended_.wait_for(n); }
  bool quiet_at(size_t n) const { return !ended_.wait_for(n + 1, kQuiet) && ended_.count() == n; }
  void* got(size_t i) const { return *slots_[i]; }
  std::string order() const { return log_.text(); }

 private:
  Log log_;
  Tally ended_;
  std::vector<std::unique_ptr<void*>> slots_;
};

// The largest address first.
class LargestFirst final : public WFResourcePool {
 public:
  LargestFirst(void* const* res, size_t n) : WFResourcePool(res, n), all_(res, res + n) {}

 protected:
  void* pop() override {
    void* largest = *all_.rbegin();
    all_.erase(std::prev(all_.end()));
    return largest;
  }
  void push(void* res) override { all_.insert(res); }

 private:
  std::multiset<void*> all_;
};

}  // namespace

TEST(ResourcePool, TheLastOneIsTakenFirst) {
  WFResourcePool pool(kThings, 3);
  Takers takers;
  for (size_t i = 0; i < 3; i++) {
    takers.take(pool);
    ASSERT_TRUE(takers.wait_for(i + 1));
    EXPECT_EQ(takers.got(i), kThings[2 - i]);
  }
}

TEST(ResourcePool, TheOneGivenBackLastIsTakenFirst) {
  WFResourcePool pool(kThings, 3);
  Takers takers;
  for (int i = 0; i < 3; i++) {
    takers.take(pool);
  }
  ASSERT_TRUE(takers.wait_for(3));
  for (const size_t i : {1u, 2u, 0u}) {
    pool.post(kThings[i]);
  }
  for (const size_t i : {0u, 2u, 1u}) {
    const size_t n = takers.order().size();
    takers.take(pool);
    ASSERT_TRUE(takers.wait_for(n + 1));
    EXPECT_EQ(takers.got(n), kThings[i]);
  }
}

TEST(ResourcePool, WhoFindsNoneWaitsFirstComeFirstServed) {
  WFResourcePool pool(kThings, 1);
  Takers takers;
  for (int i = 0; i < 4; i++) {
    takers.take(pool);
  }
  ASSERT_TRUE(takers.wait_for(1));
  EXPECT_TRUE(takers.quiet_at(1));
  for (size_t i = 1; i < 4; i++) {
    pool.post(kThings[i]);
    ASSERT_TRUE(takers.wait_for(i + 1));
    EXPECT_TRUE(takers.quiet_at(i + 1));
    EXPECT_EQ(takers.got(i), kThings[i]);
  }
  EXPECT_EQ(takers.order(), "abcd");
}

TEST(ResourcePool, IsInLineFromItsDispatchOn) {
  WFResourcePool pool(1);
  Log log;
  Tally ended;
  WFConditional* first = pool.get(new LogTask(&log, "a", [&](LogTask*) { ended.add(); }));
  pool.get(new LogTask(&log, "b", [&](LogTask*) { ended.add(); }))->start();
  first->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_FALSE(ended.wait_for(2, kQuiet));
  pool.post(nullptr);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(log.text(), "ba");
}

TEST(ResourcePool, OfANumberHoldsSoManyNulls) {
  WFResourcePool pool(2);
  Takers takers;
  for (int i = 0; i < 3; i++) {
    takers.take(pool);
  }
  ASSERT_TRUE(takers.wait_for(2));
  EXPECT_TRUE(takers.quiet_at(2));
  EXPECT_EQ(takers.got(0), nullptr);
  pool.post(&things[0]);
  ASSERT_TRUE(takers.wait_for(3));
  EXPECT_EQ(takers.got(2), &things[0]);
}

TEST(ResourcePool, MayBeginEmpty) {
  WFResourcePool pool(0);
  Takers takers;
  takers.take(pool);
  EXPECT_TRUE(takers.quiet_at(0));
  pool.post(&things[1]);
  ASSERT_TRUE(takers.wait_for(1));
  EXPECT_EQ(takers.got(0), &things[1]);
}

TEST(ResourcePool, CopiesTheArray) {
  void* array[] = {&things[0]};
  WFResourcePool pool(array, 1);
  array[0] = nullptr;
  Takers takers;
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(1));
  EXPECT_EQ(takers.got(0), &things[0]);
}

TEST(ResourcePool, TakesMoreThanItBeganWith) {
  WFResourcePool pool(kThings, 1);
  for (size_t i = 1; i < 4; i++) {
    pool.post(kThings[i]);
  }
  Takers takers;
  for (size_t i = 0; i < 4; i++) {
    takers.take(pool);
    ASSERT_TRUE(takers.wait_for(i + 1));
    EXPECT_EQ(takers.got(i), kThings[3 - i]);
  }
  takers.take(pool);
  EXPECT_TRUE(takers.quiet_at(4));
  pool.post(nullptr);
  EXPECT_TRUE(takers.wait_for(5));
}

TEST(ResourcePool, WithoutABufferTheResourceIsInUserData) {
  WFResourcePool pool(kThings, 1);
  Tally ended;
  Log log;
  WFConditional* conditional = pool.get(new HeldTask(&log, ""));
  EXPECT_EQ(conditional->user_data, nullptr);
  conditional->dismiss();
  WFConditional* early = pool.get(new LogTask(&log, "", [&](LogTask*) { ended.add(); }));
  early->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(ResourcePool, ADerivedClassChoosesTheOrder) {
  LargestFirst pool(kThings, 4);
  Takers takers;
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(1));
  EXPECT_EQ(takers.got(0), &things[3]);
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(2));
  EXPECT_EQ(takers.got(1), &things[2]);
  pool.post(&things[3]);
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(3));
  EXPECT_EQ(takers.got(2), &things[3]);
}

TEST(ResourcePool, TheTaskTakesTheConditionalsPlaceInTheSeries) {
  WFResourcePool pool(kThings, 1);
  Log log;
  void* got = nullptr;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
  *series << pool.get(new LogTask(&log, "b", [&](LogTask*) { pool.post(got); }), &got)
          << pool.get(new LogTask(&log, "c", [&](LogTask*) { pool.post(got); }), &got)
          << new LogTask(&log, "d");
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(ResourcePool, InASeriesCancelledBeforeItsTurnTakesNothing) {
  WFResourcePool pool(kThings, 1);
  Log log;
  SeriesWork* series = new CountedSeries(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  series->push_back(pool.get(new LogTask(&log, "!")));
  EXPECT_TRUE(probes::run(series));
  Takers takers;
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(1));
  EXPECT_EQ(takers.got(0), &things[0]);
  EXPECT_EQ(log.text(), "a");
}

TEST(ResourcePool, InASeriesCancelledWhileItWaitsGivesTheResourceBack) {
  WFResourcePool pool(kThings, 1);
  Log log;
  Tally ended;
  Takers takers;
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(1));
  for (int i = 0; i < 3; i++) {
    SeriesWork* series =
        new CountedSeries(pool.get(new LogTask(&log, "!")), probes::counting(ended));
    series->start();
    series->cancel();
  }
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  pool.post(takers.got(0));
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(log.text(), "");
  takers.take(pool);
  ASSERT_TRUE(takers.wait_for(2));
  EXPECT_EQ(takers.got(1), &things[0]);
}

TEST(ResourcePool, DismissedTakesNothing) {
  WFResourcePool pool(kThings, 1);
  Log log;
  pool.get(new LogTask(&log, "!"))->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  Takers takers;
  takers.take(pool);
  EXPECT_TRUE(takers.wait_for(1));
}

TEST(ResourcePool, NeverLendsOneTwiceToManyThreads) {
  constexpr size_t kThreads = 4;
  constexpr size_t kTakes = 1000;  // of each thread
  WFResourcePool pool(kThings, 3);
  std::atomic<int> users[4] = {};
  std::atomic<int> problems{0};
  Tally ended;
  Log log;
  struct Take {
    void* got = nullptr;
  };
  std::vector<Take> takes(kThreads * kTakes);
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < kThreads; thread++) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < kTakes; i++) {
        Take& take = takes[thread * kTakes + i];
        pool.get(new LogTask(&log, "",
                             [&](LogTask*) {
                               const auto which = static_cast<int*>(take.got) - things;
                               problems += users[which].fetch_add(1) != 0;
                               users[which].fetch_sub(1);
                               pool.post(take.got);
                               ended.add();
                             }),
                 &take.got)
            ->start();
      }
    });
  }
  threads.clear();  // joins them
  ASSERT_TRUE(ended.wait_for(kThreads * kTakes));
  EXPECT_EQ(problems, 0);
  // All three are back.
  Takers takers;
  for (int i = 0; i < 4; i++) {
    takers.take(pool);
  }
  ASSERT_TRUE(takers.wait_for(3));
  EXPECT_TRUE(takers.quiet_at(3));
  pool.post(nullptr);
  EXPECT_TRUE(takers.wait_for(4));
}

TEST(ResourcePool, AMillionThatEachPostForTheNextTakeConstantStack) {
  constexpr int kMillion = probes::kDeep;
  WFResourcePool pool(0);
  probes::StackSpread stack;
  Tally ended;
  int left = kMillion;
  for (int i = 0; i < kMillion; i++) {
    pool.get(WFTaskFactory::create_counter_task(0,
                                                [&](WFCounterTask*) {
                                                  stack.note();
                                                  if (--left == 0) {
                                                    ended.add();
                                                  } else {
                                                    pool.post(nullptr);
                                                  }
                                                }))
        ->start();
  }
  pool.post(nullptr);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), probes::kNestedSpread);
}
