#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernel/Socket.h"
#include "support/Loopback.h"
#include "support/TestServer.h"
#include "util/UniqueFd.h"

// The ways to start a server, and what stops it from starting.

namespace server_test {
namespace {

using test_support::listen_on_loopback;
using test_support::loopback;
using test_support::port_of;

// A path in the file system for as long as the test runs.
class SocketPath {
 public:
  SocketPath() {
    char directory[] = "/tmp/server_test_XXXXXX";
    directory_ = ::mkdtemp(directory);
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory_.c_str());
  }
  ~SocketPath() {
    ::unlink(address.sun_path);
    ::rmdir(directory_.c_str());
  }
  const struct sockaddr* get() const { return reinterpret_cast<const struct sockaddr*>(&address); }

  struct sockaddr_un address = {};

 private:
  std::string directory_;
};

}  // namespace

TEST(ServerStart, HostAndPortZero) {
  WFHttpServer server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0) << std::strerror(errno);
  RawClient client(port_of(server));
  client.send(kGet);
  EXPECT_EQ(client.body(), "GET / ");
  server.stop();
}

TEST(ServerStart, HostNameOfThisMachine) {
  WFHttpServer server(echo);
  ASSERT_EQ(server.start("localhost", 0), 0) << std::strerror(errno);
  server.stop();
}

TEST(ServerStart, FamilyAndHost) {
  WFHttpServer server(echo);
  ASSERT_EQ(server.start(AF_INET, "127.0.0.1", 0), 0) << std::strerror(errno);
  EXPECT_EQ(RawClient(port_of(server)).ask(kGet)->status, 200);
  server.stop();
}

TEST(ServerStart, HostOfAnotherFamilyDoesNotResolve) {
  WFHttpServer server(echo);
  EXPECT_EQ(server.start(AF_INET6, "127.0.0.1", 0), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST(ServerStart, Address) {
  WFHttpServer server(echo);
  const struct sockaddr_in address = loopback(0);
  ASSERT_EQ(server.start(reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(RawClient(port_of(server)).ask(kGet)->status, 200);
  server.stop();
}

TEST(ServerStart, Ipv6) {
  WFHttpServer server(echo);
  if (server.start("::1", 0) != 0) {
    // Where the machine has no IPv6, it says so, and can be started elsewhere.
    EXPECT_TRUE(errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT) << std::strerror(errno);
    ASSERT_EQ(server.start("127.0.0.1", 0), 0);
    server.stop();
    return;
  }
  struct sockaddr_in6 address = {};
  socklen_t length = sizeof address;
  ASSERT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
  EXPECT_EQ(length, sizeof address);
  EXPECT_EQ(address.sin6_family, AF_INET6);
  RawClient client(reinterpret_cast<const struct sockaddr*>(&address), length);
  client.send(kGet);
  EXPECT_EQ(client.body(), "GET / ");
  server.stop();
}

TEST(ServerStart, UnixSocket) {
  const SocketPath path;
  WFHttpServer server([](WFHttpTask* task) {
    struct sockaddr_storage peer = {};
    socklen_t length = sizeof peer;
    EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&peer), &length), 0);
    EXPECT_EQ(peer.ss_family, AF_UNIX);
    echo(task);
  });
  ASSERT_EQ(server.start(path.get(), sizeof path.address), 0) << std::strerror(errno);
  RawClient client(path.get(), sizeof path.address);
  client.send(kGet);
  EXPECT_EQ(client.body(), "GET / ");
  client.send(post("/second", "body"));
  EXPECT_EQ(client.body(), "POST /second body");
  server.stop();
  EXPECT_TRUE(client.ended());
}

TEST(ServerStart, UnixPathThatExistsIsInUse) {
  const SocketPath path;
  WFHttpServer first(echo);
  WFHttpServer second(echo);
  ASSERT_EQ(first.start(path.get(), sizeof path.address), 0);
  EXPECT_EQ(second.start(path.get(), sizeof path.address), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  first.stop();
}

TEST(ServerStart, InheritedSocketStaysTheCallers) {
  workflow::UniqueFd inherited = listen_on_loopback();
  const uint16_t port = port_of(inherited.get());
  WFHttpServer server(echo);
  ASSERT_EQ(server.serve(inherited.get()), 0) << std::strerror(errno);
  EXPECT_EQ(port_of(server), port);
  EXPECT_EQ(RawClient(port).ask(kGet)->status, 200);
  server.stop();
  // It still listens: who serves it next answers who came in between.
  RawClient between(port);
  ASSERT_TRUE(between.connected());
  between.send(kGet);
  WFHttpServer next(echo);
  ASSERT_EQ(next.serve(inherited.get()), 0);
  EXPECT_EQ(between.status(), 200);
  next.stop();
}

TEST(ServerStart, InheritedSocketMayBeClosedMeanwhile) {
  workflow::UniqueFd inherited = listen_on_loopback();
  const uint16_t port = port_of(inherited.get());
  WFHttpServer server(echo);
  ASSERT_EQ(server.serve(inherited.get()), 0);
  inherited.reset();
  EXPECT_EQ(RawClient(port).ask(kGet)->status, 200);
  server.stop();
}

TEST(ServerStart, ServeNeedsAnOpenDescriptor) {
  WFHttpServer server(echo);
  EXPECT_EQ(server.serve(-1), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(ServerStart, ServeMakesABoundSocketListen) {
  const struct sockaddr_in any_port = loopback(0);
  const SocketPath path;
  const auto serves = [](int family, const struct sockaddr* address, socklen_t length) {
    const workflow::UniqueFd bound(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(bound.get(), address, length), 0);
    WFHttpServer server(echo);
    ASSERT_EQ(server.serve(bound.get()), 0) << std::strerror(errno);
    struct sockaddr_storage actual = {};
    socklen_t actual_length = sizeof actual;
    ASSERT_EQ(
        ::getsockname(bound.get(), reinterpret_cast<struct sockaddr*>(&actual), &actual_length), 0);
    RawClient client(reinterpret_cast<const struct sockaddr*>(&actual), actual_length);
    EXPECT_EQ(client.ask(kGet)->status, 200);
    server.stop();
  };
  serves(AF_INET, reinterpret_cast<const struct sockaddr*>(&any_port), sizeof any_port);
  serves(AF_UNIX, path.get(), sizeof path.address);
}

// Clients would connect, and nobody would answer.
TEST(ServerStart, AServeThatFailsLetsNothingListen) {
  const struct sockaddr_in any_port = loopback(0);
  const workflow::UniqueFd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      ::bind(bound.get(), reinterpret_cast<const struct sockaddr*>(&any_port), sizeof any_port), 0);
  WFHttpServer server(echo);
  EXPECT_EQ(server.serve(bound.get(), "/no/certificate", "/no/key"), -1);
  EXPECT_FALSE(RawClient(port_of(bound.get())).connected());
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  EXPECT_EQ(server.serve(bound.get()), -1);
  EXPECT_EQ(errno, EALREADY);
  EXPECT_FALSE(RawClient(port_of(bound.get())).connected());
  server.stop();
}

TEST(ServerStart, ServeNeedsABoundStreamSocket) {
  WFHttpServer server(echo);
  for (const int family : {AF_INET, AF_INET6, AF_UNIX}) {
    const workflow::UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(server.serve(fd.get()), -1) << family;
    EXPECT_EQ(errno, EINVAL);
  }
  const struct sockaddr_in any_port = loopback(0);
  const workflow::UniqueFd datagrams(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      ::bind(datagrams.get(), reinterpret_cast<const struct sockaddr*>(&any_port), sizeof any_port),
      0);
  EXPECT_EQ(server.serve(datagrams.get()), -1);
  EXPECT_EQ(errno, EINVAL);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const workflow::UniqueFd read_end(ends[0]);
  const workflow::UniqueFd write_end(ends[1]);
  EXPECT_EQ(server.serve(read_end.get()), -1);
  EXPECT_EQ(errno, ENOTSOCK);
}

TEST(ServerStart, TakenPort) {
  const workflow::UniqueFd other = listen_on_loopback();
  WFHttpServer server(echo);
  EXPECT_EQ(server.start("127.0.0.1", port_of(other.get())), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  // A failed start leaves nothing behind.
  EXPECT_EQ(server.start("127.0.0.1", 0), 0);
  server.stop();
}

TEST(ServerStart, StartedTwice) {
  WFHttpServer server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const uint16_t port = port_of(server);
  EXPECT_EQ(server.start("127.0.0.1", 0), -1);
  EXPECT_EQ(errno, EALREADY);
  EXPECT_EQ(server.start("127.0.0.1", port), -1);
  EXPECT_EQ(errno, EALREADY);
  const workflow::UniqueFd other = listen_on_loopback();
  EXPECT_EQ(server.serve(other.get()), -1);
  EXPECT_EQ(errno, EALREADY);
  EXPECT_EQ(port_of(server), port);
  EXPECT_EQ(RawClient(port).ask(kGet)->status, 200);
  server.stop();
}

TEST(ServerStart, AgainAfterStopOnTheSamePort) {
  // Keeps other programs from taking the port while the server is stopped.
  const workflow::UniqueFd kept = test_support::keep_port();
  const uint16_t port = port_of(kept.get());
  WFHttpServer server(echo);
  ASSERT_EQ(server.start("127.0.0.1", port), 0);
  for (int round = 0; round < 20; round++) {
    RawClient client(port);
    ASSERT_TRUE(client.connected()) << round;
    const auto got = client.ask(kGet);
    ASSERT_TRUE(got) << round;
    EXPECT_EQ(got->status, 200);
    server.stop();
    EXPECT_TRUE(client.ended());
    ASSERT_EQ(server.start("127.0.0.1", port), 0) << round << ": " << std::strerror(errno);
  }
  server.stop();
}

TEST(ServerStart, HostThatDoesNotResolve) {
  WFHttpServer server(echo);
  EXPECT_EQ(server.start("no host.has a space", 0), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST(ServerStart, AddressThatIsNotOurs) {
  WFHttpServer server(echo);
  EXPECT_EQ(server.start("192.0.2.1", 0), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST(ServerStart, ListenAddressIsThereOnlyWhileListening) {
  WFHttpServer server(echo);
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  EXPECT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  length = 4;
  EXPECT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
  EXPECT_EQ(errno, ENOBUFS);
  server.stop();
  length = sizeof address;
  EXPECT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST(ServerStart, StopOfAServerNeverStarted) {
  WFHttpServer server(echo);
  server.stop();
  server.shutdown();
  server.wait_finish();
  EXPECT_EQ(server.get_conn_count(), 0u);
}

TEST(ServerStart, ParamsAreTheUsersOrTheDefaults) {
  EXPECT_EQ(WFHttpServer(echo).get_params()->request_size_limit, 16u * 1024 * 1024);
  EXPECT_EQ(WFHttpServer(echo).get_params()->max_connections, 10000u);
  struct WFServerParams params = HTTP_SERVER_PARAMS_DEFAULT;
  params.keep_alive_timeout = 1234;
  EXPECT_EQ(WFHttpServer(&params, echo).get_params()->keep_alive_timeout, 1234);
}

TEST(ServerStart, WithoutSomethingNeededIsRefused) {
  const struct sockaddr_in address = loopback(0);
  const auto* any = reinterpret_cast<const struct sockaddr*>(&address);
  const auto expect_refused = [](int result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, EINVAL);
  };
  const workflow::UniqueFd listening = listen_on_loopback();
  WFHttpServer idle(nullptr);
  expect_refused(idle.start("127.0.0.1", 0));
  expect_refused(idle.start(any, sizeof address));
  expect_refused(idle.serve(listening.get()));
  WFHttpServer server(echo);
  const struct sockaddr* const none = nullptr;
  expect_refused(server.start(none, 0));
  expect_refused(server.start(none, sizeof address));
  expect_refused(server.start(any, 0));
  expect_refused(server.start(any, 1));
  struct WFServerParams params = http_params();
  params.transport_type = static_cast<enum TransportType>(TT_SCTP_SSL + 1);
  WFHttpServer unknown(&params, echo);
  expect_refused(unknown.start("127.0.0.1", 0));
  expect_refused(unknown.serve(listening.get()));
  EXPECT_EQ(server.start(any, sizeof address), 0);
  server.stop();
}

TEST(ServerStart, TwoServersAtOnce) {
  TestServer first([](WFHttpTask* task) { task->get_resp()->append_output_body("first"); });
  TestServer second([](WFHttpTask* task) { task->get_resp()->append_output_body("second"); });
  RawClient one = first.client();
  RawClient two = second.client();
  one.send(kGet);
  two.send(kGet);
  EXPECT_EQ(one.body(), "first");
  EXPECT_EQ(two.body(), "second");
}

}  // namespace server_test
