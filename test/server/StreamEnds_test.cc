#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "server/TaskEnds.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFManualClock.h"

// Ends of replies that come from elsewhere, where one thing meets another.

namespace server_test {
namespace {

using std::chrono::milliseconds;

WFTimerTask* hour() {
  return WFTaskFactory::create_timer_task("hour", 3600, 0, nullptr);
}

// As much as there is room for. Returns why there is none for more.
int push_all(WFHttpTask* task) {
  const std::string piece(64 * 1024, 'x');
  while (task->push(piece.data(), piece.size()) > 0) {
  }
  return errno;
}

// The client takes nothing, so its reply is cut off while `process` still runs. What that asks for
// then must end its hour.
void expect_hour_ends(const std::function<void(WFHttpTask*)>& ask) {
  TaskEnds ends;
  struct WFServerParams params = http_params();
  params.send_timeout = 20;
  TestServer server(
      [&](WFHttpTask* task) {
        ends.note(task);
        series_of(task)->push_back(hour());
        push_all(task);
        ASSERT_TRUE(eventually([task] { return task->closed(); }));
        ask(task);
      },
      params);
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.error, ETIMEDOUT);
}

}  // namespace

TEST(Hook, ThatWaitsForItsServerIsToldSo) {
  std::atomic<int> error{0};
  std::atomic<WFHttpServer*> self{nullptr};
  TestServer server([&](WFHttpTask* task) {
    task->on_closed([&] {
      self.load()->wait_finish();
      error = errno;
      WFTaskFactory::cancel_by_name("hour");
    });
    series_of(task)->push_back(hour());
  });
  self = server.operator->();
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(server.has_connections(0));
  EXPECT_EQ(error, EDEADLK);
}

TEST(Hook, TheTaskLivesAsLongAsItAlsoWhenItWakesTheSeries) {
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, nullptr);
    task->on_closed([&ends, task, counter] {
      counter->count();
      WFFacilities::usleep(50'000);  // time for the series to end, if it could
      EXPECT_EQ(ends.tasks, 0);
      EXPECT_TRUE(task->closed());
      ends.hooks++;
    });
    series_of(task)->push_back(counter);
  });
  RawClient client = server.asking_client();
  client.close();
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.hooks, 1);
}

TEST(Hook, IsCalledWhenTheStopCutsTheReply) {
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, nullptr);
    task->on_closed([&ends, task, counter] {
      EXPECT_TRUE(task->closed());
      ends.hooks++;
      counter->count();
    });
    series_of(task)->push_back(counter);
  });
  RawClient client = server.asking_client();
  const WFStopResult result = server->stop(0, WF_STOP_DROP);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_EQ(ends.hooks, 1);
  EXPECT_EQ(ends.tasks, 1);
}

TEST(Hook, IsCalledWhenAStreamIsCutOff) {
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    task->set_send_timeout(100);
    WFHttpStream stream = WFHttpStream::begin(task);
    task->on_closed([&ends] { ends.hooks++; });
    while (stream.write(std::string(64 * 1024, 'x')) == 0) {
    }
    series_of(task)->push_back(hour());  // ends with the stream
  });
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.error, ETIMEDOUT);
  EXPECT_EQ(ends.hooks, 1);
}

TEST(Hook, IsCalledSoonWhenTheReplyIsCutOffAlready) {
  std::atomic<int> hooks{0};
  expect_hour_ends([&hooks](WFHttpTask* task) {
    task->on_closed([&hooks] {
      hooks++;
      WFTaskFactory::cancel_by_name("hour");
    });
  });
  EXPECT_EQ(hooks, 1);
}

TEST(Hook, IsCalledSoonWhenTheStopHasCutTheReplyAlready) {
  TaskEnds ends;
  test_support::Tally stopped;
  struct WFServerParams params = http_params();
  params.linger_timeout = 20;  // the stop waits as long for what still runs
  TestServer server(
      [&](WFHttpTask* task) {
        ends.note(task);
        stopped.wait_for(1);
        EXPECT_TRUE(task->closed());
        task->on_closed([&ends] { ends.hooks++; });
      },
      params);
  RawClient client = server.client();
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.requests() == 1; }));
  EXPECT_EQ(server->stop(0, WF_STOP_DROP).running, 1u);
  stopped.add();
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.hooks, 1);
}

TEST(Scope, EndsSoonWhenTheReplyIsCutOffAlready) {
  expect_hour_ends([](WFHttpTask* task) { task->cancel_on_closed(); });
  expect_hour_ends([](WFHttpTask* task) { task->cancel_timers_on_closed(); });
}

TEST(StreamEnd, ABodyThatWasThereBeforeIsSentWhateverItsSize) {
  const std::string first(3'000'000, 'f');
  TestServer server([&](WFHttpTask* task) {
    task->get_resp()->append_output_body(first);
    WFHttpStream stream = WFHttpStream::begin(task);
    ASSERT_TRUE(stream);
    series_of(task)->push_back(stream.create_write_task("second", nullptr));
  });
  const auto reply = server.client().ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->body == first + "second");
}

TEST(StreamEnd, WhatWasCutOffDoesNotLookWhole) {
  TaskEnds ends;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin(task);
    EXPECT_EQ(stream.write("half"), 0);
    series_of(task)->push_back(hour());
    series_of(task)->push_back(stream.create_write_task(" of it", nullptr));
  });
  RawClient client = server.asking_client();
  client.half_close();
  EXPECT_FALSE(client.reply()) << "the last chunk must not come";
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(ends.error, ECONNRESET);
}

TEST(StreamEnd, TheResponsesOwnCloseIsKept) {
  TestServer server([](WFHttpTask* task) {
    task->get_resp()->add_header_pair("Connection", "close");
    EXPECT_EQ(WFHttpStream::begin(task).write("x"), 0);
  });
  RawClient client = server.client();
  const auto reply = client.ask(kGet);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->field("Connection"), "close");
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST(Push, IsLimitedInTimeAlsoOnTheFirstRequest) {
  ASSERT_EQ(WFManualClock::install(), 0);
  TaskEnds ends;
  struct WFServerParams params = http_params();
  params.send_timeout = 100;
  TestServer server(
      [&](WFHttpTask* task) {
        ends.note(task);
        series_of(task)->push_back(hour());
        task->on_closed([&ends] {
          ends.hooks++;
          WFTaskFactory::cancel_by_name("hour");
        });
        EXPECT_EQ(push_all(task), ENOBUFS);
      },
      params);
  RawClient client(server.port(), 4096);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  WFManualClock::advance(milliseconds(99));
  EXPECT_EQ(ends.hooks, 0);
  WFManualClock::advance(milliseconds(1));
  ASSERT_TRUE(ends.reached(1));
  EXPECT_EQ(ends.error, ETIMEDOUT);
  EXPECT_EQ(ends.hooks, 1);
}

TEST(Push, IsNotFollowedByAnotherAnswer) {
  TestServer server([](WFHttpTask* task) {
    const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npart";
    EXPECT_GT(task->push(head.data(), head.size()), 0);
    series_of(task)->push_back(hour());
  });
  RawClient client = server.asking_client();
  const WFStopResult result = server->stop(0, WF_STOP_ANSWER);
  EXPECT_EQ(result.cut_short, 1u);
  std::string all;
  for (std::string more = "x"; !more.empty(); all += more) {
    more = client.take_text(10'000);
  }
  EXPECT_EQ(all.find("503"), std::string::npos);
}

TEST(StopWithin, CountsEachReplyOnce) {
  TaskEnds ends;
  struct WFServerParams params = http_params();
  params.linger_timeout = 50;
  auto* const counter = new OwnTask;
  TestServer server(
      [&](WFHttpTask* task) {
        ends.note(task);
        series_of(task)->push_back(counter);
      },
      params);
  RawClient client = server.asking_client();
  const WFStopResult result = server->stop(0, WF_STOP_FINISH);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 1u);
  counter->end();
  server->wait_finish();
  EXPECT_EQ(ends.tasks, 1);
}

// What was there before such a write is still sent, and tasks that wait for room end.
TEST(StreamRoom, IsFoundAfterAWriteThatHadNone) {
  workflow::UniqueFd listener = test_support::listen_on_loopback(128, 65536);
  const int size = 65536;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  TaskEnds ends;
  std::atomic<int> rooms{0};
  std::atomic<int> refused{0};
  TestServer server(
      [&](WFHttpTask* task) {
        ends.note(task);
        WFHttpStream stream = WFHttpStream::begin(task);
        const std::string first(900'000, 'a');
        const std::string second(1'000'000, 'b');
        EXPECT_EQ(stream.write(first), 0);
        refused += stream.write(second) == -1 && errno == ENOBUFS;
        series_of(task)->push_back(stream.create_room_task([&](WFStreamTask* room) {
          EXPECT_EQ(room->get_state(), WFT_STATE_SUCCESS);
          rooms++;
        }));
      },
      http_params(), nullptr, listener.release());
  RawClient client(server.port(), 65536);
  ASSERT_TRUE(client.send(kGet));
  ASSERT_TRUE(eventually([&] { return server.processed() == 1; }));
  const auto reply = client.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body.size(), 900'000u);
  EXPECT_TRUE(ends.reached(1));
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(rooms, 1);
}

TEST(StreamRoom, IsFoundWhileOthersWrite) {
  TaskEnds ends;
  std::atomic<int> rooms{0};
  std::atomic<bool> over{false};
  std::thread writer;
  TestServer server([&](WFHttpTask* task) {
    ends.note(task);
    WFHttpStream stream = WFHttpStream::begin(task);
    writer = std::thread([&over, stream] {
      while (!over && (stream.write(std::string(150'000, 'a')) == 0 || errno == ENOBUFS)) {
        std::this_thread::yield();
      }
    });
    for (int i = 0; i < 100; i++) {
      series_of(task)->push_back(stream.create_room_task([&](WFStreamTask*) { rooms++; }));
    }
    series_of(task)->push_back(WFTaskFactory::create_go_task("over", [&over] { over = true; }));
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.ask(kGet));
  EXPECT_TRUE(ends.reached(1));
  EXPECT_EQ(rooms, 100);
  writer.join();
}

}  // namespace server_test
