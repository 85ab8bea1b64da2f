#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fault/CutStream.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/Sanitizers.h"
#include "support/TestServer.h"
#include "support/Text.h"
#include "workflow/WFGlobal.h"

// The smallest socket buffers there are, and peers that send and take one byte at a time.

namespace {

using fault::CutStream;
using server_test::RawClient;
using test_support::pattern;

// The size of a buffer; the system rounds it up to the least it has.
constexpr int kSmallest = 1;

void make_tiny(int fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSmallest, sizeof kSmallest);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSmallest, sizeof kSmallest);
}

// Whether `text` is a whole reply, or request, with that at its end.
bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class Dribble : public testing::TestWithParam<bool> {
 protected:
  // What is accepted inherits the buffers of the socket that listens.
  void SetUp() override {
    listener_ = test_support::listen_on_loopback(64, kSmallest, kSmallest);
    ASSERT_TRUE(listener_.valid());
    port_ = test_support::port_of(listener_.get());
  }

  SSL_CTX* client_context() {
    if (GetParam() && !client_context_) {
      client_context_.reset(SSL_CTX_new(TLS_client_method()));
    }
    return client_context_.get();
  }

  const size_t size_ = test_support::kSanitized ? 2'000 : 10'000;
  const std::string body_ = pattern(size_);
  test_support::Authority authority_;
  const test_support::Certificate certificate_ = authority_.issue({"IP:127.0.0.1"});
  workflow::UniqueFd listener_;
  uint16_t port_ = 0;
  fault::Context client_context_;
};

}  // namespace

TEST_P(Dribble, ClientsOfAServer) {
  WFHttpServer server(server_test::echo);
  ASSERT_EQ(server.serve(listener_.get(), GetParam() ? certificate_.cert_file.c_str() : nullptr,
                         GetParam() ? certificate_.key_file.c_str() : nullptr),
            0);
  SSL_CTX* const context = client_context();
  std::atomic<int> right{0};
  std::vector<std::jthread> clients;
  for (int i = 0; i < 10; i++) {
    clients.emplace_back([&] {
      RawClient client(port_, 1);
      make_tiny(client.fd());
      CutStream stream(client.fd(), context, CutStream::Role::kClient, SIZE_MAX, SIZE_MAX);
      stream.set_piece(1);
      right += stream.handshake() && stream.send(server_test::post("/1", body_)) &&
               stream.receive([&](const std::string& text) {
                 return ends_with(text, "\r\n\r\nPOST /1 " + body_);
               });
    });
  }
  clients.clear();  // joins them
  EXPECT_EQ(right, 10);
  server.stop();
}

TEST_P(Dribble, ServerOfAClient) {
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str());
  fault::Context context;
  if (GetParam()) {
    context.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate_chain_file(context.get(), certificate_.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), certificate_.key_file.c_str(), SSL_FILETYPE_PEM);
  }
  std::thread server([&] {
    workflow::UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    CutStream stream(fd.get(), context.get(), CutStream::Role::kServer, SIZE_MAX, SIZE_MAX);
    stream.set_piece(1);
    EXPECT_TRUE(stream.handshake());
    EXPECT_TRUE(stream.receive(
        [&](const std::string& text) { return ends_with(text, "\r\n\r\n" + body_); }));
    EXPECT_TRUE(stream.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size_) +
                            "\r\n\r\n" + body_));
  });
  const client_test::Fetched got = client_test::fetch(
      std::string(GetParam() ? "https" : "http") + "://127.0.0.1:" + std::to_string(port_) + "/",
      {.change = [&](WFHttpTask* task) {
        task->get_req()->set_method("POST");
        task->get_req()->append_output_body_nocopy(body_);
      }});
  server.join();
  EXPECT_EQ(got.state, WFT_STATE_SUCCESS) << got.error;
  EXPECT_TRUE(got.body == body_);
}

INSTANTIATE_TEST_SUITE_P(All, Dribble, testing::Values(false, true), [](const auto& over_tls) {
  return std::string(over_tls.param ? "Tls" : "Plain");
});
