#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "factory/GuardTask.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;
using workflow::GuardTask;

namespace {

using Release = int (*)(const std::string&, void*);
constexpr Release kReleases[] = {&WFTaskFactory::release_guard, &WFTaskFactory::release_guard_safe};

LogTask* writing(Log* log, const char* letter, Tally& ended) {
  return new LogTask(log, letter, [&ended](LogTask*) { ended.add(); });
}

WFConditional* guarded(Log* log, const char* letter, Tally& ended, void** slot = nullptr) {
  LogTask* task = writing(log, letter, ended);
  return slot ? WFTaskFactory::create_guard("resource", task, slot)
              : WFTaskFactory::create_guard("resource", task);
}

bool nobody_holds() {
  return GuardTask::registry().empty();
}

}  // namespace

TEST(Guard, TheFirstHoldsTheResourceAtOnce) {
  Log log;
  Tally ended;
  guarded(&log, "a", ended)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_FALSE(nobody_holds());
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 0);
  EXPECT_TRUE(nobody_holds());
}

TEST(Guard, TheNextRunsAfterTheRelease) {
  for (const Release release : kReleases) {
    Log log;
    Tally ended;
    guarded(&log, "a", ended)->start();
    guarded(&log, "b", ended)->start();
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_FALSE(ended.wait_for(2, kQuiet));
    EXPECT_EQ(release("resource", nullptr), 1);
    ASSERT_TRUE(ended.wait_for(2));
    EXPECT_EQ(log.text(), "ab");
    EXPECT_EQ(release("resource", nullptr), 0);
    EXPECT_TRUE(nobody_holds());
  }
}

TEST(Guard, HoldsUntilTheReleaseWhateverItsTaskDoes) {
  Log log;
  Tally ended;
  EXPECT_TRUE(probes::run(guarded(&log, "a", ended)));
  guarded(&log, "b", ended)->start();
  EXPECT_FALSE(ended.wait_for(2, kQuiet));
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 0);
}

TEST(Guard, ServesInTheOrderOfDispatchNotOfCreation) {
  Log log;
  Tally ended;
  std::vector<WFConditional*> guards;
  for (const char* letter : {"a", "b", "c", "d"}) {
    guards.push_back(guarded(&log, letter, ended));
  }
  for (const size_t i : {2u, 0u, 3u, 1u}) {
    guards[i]->start();
  }
  for (size_t n = 1; n <= 4; n++) {
    ASSERT_TRUE(ended.wait_for(n));
    EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), n < 4);
  }
  EXPECT_EQ(log.text(), "cadb");
}

TEST(Guard, IsInLineFromItsTurnInTheSeriesOn) {
  Log log;
  Tally ended;
  auto* held = new HeldTask(&log, "h");
  SeriesWork* series = Workflow::create_series_work(held, nullptr);
  series->push_back(guarded(&log, "a", ended));
  series->start();
  guarded(&log, "b", ended)->start();
  ASSERT_TRUE(ended.wait_for(1));
  held->release();
  EXPECT_FALSE(ended.wait_for(2, kQuiet));
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(log.text(), "bha");
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 0);
}

TEST(Guard, TheMessageOfTheReleaseIsHandedOn) {
  for (const Release release : kReleases) {
    Log log;
    Tally ended;
    void* slots[3] = {&messages[7], &messages[7], &messages[7]};
    for (void*& slot : slots) {
      guarded(&log, "a", ended, &slot)->start();
    }
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(release("resource", &messages[1]), 1);
    ASSERT_TRUE(ended.wait_for(2));
    EXPECT_EQ(release("resource", &messages[2]), 1);
    ASSERT_TRUE(ended.wait_for(3));
    EXPECT_EQ(release("resource", &messages[3]), 0);
    EXPECT_EQ(slots[0], nullptr);  // nobody held it before
    EXPECT_EQ(slots[1], &messages[1]);
    EXPECT_EQ(slots[2], &messages[2]);
  }
}

TEST(Guard, TheMessageOfAReleaseWithoutSuccessorIsLost) {
  Log log;
  Tally ended;
  guarded(&log, "a", ended)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(WFTaskFactory::release_guard("resource", &messages[1]), 0);
  void* slot = &messages[7];
  guarded(&log, "a", ended, &slot)->start();
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(slot, nullptr);
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 0);
}

TEST(Guard, ReleasingWhatNobodyHoldsIsHarmless) {
  for (const Release release : kReleases) {
    EXPECT_EQ(release("resource", &messages[1]), 0);
    Log log;
    Tally ended;
    guarded(&log, "a", ended)->start();
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(release("resource", nullptr), 0);
    EXPECT_EQ(release("resource", nullptr), 0);
    // It did not go in advance to the next.
    guarded(&log, "b", ended)->start();
    guarded(&log, "c", ended)->start();
    ASSERT_TRUE(ended.wait_for(2));
    EXPECT_FALSE(ended.wait_for(3, kQuiet));
    EXPECT_EQ(release("resource", nullptr), 1);
    ASSERT_TRUE(ended.wait_for(3));
    EXPECT_EQ(release("resource", nullptr), 0);
  }
}

TEST(Guard, ReleaseSafeNeverRunsTheNextWithinTheCall) {
  for (int round = 0; round < 100; round++) {
    Log log;
    Tally ended;
    thread_local bool releasing = false;
    std::atomic<bool> nested{false};
    const auto callback = [&](LogTask*) {
      nested = nested || releasing;
      releasing = true;
      WFTaskFactory::release_guard_safe("resource", nullptr);
      releasing = false;
      ended.add();
    };
    for (int i = 0; i < 10; i++) {
      WFTaskFactory::create_guard("resource", new LogTask(&log, "", callback))->start();
    }
    ASSERT_TRUE(ended.wait_for(10));
    EXPECT_FALSE(nested);
  }
}

TEST(Guard, TasksRunOnFrameworkThreadsWhoeverReleases) {
  for (const Release release : kReleases) {
    Log log;
    Tally ended;
    std::atomic<int> elsewhere{0};
    for (int i = 0; i < 3; i++) {
      WFTaskFactory::create_guard("resource", new LogTask(&log, "",
                                                          [&](LogTask*) {
                                                            elsewhere +=
                                                                !probes::on_framework_thread();
                                                            ended.add();
                                                          }))
          ->start();
    }
    for (size_t n = 1; n <= 3; n++) {
      ASSERT_TRUE(ended.wait_for(n));
      EXPECT_EQ(release("resource", nullptr), n < 3);
    }
    EXPECT_EQ(elsewhere, 0);
  }
}

TEST(Guard, OtherResourcesAreOthers) {
  const std::string names[] = {"", std::string("a\0b", 3), std::string("a\0c", 3), "\xff\xfe",
                               std::string(64 * 1024, 'x')};
  Log log;
  Tally ended;
  for (const std::string& name : names) {
    WFTaskFactory::create_guard(name, writing(&log, "a", ended))->start();
  }
  ASSERT_TRUE(ended.wait_for(5));
  for (const std::string& name : names) {
    WFTaskFactory::create_guard(name, writing(&log, "b", ended))->start();
  }
  EXPECT_FALSE(ended.wait_for(6, kQuiet));
  size_t n = 5;
  for (const std::string& name : names) {
    EXPECT_EQ(WFTaskFactory::release_guard(name, nullptr), 1);
    ASSERT_TRUE(ended.wait_for(++n));
    EXPECT_EQ(WFTaskFactory::release_guard(name, nullptr), 0);
  }
  EXPECT_TRUE(nobody_holds());
}

TEST(Guard, UnstartedItIsNotInLine) {
  Log log;
  Tally ended;
  WFConditional* dismissed = guarded(&log, "!", ended);
  EXPECT_TRUE(nobody_holds());
  guarded(&log, "a", ended)->start();
  ASSERT_TRUE(ended.wait_for(1));
  dismissed->dismiss();
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 0);
  EXPECT_TRUE(probes::all_gone());
}

TEST(Guard, WhoseSeriesIsCancelledWhileItWaitsPassesTheResourceOn) {
  for (const Release release : kReleases) {
    Log log;
    Tally ended;
    Tally series_ended;
    guarded(&log, "a", ended)->start();
    ASSERT_TRUE(ended.wait_for(1));
    for (int i = 0; i < 3; i++) {
      SeriesWork* series =
          new CountedSeries(guarded(&log, "!", ended), probes::counting(series_ended));
      series->push_back(new LogTask(&log, "!"));
      series->start();
      series->cancel();
    }
    void* slot = nullptr;
    guarded(&log, "b", ended, &slot)->start();
    // It went to the first of the cancelled ones.
    EXPECT_EQ(release("resource", &messages[4]), 1);
    ASSERT_TRUE(ended.wait_for(2));
    EXPECT_TRUE(series_ended.wait_for(3));
    EXPECT_EQ(log.text(), "ab");
    EXPECT_EQ(slot, &messages[4]);
    EXPECT_EQ(release("resource", nullptr), 0);
    EXPECT_TRUE(probes::all_gone());
    EXPECT_TRUE(nobody_holds());
  }
}

TEST(Guard, OfACancelledSeriesAloneLeavesTheResourceFree) {
  Log log;
  Tally ended;
  Tally series_ended;
  guarded(&log, "a", ended)->start();
  ASSERT_TRUE(ended.wait_for(1));
  SeriesWork* series = new CountedSeries(guarded(&log, "!", ended), probes::counting(series_ended));
  series->start();
  series->cancel();
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 1);
  ASSERT_TRUE(series_ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_TRUE(nobody_holds());
  EXPECT_EQ(log.text(), "a");
}

TEST(Guard, NestedGuardsHoldBoth) {
  Log log;
  Tally ended;
  WFTaskFactory::create_guard("outer",
                              WFTaskFactory::create_guard("inner", writing(&log, "a", ended)))
      ->start();
  ASSERT_TRUE(ended.wait_for(1));
  WFTaskFactory::create_guard("inner", writing(&log, "b", ended))->start();
  WFTaskFactory::create_guard("outer", writing(&log, "c", ended))->start();
  EXPECT_FALSE(ended.wait_for(2, kQuiet));
  EXPECT_EQ(WFTaskFactory::release_guard("inner", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(WFTaskFactory::release_guard("outer", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(log.text(), "abc");
  EXPECT_EQ(WFTaskFactory::release_guard("inner", nullptr), 0);
  EXPECT_EQ(WFTaskFactory::release_guard("outer", nullptr), 0);
}

TEST(Guard, OneHolderAtATimeAmongManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kGuards = 5000;
  Tally ended;
  Log log;
  std::atomic<int> holders{0};
  std::atomic<int> most{0};
  int count = 0;  // guarded
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; thread++) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kGuards / kThreads; i++) {
        const Release release = kReleases[(i + thread) % 2];
        WFTaskFactory::create_guard("resource", new LogTask(&log, "",
                                                            [&, release](LogTask*) {
                                                              const int now = ++holders;
                                                              if (now > most) most = now;
                                                              count++;
                                                              --holders;
                                                              release("resource", nullptr);
                                                              ended.add();
                                                            }))
            ->start();
      }
    });
  }
  threads.clear();  // joins them
  ASSERT_TRUE(ended.wait_for(kGuards));
  EXPECT_EQ(most, 1);
  EXPECT_EQ(count, kGuards);
  EXPECT_TRUE(nobody_holds());
}

namespace {

// A million in line, each released in the callback of the one before.
void release_a_million(Release release) {
  constexpr int kMillion = probes::kDeep;
  StackSpread stack;
  Tally ended;
  int left = kMillion;
  for (int i = 0; i < kMillion; i++) {
    WFConditional* guard = WFTaskFactory::create_guard(
        "resource", WFTaskFactory::create_counter_task(0, [&, release](WFCounterTask*) {
          stack.note();
          const bool last = --left == 0;
          EXPECT_EQ(release("resource", nullptr), !last);
          if (last) ended.add();
        }));
    // The line stands before the first begins.
    if (i == 0) {
      WFTaskFactory::create_guard("resource", WFTaskFactory::create_empty_task())->start();
    }
    guard->start();
  }
  EXPECT_EQ(release("resource", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), probes::kNestedSpread);
  EXPECT_TRUE(nobody_holds());
}

}  // namespace

TEST(GuardStack, OfAMillionReleasedInTheCallbackOfTheOneBefore) {
  release_a_million(&WFTaskFactory::release_guard);
}

TEST(GuardStack, OfAMillionReleasedSafely) {
  release_a_million(&WFTaskFactory::release_guard_safe);
}

TEST(GuardStack, OfAHundredThousandInCancelledSeries) {
  constexpr size_t kGuards = 100'000;
  Tally ended;
  StackSpread stack;
  WFTaskFactory::create_guard("resource", WFTaskFactory::create_empty_task())->start();
  for (size_t i = 0; i < kGuards; i++) {
    SeriesWork* series = Workflow::create_series_work(
        WFTaskFactory::create_guard("resource", WFTaskFactory::create_empty_task()),
        [&](const SeriesWork*) {
          stack.note();
          ended.add();
        });
    series->start();
    series->cancel();
  }
  EXPECT_EQ(WFTaskFactory::release_guard("resource", nullptr), 1);
  ASSERT_TRUE(ended.wait_for(kGuards));
  EXPECT_LT(stack.spread(), probes::kNestedSpread);
  EXPECT_TRUE(nobody_holds());
}
