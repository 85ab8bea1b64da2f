#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "support/Tally.h"
#include "support/TestServer.h"

// The request of a server's task is a scope.

namespace server_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

struct Waits {
  std::atomic<int> timer_error{-1};
  std::atomic<int> counter_error{-1};
  test_support::Tally ended;
  WFCounterTask* counter = nullptr;
  WFScope scope;

  // The series waits for a counter and a timer at the same time.
  void wait_in(WFHttpTask* task) {
    scope = task->scope();
    counter = WFTaskFactory::create_counter_task(1, [this](WFCounterTask* ended_task) {
      counter_error = ended_task->get_error();
      ended.add();
    });
    WFTimerTask* timer = WFTaskFactory::create_timer_task(3600, 0, [this](WFTimerTask* ended_task) {
      timer_error = ended_task->get_error();
      ended.add();
    });
    ParallelWork* both = Workflow::create_parallel_work(nullptr);
    both->add_series(Workflow::create_series_work(counter, nullptr));
    both->add_series(Workflow::create_series_work(timer, nullptr));
    series_of(task)->push_back(both);
  }
};

}  // namespace

TEST(RequestScope, EndsEverythingWhenTheClientLeaves) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) {
    task->cancel_on_closed();
    waits.wait_in(task);
  });
  RawClient client = server.asking_client();
  EXPECT_EQ(waits.scope.error(), 0);
  client.close();
  ASSERT_TRUE(waits.ended.wait_for(2));
  EXPECT_EQ(waits.timer_error, ECANCELED);
  EXPECT_EQ(waits.counter_error, ECANCELED);
  EXPECT_EQ(waits.scope.error(), ECANCELED);
  waits.counter->count();  // too late, and still allowed
  ASSERT_TRUE(server.has_connections(0));
}

TEST(RequestScope, TheOlderCallEndsTimersOnly) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    waits.wait_in(task);
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(waits.ended.wait_for(1));
  EXPECT_EQ(waits.timer_error, ECANCELED);
  EXPECT_EQ(waits.counter_error, -1);
  EXPECT_EQ(waits.scope.error(), 0);
  waits.counter->count();
  ASSERT_TRUE(waits.ended.wait_for(2));
  EXPECT_EQ(waits.counter_error, 0);
  ASSERT_TRUE(server.has_connections(0));
}

TEST(RequestScope, BothCallsTogetherEndEverything) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) {
    task->cancel_on_closed();
    task->cancel_timers_on_closed();
    waits.wait_in(task);
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  client.close();
  ASSERT_TRUE(waits.ended.wait_for(2));
  EXPECT_EQ(waits.counter_error, ECANCELED);
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  waits.counter->count();
}

TEST(RequestScope, HasADeadline) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) {
    EXPECT_TRUE(task->set_deadline(milliseconds(20)));
    EXPECT_LE(task->scope().remaining(), milliseconds(20));
    waits.wait_in(task);
    task->get_resp()->append_output_body("late");
  });
  RawClient client = server.client();
  const auto reply = client.ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "late");
  EXPECT_EQ(waits.timer_error, ETIMEDOUT);
  EXPECT_EQ(waits.counter_error, ETIMEDOUT);
  EXPECT_EQ(waits.scope.error(), ETIMEDOUT);
  waits.counter->count();
}

TEST(RequestScope, CanBeCancelledFromOutside) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) { waits.wait_in(task); });
  RawClient client = server.asking_client();
  EXPECT_TRUE(waits.scope.cancel(EBUSY));
  const auto reply = client.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(waits.timer_error, EBUSY);
  EXPECT_EQ(waits.counter_error, EBUSY);
  EXPECT_FALSE(waits.scope.cancel());  // and it is safe to use after the request
  waits.counter->count();
}

TEST(RequestScope, ABoundedStopEndsEverything) {
  Waits waits;
  TestServer server([&](WFHttpTask* task) { waits.wait_in(task); });
  RawClient client = server.asking_client();
  const WFStopResult result = server->stop(0, WF_STOP_FINISH);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_EQ(waits.timer_error, ECANCELED);
  EXPECT_EQ(waits.counter_error, ECANCELED);
  waits.counter->count();
}

// The function may use what the program destroys after the stop.
TEST(RequestScope, ABoundedStopCountsAFunctionThatRuns) {
  test_support::Tally begun;
  test_support::Tally go_on;
  struct WFServerParams params = http_params();
  params.linger_timeout = 50;
  TestServer server(
      [&](WFHttpTask* task) {
        series_of(task)->push_back(WFTaskFactory::create_go_task("queue", [&] {
          begun.add();
          EXPECT_TRUE(go_on.wait_for(1));
        }));
      },
      params);
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(begun.wait_for(1));
  EXPECT_EQ(server->stop(0, WF_STOP_FINISH).running, 1u);
  go_on.add();
  server->wait_finish();
}

TEST(RequestScope, TheNextRequestOfAConnectionHasItsOwn) {
  WFScope first;
  TestServer server([&](WFHttpTask* task) {
    if (!first) {
      first = task->scope();
      EXPECT_TRUE(first.cancel());
    } else {
      EXPECT_NE(task->scope(), first);
      EXPECT_EQ(task->scope().error(), 0);
    }
    EXPECT_EQ(WFScope::current(), task->scope());
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_EQ(client.ask(kGet)->status, 200);
}

TEST(RequestScope, AClientTaskHasNone) {
  WFHttpTask* task = WFTaskFactory::create_http_task("http://127.0.0.1:1/", 0, 0, nullptr);
  EXPECT_FALSE(task->scope());
  EXPECT_FALSE(task->set_deadline(hours(1)));
  task->cancel_on_closed();
  task->dismiss();
}

// The connection is closed while the series runs, so the stop has to find the scope without it.
TEST(RequestScope, EndsWithABoundedStopAlsoWhenTheClientWasCutOffBefore) {
  Waits waits;
  struct WFServerParams params = http_params();
  params.send_timeout = 20;
  TestServer server(
      [&](WFHttpTask* task) {
        const std::string piece(64 * 1024, 'x');
        while (task->push(piece.data(), piece.size()) > 0) {
        }
        EXPECT_TRUE(eventually([task] { return task->closed(); }));
        waits.wait_in(task);
      },
      params);
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  while (!client.take_text(64 * 1024).empty()) {
  }
  ASSERT_TRUE(client.ended());
  EXPECT_EQ(waits.scope.error(), 0);
  const WFStopResult result = server->stop(0, WF_STOP_FINISH);
  EXPECT_EQ(result.cut_short, 0u);  // the client was lost before
  ASSERT_TRUE(waits.ended.wait_for(2));
  EXPECT_EQ(waits.timer_error, ECANCELED);
  EXPECT_EQ(waits.counter_error, ECANCELED);
  EXPECT_EQ(waits.scope.error(), ECANCELED);
  waits.counter->count();  // too late, and still allowed
}

}  // namespace server_test
