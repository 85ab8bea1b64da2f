#include <gtest/gtest.h>
#include <netinet/in.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/HttpMessageChunk.h"
#include "workflow/TLVMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFTaskFactory.h"

// The calls of network programs, in the forms in which existing programs write them. That this
// compiles is the test; what the calls do is tested elsewhere.

namespace {

using F = WFTaskFactory;
using protocol::TLVRequest;
using protocol::TLVResponse;
using TLVTask = WFNetworkTask<TLVRequest, TLVResponse>;
using TLVFactory = WFNetworkTaskFactory<TLVRequest, TLVResponse>;
using TLVServer = WFServer<TLVRequest, TLVResponse>;

template <class Task>
void drop(Task* task) {
  EXPECT_NE(task, nullptr);
  task->dismiss();
}

// A server whose protected parts are a program's own.
class OwnServer : public WFHttpServer {
 public:
  using WFHttpServer::WFHttpServer;

 protected:
  SSL_CTX* new_ssl_ctx(const char* cert_file, const char* key_file) override {
    return WFHttpServer::new_ssl_ctx(cert_file, key_file);
  }
  SSL_CTX* get_server_ssl_ctx(const char* servername) override {
    return WFHttpServer::get_server_ssl_ctx(servername);
  }
  WFConnection* new_connection(int fd) override { return WFHttpServer::new_connection(fd); }
};

}  // namespace

TEST(NetworkSignatures, HttpClients) {
  const std::string url = "http://127.0.0.1:1/";
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse(url, uri), 0);
  const http_callback_t callback = nullptr;
  drop(F::create_http_task(url, 1, 2, callback));
  drop(F::create_http_task(uri, 1, 2, nullptr));
  drop(F::create_http_task(url, "http://127.0.0.1:2/", 1, 2, [](WFHttpTask*) {}));
  WFHttpTask* task = F::create_http_task(url, 0, 0, nullptr);
  task->set_send_timeout(1);
  task->set_receive_timeout(1);
  task->set_keep_alive(1);
  task->set_watch_timeout(1);
  task->set_prepare([](WFHttpTask*) {});
  task->user_data = &uri;
  EXPECT_EQ(task->get_timeout_reason(), TOR_NOT_TIMEOUT);
  EXPECT_EQ(task->get_task_seq(), 0);
  drop(task);
}

TEST(NetworkSignatures, ChunkedClients) {
  using Client = WFHttpChunkedClient;
  const std::string url = "http://127.0.0.1:1/";
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse(url, uri), 0);
  auto extract = [](WFHttpChunkedTask* task) {
    const protocol::HttpMessageChunk* chunk = task->get_chunk();
    const void* data = nullptr;
    size_t size = 0;
    if (chunk) chunk->get_chunk_data(&data, &size);
  };
  const Client::extract_t named_extract = extract;
  const Client::callback_t named_callback = nullptr;
  drop(Client::create_chunked_task(url, 1, named_extract, named_callback));
  WFHttpChunkedTask* task = Client::create_chunked_task(uri, 1, extract, [](WFHttpChunkedTask*) {});
  task->set_watch_timeout(1);
  task->set_receive_timeout(1);
  task->set_recv_timeout(1);
  task->set_send_timeout(1);
  task->set_keep_alive(1);
  task->set_ssl_ctx(nullptr);
  task->extract_on_header(true);
  task->set_extract(extract);
  EXPECT_NE(task->get_req(), nullptr);
  EXPECT_NE(task->get_resp(), nullptr);
  EXPECT_NE(task->get_http_task(), nullptr);
  drop(task);
}

TEST(NetworkSignatures, ClientsOfAnyProtocol) {
  struct sockaddr_in address = {};
  const auto* generic = reinterpret_cast<const struct sockaddr*>(&address);
  const std::function<void(TLVTask*)> callback = nullptr;
  ParsedURI uri;
  ASSERT_EQ(URIParser::parse("tlv://127.0.0.1:1", uri), 0);
  drop(TLVFactory::create_client_task(TT_TCP, "127.0.0.1", 1, 0, callback));
  drop(TLVFactory::create_client_task(TT_UDP, "tlv://127.0.0.1:1", 0, nullptr));
  drop(TLVFactory::create_client_task(TT_TCP_SSL, uri, 0, nullptr));
  drop(TLVFactory::create_client_task(TT_SCTP, generic, sizeof address, 0, nullptr));
  drop(TLVFactory::create_client_task(TT_TCP_SSL, generic, sizeof address, nullptr, 0, nullptr));
}

TEST(NetworkSignatures, Servers) {
  const char* const none = "/nonexistent";
  TLVServer plain([](TLVTask*) {});
  WFHttpServer http(&HTTP_SERVER_PARAMS_DEFAULT, [](WFHttpTask*) {});
  OwnServer server([](WFHttpTask*) {});
  EXPECT_EQ(server.start(AF_INET, "127.0.0.1", 0, none, none), -1);
  EXPECT_EQ(server.start("127.0.0.1", 0, none, none), -1);
  EXPECT_EQ(server.serve(-1, none, none), -1);
  EXPECT_EQ(server.get_conn_count(), 0u);
  EXPECT_NE(server.get_params(), nullptr);
  EXPECT_EQ(server.start("127.0.0.1", 0), 0);
  const WFStopResult result = server.stop(0, WF_STOP_DROP);
  EXPECT_EQ(result.cut_short + result.running, 0u);
}

TEST(NetworkSignatures, Facilities) {
  EXPECT_NE(WFGlobal::get_ssl_client_ctx(), nullptr);
  SSL_CTX* context = WFGlobal::new_ssl_server_ctx();
  ASSERT_NE(context, nullptr);
  SSL_CTX_free(context);
  TLVRequest request;
  // Nobody listens there.
  const WFFacilities::WFNetworkResult<TLVResponse> result =
      WFFacilities::request<TLVRequest, TLVResponse>(TT_TCP, "tlv://127.0.0.1:1",
                                                     std::move(request), 0);
  EXPECT_EQ(result.task_state, WFT_STATE_SYS_ERROR);
  EXPECT_NE(result.task_error, 0);
}
