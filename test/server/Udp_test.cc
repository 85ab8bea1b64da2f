#include <gtest/gtest.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "support/Datagrams.h"
#include "support/TempDir.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFManualClock.h"

// Servers for datagrams: each that comes is a request, each reply one that goes back.

namespace server_test {
namespace {

TEST(UdpServer, EachDatagramIsARequestAndEachReplyGoesToItsSender) {
  NoteServer server;
  UdpSocket first;
  UdpSocket second;
  for (int i = 0; i < 100; i++) {
    const std::string number = "=" + std::to_string(i);
    ASSERT_TRUE(first.send_to(server.port(), number + " first"));
    ASSERT_TRUE(second.send_to(server.port(), number + " second"));
    uint16_t from = 0;
    EXPECT_EQ(first.receive(&from), number + " first");
    EXPECT_EQ(from, server.port());
    EXPECT_EQ(second.receive(), number + " second");
  }
}

TEST(UdpServer, WhatIsNoWholeRequestIsDropped) {
  std::atomic<int> requests{0};
  NoteServer server([&](NoteTask* task) {
    requests++;
    echo_note(task);
  });
  UdpSocket client(server.port());
  for (const char* each : {"garbage", "+half", "2nd behind it", "=good"}) {
    ASSERT_TRUE(client.send(each));
  }
  EXPECT_EQ(client.receive(), "=good");
  EXPECT_EQ(requests, 1);
}

TEST(UdpServer, TheSizeLimitReachesTheMessage) {
  struct WFServerParams params = udp_params();
  params.request_size_limit = 10;
  NoteServer server(echo_note, params);
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("=0123456789"));
  ASSERT_TRUE(client.send("=012345678"));
  EXPECT_EQ(client.receive(), "=012345678");
}

TEST(UdpServer, EmptyDatagramsAreMessagesToo) {
  NoteServer server;
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send(""));
  EXPECT_EQ(client.receive(), "");
}

TEST(UdpServer, LargestDatagramAndOneByteMore) {
  std::atomic<int> error{-1};
  NoteServer server([&](NoteTask* task) {
    echo_note(task);
    if (task->get_req()->text == "=large") {
      task->get_resp()->text.assign(65508, 'x');
    }
    task->set_callback([&](NoteTask* ended) {
      EXPECT_EQ(ended->get_state(),
                ended->get_error() == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR);
      error = ended->get_error();
    });
  });
  UdpSocket client(server.port());
  const int room = 1 << 20;
  ::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  const std::string largest = "=" + std::string(65506, 'x');
  ASSERT_TRUE(client.send(largest));
  EXPECT_TRUE(client.receive() == largest);
  ASSERT_TRUE(eventually([&] { return error == 0; }));
  ASSERT_TRUE(client.send("=large"));
  ASSERT_TRUE(eventually([&] { return error == EMSGSIZE; }));
  EXPECT_TRUE(client.send("=on"));
  EXPECT_EQ(client.receive(), "=on");
}

TEST(UdpServer, TimersOnTheSeriesDelayTheReply) {
  ASSERT_EQ(WFManualClock::install(), 0);
  std::atomic<int> requests{0};
  NoteServer server([&](NoteTask* task) {
    echo_note(task);
    const time_t seconds = std::stol(task->get_req()->text.substr(1));
    series_of(task)->push_back(WFTaskFactory::create_timer_task(seconds, 0, nullptr));
    requests++;
  });
  UdpSocket client(server.port());
  for (const char* seconds : {"=3", "=1", "=2"}) {
    ASSERT_TRUE(client.send(seconds));
  }
  ASSERT_TRUE(eventually([&] { return requests == 3; }));
  WFManualClock::advance(0);  // until the timers have been started
  EXPECT_EQ(server.get_conn_count(), 3u);
  for (const char* seconds : {"=1", "=2", "=3"}) {
    WFManualClock::advance(1'000'000'000);
    EXPECT_EQ(client.receive(), seconds);
    EXPECT_TRUE(client.is_silent(1));
  }
  EXPECT_TRUE(eventually([&] { return server.get_conn_count() == 0; }));
}

TEST(UdpServer, WhatATaskCanAsk) {
  struct WFServerParams params = udp_params();
  std::vector<long long> sequence;
  std::atomic<int> freed{0};
  std::atomic<uint16_t> sender{0};
  NoteServer server(
      [&](NoteTask* task) {
        sequence.push_back(task->get_task_seq());
        struct sockaddr_in peer = {};
        socklen_t length = 1;
        EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&peer), &length), -1);
        EXPECT_EQ(errno, ENOBUFS);
        length = sizeof peer;
        EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&peer), &length), 0);
        EXPECT_EQ(length, sizeof peer);
        EXPECT_EQ(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
        sender = ntohs(peer.sin_port);
        EXPECT_FALSE(task->closed());
        // Each request's own.
        EXPECT_EQ(task->get_connection()->get_context(), nullptr);
        task->get_connection()->set_context(&freed, [&](void*) { freed++; });
        echo_note(task);
      },
      params);
  UdpSocket client(server.port());
  for (int i = 0; i < 3; i++) {
    ASSERT_TRUE(client.send("="));
    EXPECT_EQ(client.receive(), "=");
    EXPECT_EQ(sender, client.port());
  }
  server.stop();
  EXPECT_EQ(freed, 3);
  EXPECT_EQ(sequence, (std::vector<long long>{0, 1, 2}));
}

TEST(UdpServer, NoReplySendsNothing) {
  std::atomic<int> ended{0};
  NoteServer server([&](NoteTask* task) {
    echo_note(task);
    if (task->get_req()->text == "=quiet") {
      task->noreply();
    }
    task->set_callback([&](NoteTask*) { ended++; });
  });
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("=quiet"));
  ASSERT_TRUE(eventually([&] { return ended == 1; }));
  ASSERT_TRUE(client.send("=loud"));
  EXPECT_EQ(client.receive(), "=loud");
}

TEST(UdpServer, PushSendsADatagramAtOnce) {
  std::atomic<int> after{0};
  NoteServer server([&](NoteTask* task) {
    EXPECT_EQ(task->push("pushed", 6), 6);
    const std::string large(70'000, 'x');
    EXPECT_EQ(task->push(large.data(), large.size()), -1);
    EXPECT_EQ(errno, EMSGSIZE);
    hold_note(task);
    task->set_callback([&](NoteTask* replied) {
      EXPECT_EQ(replied->push("late", 4), -1);
      after = errno;
    });
  });
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("=held"));
  EXPECT_EQ(client.receive(), "pushed");
  ASSERT_TRUE(eventually([] { return WFTaskFactory::cancel_by_name("held") == 1; }));
  EXPECT_EQ(client.receive(), "=held");
  EXPECT_TRUE(eventually([&] { return after == ENOTCONN; }));
}

TEST(UdpServer, FeedbackIsADatagramToTheSender) {
  NoteServer server;
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("!"));
  EXPECT_EQ(client.receive(), "heard");
  EXPECT_EQ(client.receive(), "!");
}

// A server on all addresses has to reply from the one that was written to: a connected client hears
// no other.
TEST(UdpServer, RepliesFromTheAddressThatWasWrittenTo) {
  const struct WFServerParams params = udp_params();
  for (const int family : {AF_INET, AF_INET6}) {
    WFServer<Note, Note> server(&params, echo_note);
    if (server.start(family, 0) != 0) {
      // Without IPv6 the kernel says so; what it has is tested.
      ASSERT_EQ(family, AF_INET6);
      ASSERT_TRUE(errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL);
      continue;
    }
    struct sockaddr_in6 address = {};  // the port is where IPv4 has it
    socklen_t length = sizeof address;
    ASSERT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
    UdpSocket client(ntohs(address.sin6_port), "127.0.0.2");
    ASSERT_TRUE(client.send("=" + std::to_string(family)));
    EXPECT_EQ(client.receive(), "=" + std::to_string(family));
    server.stop();
  }
}

TEST(UdpServer, SendersThatAreGoneDoNoHarm) {
  NoteServer server(hold_note);
  for (int i = 0; i < 100; i++) {
    UdpSocket client(server.port());
    ASSERT_TRUE(client.send("=gone"));
  }
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 100; }));
  int cancelled = 0;
  ASSERT_TRUE(eventually([&] {
    cancelled += WFTaskFactory::cancel_by_name("gone");
    return cancelled == 100;
  }));
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 0; }));
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("="));
  EXPECT_EQ(client.receive(), "=");
}

// A socket that was connected before it was inherited learns of its peer's end, by errors.
TEST(UdpServer, ErrorsOfEarlierDatagramsDoNotEndIt) {
  UdpSocket inherited;
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> server(&params, hold_note);
  auto peer = std::make_unique<UdpSocket>(inherited.port());
  const struct sockaddr_in address = UdpSocket::at(peer->port());
  ASSERT_EQ(
      ::connect(inherited.fd(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address),
      0);
  ASSERT_EQ(server.serve(inherited.fd()), 0);
  for (int i = 0; i < 50; i++) {
    ASSERT_TRUE(peer->send("=refused"));
  }
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 50; }));
  peer.reset();
  int cancelled = 0;
  ASSERT_TRUE(eventually([&] {
    cancelled += WFTaskFactory::cancel_by_name("refused");
    return cancelled == 50;
  }));
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 0; }));
  UdpSocket client(inherited.port());
  const struct sockaddr_in next = UdpSocket::at(client.port());
  ASSERT_EQ(::connect(inherited.fd(), reinterpret_cast<const struct sockaddr*>(&next), sizeof next),
            0);
  ASSERT_TRUE(client.send("="));
  EXPECT_EQ(client.receive(), "=");
  server.stop();
}

TEST(UdpServer, BoundsTheRequestsUnderWay) {
  struct WFServerParams params = udp_params();
  params.max_connections = 5;
  std::atomic<int> requests{0};
  NoteServer server(
      [&](NoteTask* task) {
        requests++;
        hold_note(task);
      },
      params);
  UdpSocket client(server.port());
  for (int i = 0; i < 20; i++) {
    ASSERT_TRUE(client.send("=held"));
  }
  for (int done = 0; done < 20; done++) {
    ASSERT_TRUE(eventually([&] { return requests == std::min(done + 5, 20); })) << requests;
    EXPECT_LE(server.get_conn_count(), 5u);
    EXPECT_GE(server.get_conn_count(), done <= 15 ? 4u : 0u);
    ASSERT_TRUE(eventually([] { return WFTaskFactory::cancel_by_name("held", 1) == 1; }));
    EXPECT_EQ(client.receive(), "=held");
  }
  EXPECT_EQ(requests, 20);
}

TEST(UdpServer, ManyClientsAtOnce) {
  NoteServer server([](NoteTask* task) {
    echo_note(task);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(500, nullptr));
  });
  std::vector<std::jthread> clients;
  std::atomic<int> right{0};
  for (int n = 0; n < 8; n++) {
    clients.emplace_back([&, n] {
      UdpSocket client(server.port());
      for (int i = 0; i < 500; i++) {
        const std::string text = "=" + std::to_string(n) + " " + std::to_string(i);
        right += client.send(text) && client.receive() == text;
      }
    });
  }
  clients.clear();  // joins them
  EXPECT_EQ(right, 8 * 500);
}

// Datagrams without end, on the only poller, and timers on it.
TEST(UdpServer, AFloodDoesNotHoldUpTimers) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  WORKFLOW_library_init(&settings);
  NoteServer server([](NoteTask* task) { task->noreply(); });
  std::atomic<bool> over{false};
  std::thread flood([&] {
    UdpSocket client(server.port());
    while (!over) {
      client.send("garbage");
      client.send("=");
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; i++) {
    WFFacilities::usleep(1000);
  }
  const auto took = std::chrono::steady_clock::now() - start;
  over = true;
  flood.join();
  EXPECT_GE(took, std::chrono::milliseconds(100));
  EXPECT_LE(took, std::chrono::seconds(10));
}

TEST(UdpServer, OverUnixSockets) {
  const test_support::TempDir folder;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  folder.path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* generic = reinterpret_cast<const struct sockaddr*>(&address);
  const struct WFServerParams params = udp_params();
  std::atomic<int> error{-1};
  WFServer<Note, Note> server(&params, [&](NoteTask* task) {
    echo_note(task);
    task->set_callback([&](NoteTask* ended) { error = ended->get_error(); });
  });
  ASSERT_EQ(server.start(generic, sizeof address), 0);
  const workflow::UniqueFd client(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), generic, sizeof address), 0);
  // A sender without an address gets no reply. A datagram that is too large to be read is dropped.
  ASSERT_EQ(::send(client.get(), "=", 1, 0), 1);
  EXPECT_TRUE(eventually([&] { return error > 0; }));
  const std::string large = "=" + std::string(70'000, 'x');
  ASSERT_GT(::send(client.get(), large.data(), large.size(), 0), 0);
  const struct sockaddr_un none = {AF_UNIX, {}};
  ASSERT_EQ(
      ::bind(client.get(), reinterpret_cast<const struct sockaddr*>(&none), sizeof(sa_family_t)),
      0);
  ASSERT_EQ(::send(client.get(), "=named", 6, 0), 6);
  char buffer[100];
  ASSERT_EQ(::recv(client.get(), buffer, sizeof buffer, 0), 6);
  EXPECT_EQ(std::string(buffer, 6), "=named");
  EXPECT_TRUE(eventually([&] { return error == 0; }));
  server.stop();
}

TEST(UdpServer, AStopWithALimitEndsWhatDelaysReplies) {
  NoteServer server(hold_note);
  UdpSocket client(server.port());
  for (int i = 0; i < 3; i++) {
    ASSERT_TRUE(client.send("=held"));
  }
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 3; }));
  const WFStopResult result = server.stop(0, WF_STOP_FINISH);
  EXPECT_EQ(result.cut_short, 3u);
  EXPECT_EQ(result.running, 0u);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(client.receive(), "=held");
  }
}

TEST(UdpServer, AStopWithALimitDropsReplies) {
  std::atomic<int> error{-1};
  NoteServer server([&](NoteTask* task) {
    hold_note(task);
    task->set_callback([&](NoteTask* ended) { error = ended->get_error(); });
  });
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("=held"));
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 1; }));
  const WFStopResult result = server.stop(0, WF_STOP_DROP);
  EXPECT_EQ(result.cut_short, 1u);
  EXPECT_EQ(result.running, 0u);
  EXPECT_EQ(error, ECANCELED);
}

}  // namespace
}  // namespace server_test
