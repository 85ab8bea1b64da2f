#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "support/Certificates.h"
#include "support/Datagrams.h"
#include "support/Loopback.h"
#include "support/TestSeed.h"

// How servers for datagrams start and stop.

namespace server_test {
namespace {

TEST(UdpStop, WaitsForDelayedRepliesWhichStillLeave) {
  NoteServer server(hold_note);
  UdpSocket client(server.port());
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(client.send("=held"));
  }
  ASSERT_TRUE(eventually([&] { return server.get_conn_count() == 10; }));
  server.shutdown();
  struct sockaddr_storage address;
  socklen_t length = sizeof address;
  EXPECT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
  std::atomic<bool> ended{false};
  std::thread waiter([&] {
    server.wait_finish();
    ended = true;
  });
  ASSERT_TRUE(client.send("=more"));  // is read no more
  EXPECT_TRUE(client.is_silent(50));  // time in which wait_finish() must not return
  EXPECT_FALSE(ended);
  int cancelled = 0;
  ASSERT_TRUE(eventually([&] {
    cancelled += WFTaskFactory::cancel_by_name("held");
    return cancelled == 10;
  }));
  for (int i = 0; i < 10; i++) {
    EXPECT_EQ(client.receive(), "=held");
  }
  waiter.join();
  EXPECT_EQ(server.get_conn_count(), 0u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("more"), 0);
}

TEST(UdpStop, AgainOnTheSamePort) {
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> server(&params, echo_note);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  ASSERT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(server.start("127.0.0.1", 0), -1);
    EXPECT_EQ(errno, EALREADY);
    UdpSocket client(ntohs(address.sin_port));
    ASSERT_TRUE(client.send("="));
    EXPECT_EQ(client.receive(), "=");
    server.stop();
    ASSERT_EQ(server.start(reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0);
  }
  server.stop();
}

// Two servers on one port would each get some of the datagrams.
TEST(UdpStop, TakenPort) {
  const UdpSocket other;
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> server(&params, echo_note);
  EXPECT_EQ(server.start("127.0.0.1", other.port()), -1);
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST(UdpStop, InheritedSockets) {
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> server(&params, echo_note);
  std::optional<UdpSocket> inherited(std::in_place);
  UdpSocket client(inherited->port());
  ASSERT_TRUE(client.send("=early"));
  ASSERT_EQ(server.serve(inherited->fd()), 0);
  inherited.reset();
  EXPECT_EQ(client.receive(), "=early");
  server.stop();
}

TEST(UdpStop, TheSocketsTypeHasToBeRight) {
  const workflow::UniqueFd stream(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(stream.get(), 1), 0);
  const UdpSocket datagrams;
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> udp(&params, echo_note);
  EXPECT_EQ(udp.serve(stream.get()), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(udp.serve(-1), -1);
  EXPECT_EQ(errno, EBADF);
  WFServer<Note, Note> tcp(echo_note);
  EXPECT_EQ(tcp.serve(datagrams.fd()), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(udp.serve(datagrams.fd()), 0);
  udp.stop();
}

TEST(UdpStop, ThereIsNoTlsOverDatagrams) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  const struct WFServerParams params = udp_params();
  WFServer<Note, Note> server(&params, echo_note);
  const char* const cert = certificate.cert_file.c_str();
  const char* const key = certificate.key_file.c_str();
  EXPECT_EQ(server.start("127.0.0.1", 0, cert, key), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  const UdpSocket inherited;
  EXPECT_EQ(server.serve(inherited.fd(), cert, key), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
}

TEST(UdpStop, InsideItsOwnSeriesIsRefused) {
  std::atomic<int> refused{0};
  NoteServer* self = nullptr;
  const auto stop = [&] {
    errno = 0;
    self->stop();
    refused += errno == EDEADLK;
  };
  NoteServer server([&](NoteTask* task) {
    stop();
    task->get_connection()->set_context(&refused, [&](void*) { stop(); });
    task->set_callback([&](NoteTask*) { stop(); });
  });
  self = &server;
  testing::internal::CaptureStderr();
  UdpSocket client(server.port());
  ASSERT_TRUE(client.send("="));
  EXPECT_TRUE(eventually([&] { return refused == 3; }));
  server.wait_finish();
  testing::internal::GetCapturedStderr();
}

TEST(UdpStop, NewConnectionMayRefuse) {
  class Choosy final : public WFServer<Note, Note> {
   public:
    explicit Choosy(const struct WFServerParams& params) : WFServer(&params, echo_note) {}
    ~Choosy() override { stop(); }
    std::atomic<int> asked{0};

   private:
    WFConnection* new_connection(int fd) override {
      return ++asked % 2 == 1 ? nullptr : WFServer::new_connection(fd);
    }
  };
  Choosy server(udp_params());
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  UdpSocket client(test_support::port_of(server));
  for (const char* each : {"garbage", "=1", "=2", "=3", "=4"}) {
    ASSERT_TRUE(client.send(each));
  }
  // Different handlers may answer them: in any order.
  const std::set<std::string> answers = {client.receive().value_or(""),
                                         client.receive().value_or("")};
  EXPECT_EQ(answers, (std::set<std::string>{"=2", "=4"}));
  EXPECT_EQ(server.asked, 4);
}

// Requests come all the time, replies are in all stages, from any thread: nothing is left behind.
TEST(UdpStop, AtAnyMoment) {
  const uint64_t seed = test_support::test_seed();
  test_support::TestRandom random(seed);
  for (int round = 0; round < 60; round++) {
    struct WFServerParams params = udp_params();
    params.max_connections = 1 + random.below(40);
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::atomic<int> freed{0};
    std::optional<NoteServer> server(
        std::in_place,
        [&](NoteTask* task) {
          begun++;
          echo_note(task);
          task->get_connection()->set_context(&freed, [&](void*) { freed++; });
          series_of(task)->set_callback([&](const SeriesWork*) { ended++; });
          const unsigned kind = static_cast<unsigned>(begun) % 4;
          if (kind == 0) {
            task->noreply();
          } else if (kind > 1) {
            series_of(task)->push_back(WFTaskFactory::create_timer_task(kind * 100, nullptr));
          }
        },
        params);
    std::atomic<bool> over{false};
    std::thread sender([&, port = server->port()] {
      UdpSocket client(port);
      while (!over) {
        client.send("=");
        client.send("garbage");
      }
    });
    // So that the stop meets requests of all ages.
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
    std::thread other([&] { server->stop(); });
    server->stop();
    over = true;
    EXPECT_EQ(begun, ended);
    EXPECT_EQ(begun, freed);
    EXPECT_EQ(server->get_conn_count(), 0u);
    other.join();
    sender.join();
    server.reset();
  }
}

}  // namespace
}  // namespace server_test
