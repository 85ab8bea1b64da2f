#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <string>

#include "support/Tally.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"

// With one handler thread, a callback that waits for another callback would wait for ever if its
// thread were not lent.

using test_support::Tally;

namespace {

class Lending : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    settings.handler_threads = 1;
    settings.compute_threads = 1;
    WORKFLOW_library_init(&settings);
  }

  // Runs the function in a callback and waits until it has returned.
  static bool run_in_callback(std::function<void()> function) {
    Tally ended;
    WFTaskFactory::create_timer_task(0u, [&](WFTimerTask*) {
      function();
      ended.add();
    })->start();
    return ended.wait_for(1);
  }
};

// Waits `depth` callbacks deep: each waits for the one that it starts.
void nest(int depth) {
  if (depth == 0) {
    return;
  }
  WFFacilities::WaitGroup group(1);
  WFTaskFactory::create_timer_task(0u, [&group, depth](WFTimerTask*) {
    nest(depth - 1);
    group.done();
  })->start();
  group.wait();
}

}  // namespace

TEST_F(Lending, ACallbackWaitsForAnotherCallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_timer_task(1000u, [&group](WFTimerTask*) { group.done(); })->start();
    group.wait();
  }));
}

TEST_F(Lending, ACallbackSleeps) {
  EXPECT_TRUE(run_in_callback([] { WFFacilities::usleep(1000); }));
}

TEST_F(Lending, ACallbackWaitsForAFuture) {
  EXPECT_TRUE(run_in_callback([] {
    WFPromise<int> promise;
    WFFuture<int> future = promise.get_future();
    WFTaskFactory::create_counter_task("name", 1, [&promise](WFCounterTask*) {
      promise.set_value(1);
    })->start();
    WFTaskFactory::create_timer_task(1000u, [](WFTimerTask*) {
      WFTaskFactory::count_by_name("name");
    })->start();
    EXPECT_EQ(future.get(), 1);
  }));
}

TEST_F(Lending, ACallbackWaitsWithALimitForAnotherCallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_timer_task(1000u, [&group](WFTimerTask*) { group.done(); })->start();
    EXPECT_EQ(group.wait(60'000), std::future_status::ready);
  }));
}

TEST_F(Lending, ACallbackWaitsForAGoTaskThatWaitsForACallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup outer(1);
    WFFacilities::go("queue", [&outer] {
      WFFacilities::WaitGroup inner(1);
      WFTaskFactory::create_timer_task(0u, [&inner](WFTimerTask*) { inner.done(); })->start();
      inner.wait();
      outer.done();
    });
    outer.wait();
  }));
}

TEST_F(Lending, AGoTaskWaitsForAnotherOfItsQueue) {
  Tally ended;
  WFFacilities::go("queue", [&ended] {
    WFFacilities::WaitGroup group(1);
    WFFacilities::go("queue", [&group] { group.done(); });
    group.wait();
    ended.add();
  });
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, AGoTaskSleepsWhileOthersRun) {
  Tally ran;
  Tally ended;
  size_t ran_meanwhile = 0;
  WFFacilities::go("queue", [&] {
    // Until the other has run, but not for ever: were the thread not lent, it would run last.
    for (int i = 0; i < 600 && ran.count() == 0; i++) {
      WFFacilities::usleep(100'000);
    }
    ran_meanwhile = ran.count();
    ended.add();
  });
  WFFacilities::go("queue", [&ran] { ran.add(); });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(ran_meanwhile, 1u);
}

TEST_F(Lending, CallbacksWaitFiftyDeep) {
  EXPECT_TRUE(run_in_callback([] { nest(50); }));
}

TEST_F(Lending, AHundredCallbacksSleepSideBySide) {
  // One after the other they would take twenty seconds.
  Tally ended;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; i++) {
    WFTaskFactory::create_timer_task(0u, [&ended](WFTimerTask*) {
      WFFacilities::usleep(200'000);
      ended.add();
    })->start();
  }
  ASSERT_TRUE(ended.wait_for(100));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(Lending, TheNextTaskOfTheSeriesFollowsAfterAWait) {
  std::string order;
  Tally ended;
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task(0u,
                                                                    [&order](WFTimerTask*) {
                                                                      WFFacilities::usleep(1000);
                                                                      order += "a";
                                                                    }),
                                   [&ended](const SeriesWork*) { ended.add(); });
  series->push_back(WFTaskFactory::create_counter_task(0, [&order](WFCounterTask*) {
    WFFacilities::usleep(1000);
    order += "b";
  }));
  series->push_back(WFTaskFactory::create_timer_task(0u, [&order](WFTimerTask*) { order += "c"; }));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(order, "abc");
}
