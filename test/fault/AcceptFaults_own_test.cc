#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "fault/SystemFaults.h"
#include "support/CpuTime.h"
#include "support/Descriptors.h"
#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"

// What accept(2) may answer without ending the listener, and life without descriptors.

namespace {

using server_test::RawClient;
using server_test::TestServer;
using std::chrono::milliseconds;
using test_support::Tally;

constexpr const char* kGet = server_test::kGet;

const test_support::Certificate& certificate() {
  static test_support::Authority authority;
  static const test_support::Certificate issued = authority.issue({"IP:127.0.0.1"});
  return issued;
}

bool serves_over_tls(const TestServer& server) {
  server_test::TlsClient client(server.port(), {});
  return client.connected() && client.send(kGet) && client.body() == "GET / ";
}

void serves_after(int error, int failures) {
  TestServer server;
  fault::accept_error = error;
  fault::accept_failures = failures;
  RawClient client = server.client();
  const auto got = client.ask(kGet);
  ASSERT_TRUE(got) << std::strerror(error);
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(fault::accept_failures, 0);
  EXPECT_TRUE(server.serves());
  TestServer over_tls(server_test::echo, server_test::http_params(), &certificate());
  fault::accept_failures = failures;
  EXPECT_TRUE(serves_over_tls(over_tls)) << std::strerror(error);
  EXPECT_EQ(fault::accept_failures, 0);
}

class CountingServer final : public WFHttpServer {
 public:
  CountingServer() : WFHttpServer(server_test::echo) {}
  ~CountingServer() override { stop(); }

  std::atomic<int> freed{0};

 private:
  void delete_connection(WFConnection* connection) override {
    freed++;
    WFHttpServer::delete_connection(connection);
  }
};

class AcceptError : public testing::TestWithParam<int> {};

}  // namespace

TEST_P(AcceptError, PassesOnce) {
  serves_after(GetParam(), 1);
}

TEST_P(AcceptError, PassesManyTimes) {
  serves_after(GetParam(), 5);
}

INSTANTIATE_TEST_SUITE_P(All, AcceptError,
                         testing::Values(EINTR, ECONNABORTED, ENOMEM, ENOBUFS, EPROTO, ENETDOWN,
                                         ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP,
                                         ENETUNREACH, EPERM),
                         [](const auto& each) { return std::to_string(each.param); });

TEST(AcceptFaults, WithoutDescriptorsAClientIsTurnedAway) {
  for (const int error : {EMFILE, ENFILE}) {
    TestServer server;
    fault::accept_error = error;
    fault::accept_failures = 1;
    RawClient client = server.client();
    EXPECT_TRUE(client.ended());
    EXPECT_TRUE(server.serves());
    EXPECT_EQ(server.requests(), 1);
  }
}

TEST(AcceptFaults, LackOfMemoryForASecondDoesNotSpin) {
  TestServer server;
  fault::accept_error = ENOMEM;
  fault::accept_failures = -1;
  RawClient client = server.client();
  client.send(kGet);
  // The claim is about real time, a second or what a busy machine makes of it.
  const auto begin = std::chrono::steady_clock::now();
  const int calls = fault::accept_calls;
  EXPECT_TRUE(client.silent_for(milliseconds(1000)));
  const int more = fault::accept_calls - calls;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(more, 40 * passed.count());
  fault::accept_failures = 0;
  EXPECT_EQ(client.status(), 200);
}

// ENFILE, which another process brings about, is not in a test's power otherwise.
TEST(AcceptFaults, LackOfDescriptorsForASecondDoesNotSpin) {
  for (const int error : {EMFILE, ENFILE}) {
    for (const bool with_tls : {false, true}) {
      TestServer server(server_test::echo, server_test::http_params(),
                        with_tls ? &certificate() : nullptr);
      fault::accept_error = error;
      fault::accept_failures = -1;
      RawClient client = server.client();
      const int64_t before_us = test_support::cpu_us();
      EXPECT_TRUE(client.silent_for(milliseconds(500)));  // the claim is about real time
      EXPECT_LE(test_support::cpu_us() - before_us, 100'000);
      fault::accept_failures = 0;
      const auto start = std::chrono::steady_clock::now();
      EXPECT_TRUE(with_tls ? serves_over_tls(server) : server.serves());
      EXPECT_LE(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    }
  }
}

// What the poller cannot watch is closed, not forgotten.
TEST(AcceptFaults, AConnectionThatCannotBeWatchedIsClosed) {
  TestServer server;
  for (const int error : {ENOMEM, ENOSPC}) {
    fault::watch_error = error;
    fault::watch_failures = 1;
    RawClient client = server.client();
    EXPECT_TRUE(client.ended());
    EXPECT_EQ(fault::watch_failures, 0);
    EXPECT_TRUE(server.has_connections(0));
    EXPECT_TRUE(server.serves());
  }
}

// The shutdown finds the connection, and asks its poller to look, before the start has failed.
TEST(AcceptFaults, AConnectionThatCannotBeWatchedWhileItsServerStopsIsFreedOnce) {
  CountingServer server;
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  Tally failing;
  Tally shut_down;
  fault::before_watch_failure = [&] {
    failing.add();
    shut_down.wait_for(1);
  };
  fault::watch_error = ENOMEM;
  fault::watch_failures = 1;
  RawClient client(test_support::port_of(server));
  ASSERT_TRUE(failing.wait_for(1));
  server.shutdown();
  shut_down.add();
  server.wait_finish();
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(server.freed, 1);
  EXPECT_EQ(fault::vain_removals, 0);  // the poller did not retire it: that would free it, too
}

TEST(Descriptors, ExhaustionDoesNotSpin) {
  TestServer server;
  RawClient established = server.client();
  EXPECT_EQ(established.ask(kGet)->status, 200);
  // The clients have their sockets before: the server would take each descriptor given back.
  std::vector<workflow::UniqueFd> waiting;
  for (int i = 0; i < 20; i++) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  test_support::NoDescriptors exhausted;
  struct sockaddr_in address = test_support::loopback(server.port());
  for (const workflow::UniqueFd& fd : waiting) {
    ASSERT_EQ(
        ::connect(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address), 0);
  }
  const int64_t before_us = test_support::cpu_us();
  std::this_thread::sleep_for(milliseconds(1000));  // the claim is about real time
  EXPECT_LE(test_support::cpu_us() - before_us, 200'000);
  // A client that is connected already is served meanwhile.
  EXPECT_EQ(established.ask(kGet)->status, 200);
}

TEST(Descriptors, ServesAgainSoonAfterExhaustion) {
  TestServer server;
  RawClient established = server.client();
  EXPECT_EQ(established.ask(kGet)->status, 200);
  test_support::NoDescriptors exhausted;
  exhausted.give_back_one();
  RawClient turned_away = server.client();
  // Answered by closing, not left hanging.
  EXPECT_TRUE(turned_away.ended());
  exhausted.give_back();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(server.serves());
  EXPECT_LE(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(established.ask(kGet)->status, 200);
}

TEST(Descriptors, StopWhileExhausted) {
  TestServer server;
  RawClient established = server.client();
  EXPECT_EQ(established.ask(kGet)->status, 200);
  test_support::NoDescriptors exhausted;
  exhausted.give_back_one();
  RawClient waiting = server.client();
  server->stop();
  EXPECT_TRUE(established.ended());
  EXPECT_TRUE(waiting.ended());
}

TEST(Descriptors, StartWithoutAnyFailsWithEMFILE) {
  TestServer first;  // the library is running
  EXPECT_TRUE(first.serves());
  WFHttpServer server(server_test::echo);
  {
    test_support::NoDescriptors exhausted;
    EXPECT_EQ(server.start("127.0.0.1", 0), -1);
    EXPECT_EQ(errno, EMFILE);
  }
  EXPECT_EQ(server.start("127.0.0.1", 0), 0);
}
