#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>

#include "support/Loopback.h"
#include "support/TestServer.h"

// What a request knows of its connection, and what a user keeps with it.

namespace server_test {
namespace {

// A server that holds the reply to one request, and knows before that and after it whether the
// client had gone.
class ClosedWatcher {
 public:
  // `later`: called when the reply is let go.
  explicit ClosedWatcher(Transport transport, std::function<void(WFHttpTask*)> later = nullptr)
      : server(transport, [this, later = std::move(later)](WFHttpTask* task) {
          closed_at_first = task->closed();
          series_of(task)->push_back(
              WFTaskFactory::create_timer_task("held", 3600, 0, [this, task, later](WFTimerTask*) {
                closed_later = task->closed();
                if (later) {
                  later(task);
                }
              }));
          task->set_callback([this](WFHttpTask* each) {
            state = each->get_state();
            error = each->get_error();
            ended.add();
          });
          task_ = task;
        }) {}

  // A client whose request is being processed.
  RawClient begin() {
    RawClient client = server.asking_client();
    return client;
  }
  bool notices() {
    return eventually([this] { return task_.load()->closed(); });
  }
  static void let_go() { EXPECT_EQ(WFTaskFactory::cancel_by_name("held"), 1); }

  std::atomic<bool> closed_at_first{false};
  std::atomic<bool> closed_later{false};
  std::atomic<int> state{-2};
  std::atomic<int> error{-2};
  test_support::Tally ended;
  TestServer server;

 private:
  std::atomic<WFHttpTask*> task_{nullptr};
};

struct CountedConnection final : WFConnection {
  explicit CountedConnection(std::atomic<int>& alive) : alive_(alive) { alive_++; }
  ~CountedConnection() override { alive_--; }
  std::atomic<int>& alive_;
};

class ConnectionServer final : public WFHttpServer {
 public:
  explicit ConnectionServer(http_process_t process) : WFHttpServer(std::move(process)) {}
  ~ConnectionServer() override { stop(); }

  std::atomic<int> alive{0};
  std::atomic<int> made{0};
  std::atomic<bool> refuse{false};

 private:
  WFConnection* new_connection(int fd) override {
    int type = 0;
    socklen_t length = sizeof type;
    EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length), 0);
    made++;
    return refuse ? nullptr : new CountedConnection(alive);
  }
};

RawClient client_of(const WFHttpServer& server) {
  return RawClient(test_support::port_of(server));
}

class Closed : public testing::TestWithParam<Transport> {};

}  // namespace

TEST(Peer, AddressIsTheClients) {
  TestServer server([](WFHttpTask* task) {
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
    EXPECT_EQ(length, sizeof address);
    EXPECT_EQ(address.sin_family, AF_INET);
    EXPECT_EQ(address.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    task->get_resp()->append_output_body(std::to_string(ntohs(address.sin_port)));
    length = 3;
    EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
    EXPECT_EQ(errno, ENOBUFS);
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->body, std::to_string(test_support::port_of(client.fd())));
}

TEST_P(Closed, NotWhileTheClientWaits) {
  ClosedWatcher watcher(GetParam());
  RawClient client = watcher.begin();
  EXPECT_TRUE(client.silent_for(std::chrono::milliseconds(20)));  // time to be wrong in
  ClosedWatcher::let_go();
  EXPECT_EQ(client.status(), 200);
  EXPECT_FALSE(watcher.closed_at_first);
  EXPECT_FALSE(watcher.closed_later);
}

TEST_P(Closed, AfterTheClientHalfClosed) {
  ClosedWatcher watcher(GetParam());
  RawClient client = watcher.begin();
  client.half_close();
  EXPECT_TRUE(watcher.notices());
  ClosedWatcher::let_go();
  EXPECT_EQ(client.status(), 200);
  EXPECT_FALSE(watcher.closed_at_first);
  EXPECT_TRUE(watcher.closed_later);
  EXPECT_EQ(client.ending(), Ending::kClosed);
}

TEST_P(Closed, AfterTheClientLeft) {
  ClosedWatcher watcher(GetParam());
  RawClient client = watcher.begin();
  client.close();
  EXPECT_TRUE(watcher.notices());
  ClosedWatcher::let_go();
  ASSERT_TRUE(watcher.ended.wait_for(1));
  EXPECT_TRUE(watcher.closed_later);
  EXPECT_TRUE(watcher.server.has_connections(0));
}

TEST_P(Closed, AfterTheClientReset) {
  ClosedWatcher watcher(GetParam());
  RawClient client = watcher.begin();
  client.reset();
  EXPECT_TRUE(watcher.notices());
  ClosedWatcher::let_go();
  ASSERT_TRUE(watcher.ended.wait_for(1));
  EXPECT_TRUE(watcher.closed_later);
  EXPECT_EQ(watcher.state, WFT_STATE_SYS_ERROR);
  EXPECT_TRUE(watcher.error == ECONNRESET || watcher.error == EPIPE) << watcher.error;
  EXPECT_TRUE(watcher.server.has_connections(0));
}

TEST_P(Closed, PeerAddressOfAResetClientIsGone) {
  ClosedWatcher watcher(GetParam(), [](WFHttpTask* task) {
    struct sockaddr_storage address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(task->get_peer_addr(reinterpret_cast<struct sockaddr*>(&address), &length), -1);
    EXPECT_EQ(errno, ENOTCONN);
  });
  RawClient client = watcher.begin();
  client.reset();
  EXPECT_TRUE(watcher.notices());
  ClosedWatcher::let_go();
  EXPECT_TRUE(watcher.ended.wait_for(1));
}

TEST(Context, LivesAsLongAsTheConnection) {
  std::atomic<int> deleted{0};
  TestServer server([&](WFHttpTask* task) {
    WFConnection* connection = task->get_connection();
    auto* count = static_cast<int*>(connection->get_context());
    if (!count) {
      count = new int(0);
      connection->set_context(count, [&](void* context) {
        delete static_cast<int*>(context);
        deleted++;
      });
    }
    task->get_resp()->append_output_body(std::to_string(++*count));
  });
  RawClient first = server.client();
  RawClient second = server.client();
  EXPECT_EQ(first.ask(kGet)->body, "1");
  EXPECT_EQ(first.ask(kGet)->body, "2");
  EXPECT_EQ(second.ask(kGet)->body, "1");
  EXPECT_EQ(first.ask(kGet)->body, "3");
  EXPECT_EQ(deleted, 0);
  first.close();
  EXPECT_TRUE(eventually([&] { return deleted == 1; }));
  second.reset();
  EXPECT_TRUE(eventually([&] { return deleted == 2; }));
}

TEST(Context, ReplacedContextIsDeletedAtOnce) {
  int first = 0;
  int second = 0;
  std::atomic<int> deleted{0};
  const auto deleter = [&](void*) { deleted++; };
  TestServer server([&](WFHttpTask* task) {
    WFConnection* connection = task->get_connection();
    EXPECT_EQ(connection->test_set_context(nullptr, &first, deleter), &first);
    EXPECT_EQ(connection->test_set_context(nullptr, &second, deleter), &first);
    EXPECT_EQ(connection->get_context(), &first);
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(connection->test_set_context(&first, &second, deleter), &second);
    EXPECT_EQ(deleted, 1);
    connection->set_context(&first);
    EXPECT_EQ(deleted, 2);
  });
  RawClient client = server.client();
  EXPECT_EQ(client.ask(kGet)->status, 200);
  server->stop();
  EXPECT_EQ(deleted, 2);
}

TEST(Context, OutlivesTheSocketWhileASeriesRuns) {
  std::atomic<int> deleted{0};
  test_support::Tally ended;
  TestServer server([&](WFHttpTask* task) {
    task->get_connection()->set_context(task, [&](void*) { deleted++; });
    WFTimerTask* timer = WFTaskFactory::create_timer_task(60000, [&, task](WFTimerTask*) {
      EXPECT_EQ(task->get_connection()->get_context(), task);
      EXPECT_EQ(deleted, 0);
      ended.add();
    });
    series_of(task)->push_back(timer);
  });
  RawClient client = server.asking_client();
  client.reset();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(eventually([&] { return deleted == 1; }));
}

TEST(NewConnection, IsTheUsers) {
  ConnectionServer server([](WFHttpTask* task) {
    EXPECT_NE(dynamic_cast<CountedConnection*>(task->get_connection()), nullptr);
  });
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  RawClient client = client_of(server);
  EXPECT_EQ(client.ask(kGet)->status, 200);
  EXPECT_EQ(client.ask(kGet)->status, 200);
  RawClient other = client_of(server);
  EXPECT_EQ(other.ask(kGet)->status, 200);
  EXPECT_EQ(server.made, 2);
  EXPECT_EQ(server.alive, 2);
  client.close();
  EXPECT_TRUE(eventually([&] { return server.alive == 1; }));
  server.stop();
  EXPECT_EQ(server.alive, 0);
}

TEST(NewConnection, NullRefusesTheClient) {
  ConnectionServer server(echo);
  server.refuse = true;
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  RawClient client = client_of(server);
  client.send(kGet);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(server.get_conn_count(), 0u);
  server.refuse = false;
  EXPECT_EQ(client_of(server).ask(kGet)->status, 200);
}

INSTANTIATE_TEST_SUITE_P(All, Closed, testing::Values(Transport::kPlain, Transport::kTls),
                         transport_name);

}  // namespace server_test
