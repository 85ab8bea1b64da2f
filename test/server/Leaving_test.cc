#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"

// A client that leaves while its reply is delayed: what the request learns of it, and when.

namespace server_test {
namespace {

using std::chrono::milliseconds;
using test_support::Tally;

struct Seen {
  std::atomic<int> hooks{0};
  std::atomic<int> state{-1};
  std::atomic<int> error{-1};
  std::atomic<int> ended{0};
};

// An hour's timer, whose end is noted.
WFTimerTask* watched_hour(Seen& seen) {
  return WFTaskFactory::create_timer_task(3600, 0, [&seen](WFTimerTask* timer) {
    seen.state = timer->get_state();
    seen.error = timer->get_error();
    seen.ended++;
  });
}

bool all_ended(const Seen& seen, int count) {
  return eventually([&] { return seen.ended == count; });
}

class OnClosed : public testing::TestWithParam<Transport> {};
class CancelTimersOnClosed : public testing::TestWithParam<Transport> {};

}  // namespace

TEST_P(OnClosed, IsCalledOnceWhenTheClientLeaves) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->on_closed([&seen, task] {
      EXPECT_TRUE(task->closed());
      seen.hooks++;
      WFTaskFactory::cancel_by_name("delay");
    });
    series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
    task->set_callback([&seen](WFHttpTask*) { seen.ended++; });
  });
  RawClient client = server.asking_client();
  EXPECT_EQ(seen.hooks, 0);
  client.close();
  ASSERT_TRUE(all_ended(seen, 1));
  EXPECT_EQ(seen.hooks, 1);
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_EQ(seen.hooks, 1);
}

TEST_P(OnClosed, IsCalledSoonWhenTheClientHasLeftAlready) {
  Seen seen;
  std::atomic<bool> sent{false};
  TestServer server(GetParam(), [&](WFHttpTask* task) {
    ASSERT_TRUE(eventually([&] { return sent && task->closed(); }));
    // First the timer: the hook may run as soon as it is set.
    series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
    task->on_closed([&seen] {
      seen.hooks++;
      WFTaskFactory::cancel_by_name("delay");
    });
    task->set_callback([&seen](WFHttpTask*) { seen.ended++; });
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  client.reset();
  sent = true;
  ASSERT_TRUE(all_ended(seen, 1));
  EXPECT_EQ(seen.hooks, 1);
}

TEST_P(OnClosed, IsNotCalledForOneThatStays) {
  Seen seen;
  TestServer server(GetParam(),
                    [&seen](WFHttpTask* task) { task->on_closed([&seen] { seen.hooks++; }); });
  {
    RawClient client = server.client();
    for (int i = 0; i < 10; i++) {
      EXPECT_EQ(client.ask(kGet)->status, 200);
    }
  }
  ASSERT_TRUE(server.has_connections(0));
  EXPECT_EQ(seen.hooks, 0);
}

TEST_P(OnClosed, ALaterHookTakesThePlaceOfTheFirst) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->on_closed([] { ADD_FAILURE() << "replaced"; });
    task->on_closed([&seen] {
      seen.hooks++;
      WFTaskFactory::cancel_by_name("delay");
    });
    series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(server.has_connections(0));
  EXPECT_EQ(seen.hooks, 1);
}

// The task must live as long as its hook runs.
TEST_P(OnClosed, TheReplyWaitsForAHookThatRuns) {
  Seen seen;
  std::atomic<bool> in_hook{false};
  std::atomic<bool> go_on{false};
  TestServer server(GetParam(), [&](WFHttpTask* task) {
    task->on_closed([&, task] {
      in_hook = true;
      ASSERT_TRUE(eventually([&] { return go_on.load(); }));
      EXPECT_EQ(seen.ended, 0);
      EXPECT_NE(series_of(task), nullptr);
      seen.hooks++;
    });
    series_of(task)->push_back(WFTaskFactory::create_timer_task("delay", 3600, 0, nullptr));
    task->set_callback([&seen](WFHttpTask*) { seen.ended++; });
  });
  RawClient client = server.asking_client();
  client.half_close();
  ASSERT_TRUE(eventually([&] { return in_hook.load(); }));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("delay"), 1);
  EXPECT_TRUE(client.silent_for(milliseconds(50)));
  go_on = true;
  EXPECT_EQ(client.status(), 200);  // it had only half-closed
  ASSERT_TRUE(all_ended(seen, 1));
  EXPECT_EQ(seen.hooks, 1);
}

TEST_P(OnClosed, AHookMayEndTheExchangeItself) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, nullptr);
    task->on_closed([&seen, counter] {
      seen.hooks++;
      counter->count();  // the reply, and the end of task and series, are inside this call
    });
    series_of(task)->push_back(counter);
    task->set_callback([&seen](WFHttpTask*) { seen.ended++; });
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(all_ended(seen, 1));
  EXPECT_TRUE(server.has_connections(0));
}

TEST_P(OnClosed, WithTheSeriesCanceledByIt) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    task->on_closed([&seen, task] {
      series_of(task)->cancel();
      seen.hooks++;
    });
    // Dropped without a callback if the client leaves before the timer starts.
    series_of(task)->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
    series_of(task)->push_back(WFTaskFactory::create_timer_task(0, 0, nullptr));
    series_of(task)->set_callback([&seen](const SeriesWork*) { seen.ended++; });
  });
  for (int i = 1; i <= 100; i++) {
    RawClient client = server.client();
    ASSERT_TRUE(client.send(kGet));
    ASSERT_TRUE(eventually([&] { return server.processed() == i; }));
    client.close();
    ASSERT_TRUE(all_ended(seen, i));
    ASSERT_TRUE(server.has_connections(0));
    EXPECT_EQ(seen.ended, i);
    EXPECT_EQ(seen.hooks, i);
  }
}

TEST_P(CancelTimersOnClosed, EndsTheOneThatDelaysTheReply) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    series_of(task)->push_back(watched_hour(seen));
    series_of(task)->push_back(watched_hour(seen));  // starts after that: ends as well
  });
  RawClient client = server.asking_client();
  EXPECT_TRUE(client.silent_for(milliseconds(50)));
  EXPECT_EQ(seen.ended, 0);
  client.close();
  ASSERT_TRUE(all_ended(seen, 2));
  EXPECT_EQ(seen.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(seen.error, ECANCELED);
  EXPECT_TRUE(server.has_connections(0));
}

TEST_P(CancelTimersOnClosed, EndsTimersInWhateverIsInsideTheSeries) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    ParallelWork* inner = Workflow::create_parallel_work(nullptr);
    for (int i = 0; i < 50; i++) {
      inner->add_series(Workflow::create_series_work(watched_hour(seen), nullptr));
    }
    ParallelWork* outer = Workflow::create_parallel_work(nullptr);
    outer->add_series(Workflow::create_series_work(inner, nullptr));
    outer->add_series(Workflow::create_series_work(
        WFTaskFactory::create_module_task(watched_hour(seen), nullptr), nullptr));
    WFGraphTask* graph = WFTaskFactory::create_graph_task(nullptr);
    WFGraphNode& first = graph->create_graph_node(watched_hour(seen));
    WFGraphNode& second = graph->create_graph_node(watched_hour(seen));
    first-- > second;
    outer->add_series(Workflow::create_series_work(graph, nullptr));
    series_of(task)->push_back(outer);
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(all_ended(seen, 53));
  EXPECT_EQ(seen.error, ECANCELED);
  EXPECT_TRUE(server.has_connections(0));
}

TEST_P(CancelTimersOnClosed, NamedOnesLeaveTheirNames) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task("leaving", 3600, 0, [&seen](WFTimerTask* timer) {
          seen.error = timer->get_error();
          seen.ended++;
        }));
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(all_ended(seen, 1));
  EXPECT_EQ(seen.error, ECANCELED);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("leaving"), 0);
}

TEST_P(CancelTimersOnClosed, WithoutItTheDelayGoesOn) {
  Seen seen;
  TestServer server(GetParam(), [&seen](WFHttpTask* task) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        "stays", 3600, 0, [&seen](WFTimerTask*) { seen.ended++; }));
  });
  RawClient client = server.asking_client();
  client.close();
  // Long enough for the server to have seen it leave.
  WFFacilities::usleep(100'000);
  EXPECT_EQ(seen.ended, 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("stays"), 1);
  ASSERT_TRUE(all_ended(seen, 1));
}

// The timer's end, a cancel by its name and the client's leaving meet: each ends once, and the
// counts are true.
TEST_P(CancelTimersOnClosed, MeetsExpiryAndCancel) {
  std::atomic<int> canceled{0};
  std::atomic<int> ended{0};
  TestServer server(GetParam(), [&](WFHttpTask* task) {
    task->cancel_timers_on_closed();
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task("meet", 0, 1'000'000, [&](WFTimerTask* timer) {
          canceled += timer->get_error() == ECANCELED;
          ended++;
        }));
  });
  const int rounds = GetParam() == Transport::kTls ? 200 : 1000;
  int counted = 0;
  for (int i = 1; i <= rounds || (canceled == 0 && i <= 20 * rounds); i++) {
    RawClient client = server.client();
    ASSERT_TRUE(client.send(kGet));
    ASSERT_TRUE(eventually([&] { return server.processed() == i; }));
    std::this_thread::sleep_for(std::chrono::microseconds(i % 1100));  // towards the expiry
    std::thread canceller([&] { counted += WFTaskFactory::cancel_by_name("meet"); });
    client.close();
    canceller.join();
    ASSERT_TRUE(eventually([&] { return ended == i; })) << i;
  }
  EXPECT_LE(counted, canceled);
  EXPECT_GT(canceled, 0);
}

INSTANTIATE_TEST_SUITE_P(All, OnClosed, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);
INSTANTIATE_TEST_SUITE_P(All, CancelTimersOnClosed,
                         testing::Values(Transport::kPlain, Transport::kTls), transport_name);

}  // namespace server_test
