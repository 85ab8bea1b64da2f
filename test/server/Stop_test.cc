#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kernel/ThreadContext.h"
#include "support/Background.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"

// Stopping: what is waited for, what is cut, and from where it may be asked for.

namespace server_test {
namespace {

using std::chrono::milliseconds;
using test_support::Background;
using test_support::Tally;

// "/NAME" is held under that name until it is cancelled.
void hold(WFHttpTask* task) {
  echo(task);
  const std::string name = std::string(task->get_req()->get_request_uri()).substr(1);
  if (!name.empty()) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(name, 3600, 0, nullptr));
  }
}

bool can_connect(uint16_t port) {
  RawClient client(port);
  return client.connected();
}

}  // namespace

TEST(Stop, ClosesIdleConnections) {
  TestServer server;
  RawClient fresh = server.client();
  RawClient idle = server.client();
  RawClient partial = server.client();
  EXPECT_EQ(idle.ask(kGet)->status, 200);
  partial.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
  ASSERT_TRUE(server.has_connections(3));
  server->stop();
  EXPECT_EQ(server->get_conn_count(), 0u);
  EXPECT_TRUE(fresh.ended());
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(partial.ended());
  EXPECT_FALSE(can_connect(server.port()));
}

TEST(Stop, WaitsForDelayedRepliesAndClosesAfterThem) {
  TestServer server(hold);
  RawClient first = server.client();
  RawClient second = server.client();
  first.send(get("/held") + get("/never-processed"));
  second.send(get("/held"));
  ASSERT_TRUE(eventually([&] { return server.processed() == 2; }));
  Background stop([&] { server->stop(); });
  // It must not return: the only way to see that is to give it time.
  EXPECT_FALSE(stop.done_within(milliseconds(50)));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 2);
  for (RawClient* client : {&first, &second}) {
    const auto got = client->reply();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 200);
    EXPECT_EQ(got->field("Connection"), "close");
    EXPECT_EQ(client->ending(), Ending::kClosed);
    client->close();
  }
  EXPECT_TRUE(stop.done());
  EXPECT_EQ(server.requests(), 2);
  EXPECT_EQ(server->get_conn_count(), 0u);
}

TEST(Stop, WaitsForTheSeriesNotOnlyForTheReply) {
  std::atomic<bool> ended{false};
  TestServer server([&](WFHttpTask* task) {
    series_of(task)->set_callback([&](const SeriesWork*) { ended = true; });
    task->set_callback([](WFHttpTask* each) {
      series_of(each)->push_back(WFTaskFactory::create_timer_task(80000, nullptr));
    });
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  client.close();
  server->stop();
  EXPECT_TRUE(ended);
}

TEST(Stop, DoesNotWaitForAClientThatStays) {
  TestServer server(hold, patient_params());
  std::optional<Background> stop;  // ends after the client
  RawClient client = server.asking_client(get("/held"));
  stop.emplace([&] { server->stop(); });
  EXPECT_TRUE(eventually([&] { return WFTaskFactory::cancel_by_name("held") == 1; }));
  EXPECT_TRUE(stop->done());
  EXPECT_EQ(client.status(), 200);
}

TEST(Stop, ShutdownReturnsAtOnceAndWaitIsForAnyThread) {
  TestServer server(hold);
  RawClient client = server.asking_client(get("/held"));
  Background first([&] { server->wait_finish(); });
  Background second([&] { server->wait_finish(); });
  EXPECT_FALSE(first.done_within(milliseconds(20)));  // nobody has shut it down
  server->shutdown();
  server->shutdown();
  EXPECT_FALSE(first.done_within(milliseconds(20)));
  EXPECT_FALSE(can_connect(server.port()));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1);
  EXPECT_EQ(client.status(), 200);
  client.close();
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(second.done());
}

TEST(Stop, SeveralStopsAtOnce) {
  TestServer server;
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; i++) {
    clients.push_back(server.client());
    EXPECT_EQ(clients.back().ask(kGet)->status, 200);
  }
  std::vector<std::unique_ptr<Background>> stops;
  for (int i = 0; i < 8; i++) {
    stops.push_back(std::make_unique<Background>([&] { server->stop(); }));
  }
  for (const auto& stop : stops) {
    EXPECT_TRUE(stop->done());
  }
  EXPECT_EQ(server->get_conn_count(), 0u);
}

TEST(Stop, InsideOwnRequestIsRefusedWithAMessage) {
  std::atomic<int> error{0};
  TestServer* self = nullptr;
  TestServer server([&](WFHttpTask*) {
    (*self)->stop();
    error = errno;
  });
  self = &server;
  testing::internal::CaptureStderr();
  RawClient client = server.client();
  client.send(kGet);
  const auto got = client.reply();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->field("Connection"), "close");  // the shutdown counts
  EXPECT_EQ(error, EDEADLK);
  client.close();
  server->wait_finish();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("workflow: "), std::string::npos);
}

TEST(StopDeathTest, DestroyedInsideOwnRequestAbortsWithAMessage) {
  // The threads of the library do not survive a fork.
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        WFHttpServer* server = nullptr;
        server = new WFHttpServer([&](WFHttpTask*) { delete server; });
        server->start("127.0.0.1", 0);
        RawClient client(test_support::port_of(*server));
        client.ask(kGet);
      },
      "workflow: a server was destroyed");
}

// Everywhere in a series of its own: callbacks of timers, computations, the task, the series.
TEST(Stop, InsideOwnSeriesIsRefusedEverywhere) {
  std::atomic<int> refused{0};
  TestServer* self = nullptr;
  const auto stop = [&] {
    errno = 0;
    (*self)->stop();
    refused += errno == EDEADLK;
  };
  TestServer server([&](WFHttpTask* task) {
    SeriesWork* series = series_of(task);
    series->push_back(WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { stop(); }));
    WFGoTask* go = WFTaskFactory::create_go_task("queue", [] {});
    go->set_callback([&](WFGoTask*) { stop(); });
    series->push_back(go);
    WFTimerTask* inner = WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { stop(); });
    ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork*) { stop(); });
    parallel->add_series(Workflow::create_series_work(inner, [&](const SeriesWork*) { stop(); }));
    series->push_back(parallel);
    task->set_callback([&](WFHttpTask*) { stop(); });
    series->set_callback([&](const SeriesWork*) { stop(); });
  });
  self = &server;
  testing::internal::CaptureStderr();
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  client.close();
  EXPECT_TRUE(eventually([&] { return refused == 7; }, milliseconds(5000)));
  EXPECT_EQ(refused, 7);
  server->wait_finish();
  testing::internal::GetCapturedStderr();
}

TEST(Stop, InsideTheFunctionOfAGoTaskIsRefused) {
  std::atomic<int> error{0};
  TestServer* self = nullptr;
  TestServer server([&](WFHttpTask* task) {
    series_of(task)->push_back(WFTaskFactory::create_go_task("queue", [&] {
      (*self)->stop();
      error = errno;
    }));
  });
  self = &server;
  testing::internal::CaptureStderr();
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_EQ(error, EDEADLK);
  client.close();
  server->wait_finish();
  testing::internal::GetCapturedStderr();
}

TEST(Stop, InsideAnotherServersRequest) {
  std::optional<TestServer> other(std::in_place, echo);
  TestServer server([&](WFHttpTask*) { (*other)->stop(); });
  RawClient idle = other->client();
  EXPECT_EQ(idle.ask(kGet)->status, 200);
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ((*other)->get_conn_count(), 0u);
}

TEST(Stop, InsideATimersCallback) {
  TestServer server;
  RawClient idle = server.client();
  EXPECT_EQ(idle.ask(kGet)->status, 200);
  test_support::Tally stopped;
  WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) {
    server->stop();
    stopped.add();
  })->start();
  EXPECT_TRUE(stopped.wait_for(1));
  EXPECT_TRUE(idle.ended());
}

TEST(Stop, InsideNewConnectionIsRefused) {
  class Server final : public WFHttpServer {
   public:
    Server() : WFHttpServer(echo) {}
    ~Server() override { stop(); }
    std::atomic<int> error{0};

   private:
    WFConnection* new_connection(int fd) override {
      stop();
      error = errno;
      return WFHttpServer::new_connection(fd);
    }
  };
  Server server;
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  testing::internal::CaptureStderr();
  RawClient client(test_support::port_of(server));
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(eventually([&] { return server.error == EDEADLK; }));
  server.wait_finish();
  testing::internal::GetCapturedStderr();
}

TEST(Stop, InsideADeletersOfAConnectionIsRefused) {
  std::atomic<int> error{0};
  TestServer* self = nullptr;
  TestServer server([&](WFHttpTask* task) {
    task->get_connection()->set_context(&error, [&](void*) {
      (*self)->stop();
      error = errno;
    });
  });
  self = &server;
  testing::internal::CaptureStderr();
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  client.close();
  EXPECT_TRUE(eventually([&] { return error == EDEADLK; }));
  server->wait_finish();
  testing::internal::GetCapturedStderr();
}

TEST(Stop, DestructorStops) {
  RawClient client;
  Tally processed;
  {
    TestServer server([&](WFHttpTask* task) {
      series_of(task)->push_back(WFTaskFactory::create_timer_task(50000, nullptr));
      processed.add();
    });
    client = server.client();
    client.send(kGet);
    ASSERT_TRUE(processed.wait_for(1));
    Background closer([&] {
      EXPECT_EQ(client.status(), 200);
      client.close();
    });
    ASSERT_TRUE(closer.done());
  }
}

TEST(Stop, SlowReaderIsServedFirst) {
  static const std::string large(size_t{8} * 1024 * 1024, 'x');
  TestServer server([](WFHttpTask* task) { task->get_resp()->append_output_body_nocopy(large); });
  RawClient client(server.port(), 4096);
  client.send(kGet);
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  Background stop([&] { server->stop(); });
  EXPECT_FALSE(stop.done_within(milliseconds(20)));
  EXPECT_TRUE(client.body() == large);
  client.close();
  EXPECT_TRUE(stop.done());
}

TEST(Stop, WaitsForARequestOnAThreadThatHasLedItsPoller) {
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  WORKFLOW_library_init(&settings);
  Tally blocked;
  Tally go_on;
  TestServer server([&](WFHttpTask*) {
    if (workflow::ThreadContext::current().running_for) {
      // Another thread leads the poller when a timer of it has expired.
      Tally replaced;
      WFTaskFactory::create_timer_task(1000, [&](WFTimerTask*) { replaced.add(); })->start();
      EXPECT_TRUE(replaced.wait_for(1));
      blocked.add();
      EXPECT_TRUE(go_on.wait_for(1));
    }
  });
  int replies = 0;
  // A poller whose rounds follow each other closely runs requests itself.
  Background client([&] {
    for (RawClient one = server.client(); one.ask(kGet);) {
      replies++;
    }
  });
  ASSERT_TRUE(blocked.wait_for(1));
  Background stop([&] { server->stop(); });
  EXPECT_FALSE(stop.done_within(milliseconds(20)));
  go_on.add();
  EXPECT_TRUE(stop.done());
  EXPECT_TRUE(client.done());
  EXPECT_EQ(replies, server.requests());
}

TEST(Stop, WaitingInACallbackLendsItsThread) {
  // More callbacks wait than there are handlers: each waits for a request of the other server.
  TestServer inner(hold);
  WFFacilities::WaitGroup all(40);
  TestServer outer([&](WFHttpTask*) {
    all.done();
    all.wait();
  });
  std::vector<RawClient> clients;
  for (int i = 0; i < 40; i++) {
    clients.push_back(outer.client());
    clients.back().send(kGet);
  }
  for (RawClient& client : clients) {
    EXPECT_EQ(client.status(), 200);
  }
}

}  // namespace server_test
