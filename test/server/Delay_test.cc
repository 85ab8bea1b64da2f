#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestServer.h"

// Replies delayed by a timer on the request's series.

namespace server_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// "/?ms=N" waits so long; "/NAME?ms=N" does so under that name. Replies with how the timer ended.
void delay(WFHttpTask* task) {
  const std::string uri = task->get_req()->get_request_uri();
  const std::string name = uri.substr(1, uri.find('?') - 1);
  const unsigned ms = delay_ms(task);
  const auto callback = [task](WFTimerTask* timer) {
    const bool expired = timer->get_state() == WFT_STATE_SUCCESS;
    task->get_resp()->append_output_body(expired                           ? "expired"
                                         : timer->get_error() == ECANCELED ? "cancelled"
                                                                           : "aborted");
  };
  WFTimerTask* timer = name.empty()
                           ? WFTaskFactory::create_timer_task(ms * 1000, callback)
                           : WFTaskFactory::create_timer_task(
                                 name, ms / 1000, static_cast<long>(ms % 1000) * 1000000, callback);
  series_of(task)->push_back(timer);
}

std::vector<RawClient> connect(TestServer& server, int count, const std::string& request) {
  std::vector<RawClient> clients;
  for (int i = 0; i < count; i++) {
    clients.push_back(server.client());
    EXPECT_TRUE(clients.back().send(request)) << i;
  }
  EXPECT_TRUE(eventually([&] { return server.processed() == count; }));
  return clients;
}

}  // namespace

TEST(Delay, RepliesWhenTheTimerExpires) {
  TestServer server(delay);
  RawClient client = server.client();
  const auto start = Clock::now();
  client.send(get("/?ms=100"));
  EXPECT_EQ(client.body(), "expired");
  const auto took = Clock::now() - start;
  EXPECT_GE(took, milliseconds(100));
  EXPECT_LT(took, milliseconds(5000));
}

TEST(Delay, SeveralTimersAddUp) {
  TestServer server([](WFHttpTask* task) {
    for (int i = 0; i < 3; i++) {
      series_of(task)->push_back(WFTaskFactory::create_timer_task(
          30000, [task](WFTimerTask*) { task->get_resp()->append_output_body("x"); }));
    }
  });
  RawClient client = server.client();
  const auto start = Clock::now();
  client.send(kGet);
  EXPECT_EQ(client.body(), "xxx");
  EXPECT_GE(Clock::now() - start, milliseconds(90));
}

TEST(Delay, TimerMayPushFurtherOnes) {
  TestServer server([](WFHttpTask* task) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(1000, [task](WFTimerTask* timer) {
      task->get_resp()->append_output_body("first ");
      series_of(timer)->push_back(WFTaskFactory::create_timer_task(
          1000, [task](WFTimerTask*) { task->get_resp()->append_output_body("second"); }));
    }));
  });
  RawClient client = server.client();
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(client.ask(kGet)->body, "first second");
  }
}

TEST(Delay, CancelByNameSendsTheReplyAtOnce) {
  TestServer server(delay);
  std::vector<RawClient> clients = connect(server, 3, get("/held?ms=3600000"));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("other"), 0);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held", 1), 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 2);
  for (RawClient& client : clients) {
    EXPECT_EQ(client.body(), "cancelled");
    EXPECT_EQ(client.ask(get("/?ms=1"))->body, "expired");
  }
}

TEST(Delay, OneRequestCancelsAnother) {
  TestServer server([](WFHttpTask* task) {
    if (std::string(task->get_req()->get_method()) == "POST") {
      task->get_resp()->append_output_body(std::to_string(WFTaskFactory::cancel_by_name("held")));
    } else {
      delay(task);
    }
  });
  std::vector<RawClient> clients = connect(server, 50, get("/held?ms=3600000"));
  RawClient canceller = server.client();
  EXPECT_EQ(canceller.ask(post("/", ""))->body, "50");
  for (RawClient& client : clients) {
    EXPECT_EQ(client.body(), "cancelled");
  }
}

TEST(Delay, TwoThousandAtOnce) {
  constexpr int kClients = 2000;
  TestServer server(delay);
  std::vector<RawClient> clients = connect(server, kClients, get("/held?ms=3600000"));
  EXPECT_EQ(server->get_conn_count(), static_cast<size_t>(kClients));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), kClients);
  for (RawClient& client : clients) {
    ASSERT_EQ(client.body(), "cancelled");
  }
  const auto start = Clock::now();
  for (RawClient& client : clients) {
    client.send(get("/?ms=50"));
  }
  for (RawClient& client : clients) {
    ASSERT_EQ(client.body(), "expired");
  }
  EXPECT_GE(Clock::now() - start, milliseconds(50));
  EXPECT_LT(Clock::now() - start, milliseconds(test_support::kSanitized ? 30000 : 5000));
  clients.clear();
  EXPECT_TRUE(server.has_connections(0));
}

TEST(Delay, ClientsThatLeaveHarmNobody) {
  std::atomic<int> failed{0};
  std::atomic<int> ended{0};
  TestServer server([&](WFHttpTask* task) {
    delay(task);
    task->set_callback([&](WFHttpTask* each) {
      failed += each->get_state() != WFT_STATE_SUCCESS;
      ended++;
    });
  });
  constexpr int kClients = 300;
  std::vector<RawClient> clients = connect(server, kClients, get("/held?ms=3600000"));
  for (size_t i = 0; i < kClients; i++) {
    switch (i % 4) {
      case 0:
        clients[i].close();
        break;
      case 1:
        clients[i].reset();
        break;
      case 2:
        clients[i].half_close();
        break;
      default:
        break;
    }
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), kClients);
  for (size_t i = 0; i < kClients; i++) {
    if (i % 4 >= 2) {
      EXPECT_EQ(clients[i].body(), "cancelled") << i;
    }
  }
  ASSERT_TRUE(eventually([&] { return ended == kClients; }));
  EXPECT_GE(failed, kClients / 4);  // those that were reset, at least
  EXPECT_LE(failed, kClients / 2);
  EXPECT_TRUE(server.has_connections(kClients / 4));
  clients.clear();
  EXPECT_TRUE(server.has_connections(0));
}

TEST(Delay, CancelledSeriesClosesTheConnection) {
  std::atomic<bool> called{false};
  TestServer server([&](WFHttpTask* task) {
    task->set_callback([&](WFHttpTask*) { called = true; });
    SeriesWork* series = series_of(task);
    series->push_back(WFTaskFactory::create_timer_task(20000, nullptr));
    series->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
    series->cancel();
  });
  RawClient client = server.client();
  client.send(kGet + get("/ignored"));
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_FALSE(called);
  EXPECT_EQ(server.requests(), 1);
}

TEST(Delay, SeriesCancelledFromATimer) {
  test_support::Tally series_ended;
  TestServer server([&](WFHttpTask* task) {
    series_of(task)->set_callback([&](const SeriesWork* series) {
      EXPECT_TRUE(series->is_canceled());
      series_ended.add();
    });
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        10000, [](WFTimerTask* timer) { series_of(timer)->cancel(); }));
    series_of(task)->push_back(WFTaskFactory::create_timer_task(3600, 0, nullptr));
  });
  std::vector<RawClient> clients = connect(server, 20, kGet);
  for (RawClient& client : clients) {
    EXPECT_TRUE(client.ended());
  }
  EXPECT_TRUE(series_ended.wait_for(20));
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_TRUE(eventually([] { return WFTaskFactory::cancel_by_name("held") == 0; }));
}

TEST(Delay, TasksPushedAfterTheReplyRun) {
  test_support::Tally after;
  TestServer server([&](WFHttpTask* task) {
    task->set_callback([&](WFHttpTask* each) {
      series_of(each)->push_back(
          WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { after.add(); }));
    });
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_TRUE(after.wait_for(2));
}

}  // namespace server_test
