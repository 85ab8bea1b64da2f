#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/Background.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"

// A stop with a time limit: what becomes of the replies that are still delayed, and what it tells.

namespace server_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test_support::Background;

struct BoundedEnds {
  std::atomic<int> count{0};
  std::atomic<int> state{-1};
  std::atomic<int> error{-1};
  std::atomic<int> timer_error{-1};
};

// "/ms=N" is delayed for so long, "/never" by a task that no scope ends; others for an hour.
http_process_t delayed(BoundedEnds& ends, OwnTask** never = nullptr) {
  return [&ends, never](WFHttpTask* task) {
    echo(task);
    task->set_callback([&ends](WFHttpTask* ended) {
      ends.state = ended->get_state();
      ends.error = ended->get_error();
      ends.count++;
    });
    const std::string uri = task->get_req()->get_request_uri();
    if (uri == "/never") {
      *never = new OwnTask;
      series_of(task)->push_back(*never);
      return;
    }
    const unsigned ms = delay_ms(task);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        ms > 0 ? 0 : 3600, ms * 1'000'000L,
        [&ends](WFTimerTask* timer) { ends.timer_error = timer->get_error(); }));
  };
}

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// A stop on a thread of its own. Declare it before the clients: if it lingers, the test fails and
// closes its clients first, and then the stop ends.
class Stopping {
 public:
  void begin(TestServer& server, int timeout, enum WFStopAction action) {
    stop_.emplace([this, &server, timeout, action] { result_ = server->stop(timeout, action); });
  }
  bool ended() const { return stop_->done(); }
  WFStopResult result() const { return result_; }

 private:
  WFStopResult result_ = {};
  std::optional<Background> stop_;
};

class BoundedStop : public testing::TestWithParam<Transport> {};

}  // namespace

TEST_P(BoundedStop, WaitsForRepliesThatComeInTime) {
  BoundedEnds ends;
  TestServer server(delayed(ends), patient_params(), GetParam());
  Stopping stop;
  RawClient client = server.asking_client(get("/ms=200"));
  stop.begin(server, 3600 * 1000, WF_STOP_DROP);
  ASSERT_TRUE(stop.ended());
  EXPECT_EQ(stop.result().cut_short, 0u);
  EXPECT_EQ(stop.result().running, 0u);
  EXPECT_EQ(client.status(), 200);
  EXPECT_EQ(ends.state, WFT_STATE_SUCCESS);
}

TEST_P(BoundedStop, FinishSendsRepliesAsTheyAre) {
  BoundedEnds ends;
  TestServer server(delayed(ends), patient_params(), GetParam());
  Stopping stop;
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; i++) {
    clients.push_back(server.client());
    ASSERT_TRUE(clients.back().send(get("/finish")));
  }
  ASSERT_TRUE(eventually([&] { return server.processed() == 20; }));
  stop.begin(server, 50, WF_STOP_FINISH);
  for (RawClient& client : clients) {
    EXPECT_EQ(client.body(), "GET /finish ");
  }
  ASSERT_TRUE(stop.ended());
  EXPECT_EQ(stop.result().cut_short, 20u);
  EXPECT_EQ(stop.result().running, 0u);
  EXPECT_EQ(ends.count, 20);
  EXPECT_EQ(ends.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(ends.timer_error, ECANCELED);
}

TEST_P(BoundedStop, AnswerTellsTheClients) {
  BoundedEnds ends;
  TestServer server(delayed(ends), patient_params(), GetParam());
  Stopping stop;
  RawClient client = server.asking_client(get("/answer"));
  stop.begin(server, 0, WF_STOP_ANSWER);
  const auto reply = client.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->field("Connection"), "close");
  EXPECT_EQ(client.ending(), Ending::kClosed);
  ASSERT_TRUE(stop.ended());
  EXPECT_EQ(stop.result().cut_short, 1u);
  EXPECT_EQ(stop.result().running, 0u);
  EXPECT_EQ(ends.count, 1);
  EXPECT_EQ(ends.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(ends.error, ECANCELED);
  EXPECT_EQ(ends.timer_error, ECANCELED);
}

TEST_P(BoundedStop, AnswerTellsAClientThatHasSentHalfOfItsNextRequest) {
  BoundedEnds ends;
  TestServer server(delayed(ends), patient_params(), GetParam());
  Stopping stop;
  RawClient client = server.client();
  // Sent at once, so that the server reads the half with the request.
  ASSERT_TRUE(client.send(get("/answer") + "POST /next HTTP/1.1\r\nHo"));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  stop.begin(server, 0, WF_STOP_ANSWER);
  ASSERT_TRUE(stop.ended());
  EXPECT_TRUE(client.send("st: x\r\nContent-Length: 1\r\n\r\n"));
  EXPECT_EQ(client.status(), 503);
  EXPECT_EQ(client.ending(), Ending::kClosed);
  EXPECT_EQ(stop.result().cut_short, 1u);
  EXPECT_EQ(ends.count, 1);
}

TEST_P(BoundedStop, DropCloses) {
  BoundedEnds ends;
  TestServer server(GetParam(), delayed(ends));
  RawClient client = server.asking_client(get("/drop"));
  const WFStopResult result = server->stop(0, WF_STOP_DROP);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(ends.error, ECANCELED);
}

TEST_P(BoundedStop, TellsWhatStillRuns) {
  BoundedEnds ends;
  OwnTask* never = nullptr;
  struct WFServerParams params = http_params();
  params.linger_timeout = 50;
  TestServer server(delayed(ends, &never), params, GetParam());
  RawClient client = server.asking_client(get("/never"));
  const auto start = steady_clock::now();
  WFStopResult result = server->stop(10, WF_STOP_ANSWER);
  EXPECT_LT(seconds_since(start), 30);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 1u);
  EXPECT_EQ(client.status(), 503);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(ends.count, 0);
  never->end();
  server->wait_finish();
  EXPECT_EQ(ends.count, 1);
  EXPECT_EQ(ends.error, ECANCELED);
  EXPECT_EQ(server->get_conn_count(), 0u);
}

TEST_P(BoundedStop, CutsOffAClientThatDoesNotRead) {
  BoundedEnds ends;
  struct WFServerParams params = http_params();
  params.linger_timeout = 3000;  // so long it has to notice on a machine that is busy, too
  TestServer server(
      [&ends](WFHttpTask* task) {
        task->get_resp()->append_output_body(std::string(32 * 1024 * 1024, 'x'));
        task->set_callback([&ends](WFHttpTask* ended) {
          ends.error = ended->get_error();
          ends.count++;
        });
      },
      params, GetParam());
  RawClient client(server.port(), 4096);
  if (GetParam() == Transport::kTls) {
    ASSERT_TRUE(client.begin_tls(credentials().authority.file()));
  }
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  EXPECT_GT(client.take(1), 0u);
  const auto start = steady_clock::now();
  const WFStopResult result = server->stop(10, WF_STOP_FINISH);
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_EQ(ends.count, 1);
  EXPECT_EQ(ends.error, ECANCELED);
}

TEST_P(BoundedStop, OfAnIdleServerIsAtOnce) {
  BoundedEnds ends;
  TestServer server(delayed(ends), patient_params(), GetParam());
  Stopping stop;
  RawClient idle = server.client();
  ASSERT_EQ(idle.ask(get("/ms=1"))->status, 200);
  stop.begin(server, 0, WF_STOP_DROP);
  ASSERT_TRUE(stop.ended());
  EXPECT_EQ(stop.result().cut_short, 0u);
  EXPECT_EQ(stop.result().running, 0u);
  EXPECT_TRUE(idle.ended());
  // And it may start again.
  EXPECT_EQ(server->start("127.0.0.1", 0), 0);
}

TEST(StopWithin, OfAServerThatWasNotStarted) {
  WFHttpServer server(echo);
  const WFStopResult result = server.stop(0, WF_STOP_DROP);
  EXPECT_EQ(result.cut_short, 0u);
  EXPECT_EQ(result.running, 0u);
}

TEST(StopWithin, FromInsideARequestIsRefused) {
  std::atomic<int> error{0};
  std::atomic<WFHttpServer*> self{nullptr};
  TestServer server([&](WFHttpTask*) {
    ASSERT_TRUE(eventually([&] { return self.load() != nullptr; }));
    errno = 0;
    self.load()->stop(0, WF_STOP_DROP);
    error = errno;
  });
  self = server.operator->();
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_EQ(error, EDEADLK);
}

// Requests, their delays' ends and the stop meet: every task ends, and only once. The clients try
// again when the server has gone, so its port is kept from others.
TEST(StopWithin, MeetsEverything) {
  const workflow::UniqueFd kept = test_support::keep_port();
  for (int round = 0; round < 100; round++) {
    BoundedEnds ends;
    std::atomic<int> begun{0};
    int running = 0;
    std::atomic<bool> stopped{false};
    {
      TestServer server(
          [&](WFHttpTask* task) {
            begun++;
            delayed(ends)(task);
            if (round % 2 == 0) {
              task->cancel_timers_on_closed();
            }
          },
          http_params(), nullptr, -1, test_support::port_of(kept.get()));
      ASSERT_TRUE(server.started());
      std::vector<std::jthread> clients;
      for (int i = 0; i < 4; i++) {
        clients.emplace_back([&, i] {
          while (!stopped) {
            RawClient client = server.client();
            for (int k = 0; k < 3 && client.connected(); k++) {
              if (!client.send(get("/ms=" + std::to_string(1 + i)))) break;
              if (k < 2 && client.status() == 0) break;
            }
          }
        });
      }
      std::this_thread::sleep_for(milliseconds(5 + round % 7));  // into the middle of it
      const auto action = static_cast<WFStopAction>(round % 3);
      running += static_cast<int>(server->stop(round % 4, action).running);
      stopped = true;
      clients.clear();  // joins them
    }
    EXPECT_EQ(running, 0);
    EXPECT_EQ(ends.count, begun) << round;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BoundedStop, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);

}  // namespace server_test
