#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>

#include "fault/SystemFaults.h"
#include "support/Datagrams.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

// Datagrams where sockets have no room, and fail.

namespace server_test {
namespace {

using Factory = WFNetworkTaskFactory<Note, Note>;
using Clock = std::chrono::steady_clock;

void set_sending(int error, int failures) {
  fault::send_error = error;
  fault::send_failures = failures;
}

TEST(DatagramFaults, AReplyWaitsForRoom) {
  std::atomic<int> good{0};
  NoteServer server([&](NoteTask* task) {
    echo_note(task);
    task->set_callback([&](NoteTask* ended) { good += ended->get_state() == WFT_STATE_SUCCESS; });
  });
  for (const int failures : {1, 2, 10}) {
    good = 0;
    set_sending(EAGAIN, failures);
    UdpSocket client(server.port());
    for (int i = 0; i < 20; i++) {
      ASSERT_TRUE(client.send("=" + std::to_string(i)));
    }
    std::set<std::string> replies;
    for (int i = 0; i < 20; i++) {
      // The socket has room all the time, so only another event has the server try again.
      while (!client.has_datagram(20)) {
        client.send("garbage");
      }
      const auto reply = client.receive();
      ASSERT_TRUE(reply) << failures << ", " << i;
      replies.insert(*reply);
    }
    EXPECT_EQ(replies.size(), 20u);
    EXPECT_TRUE(eventually([&] { return good == 20; }));
  }
}

TEST(DatagramFaults, AReplyWaitsNoLongerThanTheTimeForSending) {
  struct Ended {
    std::atomic<int> error{-1};
    std::atomic<int> reason{-1};
  };
  Ended by_server;
  Ended by_task;
  struct WFServerParams params = udp_params();
  params.send_timeout = 300;
  NoteServer server(
      [&](NoteTask* task) {
        const bool own = task->get_req()->text == "=task";
        if (own) {
          task->set_send_timeout(100);
        }
        echo_note(task);
        task->set_callback([&, own](NoteTask* ended) {
          Ended& result = own ? by_task : by_server;
          result.reason = ended->get_timeout_reason();
          result.error = ended->get_error();
        });
      },
      params);
  set_sending(EAGAIN, -1);
  UdpSocket client(server.port());
  const auto start = Clock::now();
  ASSERT_TRUE(client.send("=server"));
  ASSERT_TRUE(client.send("=task"));
  ASSERT_TRUE(eventually([&] { return by_task.error != -1; }));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(100));
  ASSERT_TRUE(eventually([&] { return by_server.error != -1; }));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_LE(Clock::now() - start, std::chrono::seconds(20));
  for (const Ended* each : {&by_server, &by_task}) {
    EXPECT_EQ(each->error, ETIMEDOUT);
    EXPECT_EQ(each->reason, TOR_TRANSMIT_TIMEOUT);
  }
  set_sending(0, 0);
  ASSERT_TRUE(client.send("=on"));
  EXPECT_EQ(client.receive(), "=on");
}

// As many wait as requests may be under way, and then nothing is read.
TEST(DatagramFaults, RepliesThatWaitAreUnderWay) {
  struct WFServerParams params = udp_params();
  params.max_connections = 3;
  std::atomic<int> requests{0};
  NoteServer server(
      [&](NoteTask* task) {
        requests++;
        echo_note(task);
      },
      params);
  set_sending(EAGAIN, -1);
  UdpSocket client(server.port());
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(client.send("="));
  }
  ASSERT_TRUE(eventually([&] { return requests == 3; }));
  EXPECT_TRUE(client.is_silent(50));  // time in which a fourth must not be read
  EXPECT_EQ(requests, 3);
  EXPECT_EQ(server.get_conn_count(), 3u);
  // The stop waits for them, too.
  server.shutdown();
  EXPECT_TRUE(client.is_silent(20));
  EXPECT_EQ(server.get_conn_count(), 3u);
  set_sending(0, 0);
  ASSERT_TRUE(client.send("an event"));
  server.wait_finish();
  EXPECT_EQ(requests, 3);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(client.receive(), "=");
  }
}

TEST(DatagramFaults, ErrorsOfSendingEndTheReplyOnly) {
  std::atomic<int> error{-1};
  NoteServer server([&](NoteTask* task) {
    echo_note(task);
    task->set_callback([&](NoteTask* ended) { error = ended->get_error(); });
  });
  UdpSocket client(server.port());
  for (const int each : {EPERM, ENETUNREACH, ENOBUFS, ENOMEM, EMSGSIZE}) {
    set_sending(each, 1);
    ASSERT_TRUE(client.send("="));
    ASSERT_TRUE(eventually([&] { return error == each; })) << each;
  }
  // It belongs to an earlier datagram.
  set_sending(ECONNREFUSED, 1);
  ASSERT_TRUE(client.send("=told late"));
  EXPECT_EQ(client.receive(), "=told late");
}

TEST(DatagramFaults, ErrorsOfReceivingDoNotEndTheServerNorSpin) {
  NoteServer server;
  UdpSocket client(server.port());
  for (const int each : {ECONNREFUSED, EHOSTUNREACH, ENOMEM, EIO}) {
    for (const int failures : {1, 3, 30}) {
      fault::receive_error = each;
      fault::receive_failures = failures;
      ASSERT_TRUE(client.send("="));
      EXPECT_EQ(client.receive(), "=") << each << ", " << failures;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  fault::receive_calls = 0;
  fault::receive_failures = -1;
  ASSERT_TRUE(client.send("=waits"));
  EXPECT_TRUE(client.is_silent(500));  // half a second of errors, or more on a busy machine
  const int calls = fault::receive_calls;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(calls, 200 * passed.count());
  EXPECT_TRUE(eventually([] { return fault::receive_calls >= 8; }));
  fault::receive_failures = 0;
  EXPECT_EQ(client.receive(), "=waits");
}

TEST(DatagramFaults, InterruptedCalls) {
  fault::interrupt_one_in = 2;
  NoteServer server;
  for (int i = 0; i < 300; i++) {
    WFFacilities::WaitGroup group(1);
    std::string answer;
    NoteTask* task =
        Factory::create_client_task(TT_UDP, "127.0.0.1", server.port(), 0, [&](NoteTask* ended) {
          answer = ended->get_resp()->text;
          group.done();
        });
    task->get_req()->text = "=" + std::to_string(i);
    task->start();
    group.wait();
    EXPECT_EQ(answer, "=" + std::to_string(i));
  }
  EXPECT_GT(fault::interrupts, 300);
}

TEST(DatagramFaults, ARequestWaitsForRoom) {
  NoteServer server;
  set_sending(EAGAIN, 1);
  WFFacilities::WaitGroup group(1);
  int state = -1;
  int reason = -1;
  const auto ask = [&] {
    NoteTask* task =
        Factory::create_client_task(TT_UDP, "127.0.0.1", server.port(), 0, [&](NoteTask* ended) {
          state = ended->get_state();
          reason = ended->get_timeout_reason();
          group.done();
        });
    task->set_send_timeout(50);
    task->get_req()->text = "=";
    task->start();
    group.wait();
  };
  // No event tells of room that was there all the time: it is the time limit that ends it.
  ask();
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(reason, TOR_TRANSMIT_TIMEOUT);
}

}  // namespace
}  // namespace server_test
