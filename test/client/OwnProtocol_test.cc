#include <gtest/gtest.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "support/Certificates.h"
#include "support/RawServer.h"
#include "support/TempDir.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFServer.h"

// Clients and servers of a protocol that is not HTTP, here TLV, over every transport.

namespace client_test {
namespace {

using protocol::TLVRequest;
using protocol::TLVResponse;
using Task = WFNetworkTask<TLVRequest, TLVResponse>;
using Server = WFServer<TLVRequest, TLVResponse>;
using Factory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;

void echo(Task* task) {
  task->get_resp()->set_type(task->get_req()->get_type() + 1);
  task->get_resp()->set_value(*task->get_req()->get_value());
}

struct sockaddr_in address_of(const Server& server) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  EXPECT_EQ(server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length), 0);
  return address;
}

struct Answer {
  int state = -2;
  int error = 0;
  long long sequence = 0;
  int type = 0;
  std::string value;
};

// Sends `value` by the task and waits for the answer.
Answer ask(Task* task, int type, const std::string& value) {
  Answer answer;
  WFFacilities::WaitGroup group(1);
  task->get_req()->set_type(type);
  task->get_req()->set_value(value);
  task->set_callback([&](Task* ended) {
    answer = {ended->get_state(), ended->get_error(), ended->get_task_seq(),
              ended->get_resp()->get_type(), *ended->get_resp()->get_value()};
    group.done();
  });
  task->start();
  group.wait();
  return answer;
}

TEST(OwnProtocol, OverTcp) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const unsigned short port = ntohs(address_of(server).sin_port);
  const Answer by_host =
      ask(Factory::create_client_task(TT_TCP, "127.0.0.1", port, 0, nullptr), 6, "by host");
  EXPECT_EQ(by_host.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(by_host.type, 7);
  EXPECT_EQ(by_host.value, "by host");
  const std::string url = "tlv://127.0.0.1:" + std::to_string(port);
  EXPECT_EQ(ask(Factory::create_client_task(TT_TCP, url, 0, nullptr), 0, "by url").value, "by url");
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse(url, uri), 0);
  EXPECT_EQ(ask(Factory::create_client_task(TT_TCP, uri, 0, nullptr), 0, "by uri").value, "by uri");
  server.stop();
}

TEST(OwnProtocol, SchemesMayHavePorts) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "tlv-test://127.0.0.1";
  const Answer unknown = ask(Factory::create_client_task(TT_TCP, url, 0, nullptr), 0, "x");
  EXPECT_EQ(unknown.state, WFT_STATE_TASK_ERROR);
  EXPECT_EQ(unknown.error, WFT_ERR_URI_SCHEME_INVALID);
  WFGlobal::register_scheme_port("tlv-test", ntohs(address_of(server).sin_port));
  EXPECT_EQ(ask(Factory::create_client_task(TT_TCP, url, 0, nullptr), 0, "x").value, "x");
  server.stop();
}

TEST(OwnProtocol, OverUnixSockets) {
  const test_support::TempDir folder;
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  folder.path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* generic = reinterpret_cast<const struct sockaddr*>(&address);
  const Answer nobody =
      ask(Factory::create_client_task(TT_TCP, generic, sizeof address, 1, nullptr), 0, "x");
  EXPECT_EQ(nobody.error, ENOENT);
  Server server(echo);
  ASSERT_EQ(server.start(generic, sizeof address), 0);
  const std::string large(1'000'000, 'u');
  EXPECT_TRUE(
      ask(Factory::create_client_task(TT_TCP, generic, sizeof address, 0, nullptr), 0, large)
          .value == large);
  server.stop();
}

TEST(OwnProtocol, OverTls) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str()), 1);
  Server server(echo);
  ASSERT_EQ(
      server.start("127.0.0.1", 0, certificate.cert_file.c_str(), certificate.key_file.c_str()), 0);
  const struct sockaddr_in address = address_of(server);
  // Without a name the address is what the certificate has to be for.
  Task* task = Factory::create_client_task(
      TT_TCP_SSL, reinterpret_cast<const struct sockaddr*>(&address), sizeof address, 0, nullptr);
  EXPECT_EQ(ask(task, 0, "safe").value, "safe");
  server.stop();
}

TEST(OwnProtocol, ConnectionsAreKeptIfAskedFor) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const unsigned short port = ntohs(address_of(server).sin_port);
  for (const int keep_alive : {0, 60'000}) {
    for (int i = 0; i < 3; i++) {
      Task* task = Factory::create_client_task(TT_TCP, "127.0.0.1", port, 0, nullptr);
      task->set_keep_alive(keep_alive);
      EXPECT_EQ(ask(task, 0, "x").sequence, keep_alive == 0 ? 0 : i);
    }
  }
  server.stop();
}

TEST(OwnProtocol, AConnectionHasAContext) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const unsigned short port = ntohs(address_of(server).sin_port);
  static std::atomic<int> freed{0};
  static int first = 0;
  for (int i = 0; i < 3; i++) {
    Task* task = Factory::create_client_task(TT_TCP, "127.0.0.1", port, 0, nullptr);
    task->set_keep_alive(i < 2 ? 60'000 : 0);
    task->set_prepare([i](Task* prepared) {
      WFConnection* connection = prepared->get_connection();
      EXPECT_EQ(connection->get_context(), i == 0 ? nullptr : &first);
      if (i == 0) {
        connection->set_context(&first, [](void*) { freed++; });
      }
    });
    EXPECT_EQ(ask(task, 0, "x").state, WFT_STATE_SUCCESS);
  }
  server.stop();
  // The client's side closes after the callback: wait for another's turn.
  for (int i = 0; i < 10'000 && freed == 0; i++) {
    WFFacilities::usleep(1000);
  }
  EXPECT_EQ(freed, 1);
}

TEST(OwnProtocol, ResponsesMayBeLimited) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const unsigned short port = ntohs(address_of(server).sin_port);
  Task* task = Factory::create_client_task(TT_TCP, "127.0.0.1", port, 3, nullptr);
  task->get_resp()->set_size_limit(100);
  const Answer answer = ask(task, 0, std::string(1000, 'x'));
  EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(answer.error, EMSGSIZE);
  server.stop();
}

TEST(OwnProtocol, TargetsThatAreNoneAreTold) {
  struct sockaddr_storage address[2] = {};
  address[0].ss_family = AF_INET;
  const auto* any = reinterpret_cast<const struct sockaddr*>(address);
  const auto unknown = static_cast<enum TransportType>(TT_SCTP_SSL + 1);
  const struct sockaddr* const none = nullptr;
  for (Task* task :
       {Factory::create_client_task(TT_TCP, any, 0, 0, nullptr),
        Factory::create_client_task(TT_TCP, any, 1, 0, nullptr),
        Factory::create_client_task(TT_UDP, any, sizeof address[0] + 1, 0, nullptr),
        Factory::create_client_task(TT_TCP, none, 0, 0, nullptr),
        Factory::create_client_task(TT_TCP, none, sizeof address[0], 0, nullptr),
        Factory::create_client_task(unknown, any, sizeof(struct sockaddr_in), 0, nullptr),
        Factory::create_client_task(unknown, "127.0.0.1", 1, 0, nullptr),
        Factory::create_client_task(unknown, "tlv://127.0.0.1:1", 0, nullptr)}) {
    const Answer answer = ask(task, 0, "x");
    EXPECT_EQ(answer.state, WFT_STATE_SYS_ERROR);
    EXPECT_EQ(answer.error, EINVAL);
  }
}

TEST(OwnProtocol, FacilitiesRequest) {
  Server server(echo);
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "tlv://127.0.0.1:" + std::to_string(ntohs(address_of(server).sin_port));
  TLVRequest request;
  request.set_type(1);
  request.set_value("waited for");
  auto result = WFFacilities::request<TLVRequest, TLVResponse>(TT_TCP, url, std::move(request), 0);
  EXPECT_EQ(result.task_state, WFT_STATE_SUCCESS);
  EXPECT_EQ(result.resp.get_type(), 2);
  EXPECT_EQ(*result.resp.get_value(), "waited for");
  EXPECT_EQ(result.seqid, 0);
  server.stop();
  TLVRequest again;
  auto future =
      WFFacilities::async_request<TLVRequest, TLVResponse>(TT_TCP, url, std::move(again), 0);
  const auto refused = future.get();
  EXPECT_EQ(refused.task_state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(refused.task_error, ECONNREFUSED);
}

}  // namespace
}  // namespace client_test
