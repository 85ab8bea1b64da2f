#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "support/Certificates.h"
#include "support/MemoryFaults.h"
#include "support/RawServer.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpChunkedClient.h"

// Allocations of a request that fail, one at a time.

namespace client_test {
namespace {

struct Ended {
  int state = -2;
  int error = 0;
  size_t body = 0;
  std::atomic<int> callbacks{0};
};

class ClientMemory : public testing::Test {
 protected:
  ClientMemory() : certificate_(authority_.issue({"IP:127.0.0.1"})) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL's own sockets, on the server's side
    SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str());
    fetch_failing(server_.port(), false, false, kNone);  // the library has started
    fetch_failing(tls_server_.port(), true, false, kNone);
  }

  struct Outcome {
    int state;
    int error;
    size_t body;
    bool failed;
  };
  static constexpr long kNone = -1;
  // The outcome of a request whose n-th allocation fails, and whether there were as many.
  Outcome fetch_failing(uint16_t port, bool tls, bool streamed, long n) {
    Ended ended;
    WFFacilities::WaitGroup group(1);
    const std::string url =
        (tls ? "https" : "http") + std::string("://127.0.0.1:") + std::to_string(port) + "/x";
    const auto callback = [&](WFHttpTask* task) {
      const void* body = nullptr;
      size_t size = 0;
      task->get_resp()->get_parsed_body(&body, &size);
      ended.state = task->get_state();
      ended.error = task->get_error();
      ended.body += size;
      ended.callbacks++;
      group.done();
    };
    WFHttpTask* task = streamed ? WFHttpChunkedClient::create_chunked_task(
                                      url, 0,
                                      [&](WFHttpChunkedTask* extracting) {
                                        const void* data = nullptr;
                                        size_t size = 0;
                                        extracting->get_chunk()->get_chunk_data(&data, &size);
                                        ended.body += size;
                                      },
                                      callback)
                       : proxy_.empty()
                           ? WFTaskFactory::create_http_task(url, 0, 0, callback)
                           : WFTaskFactory::create_http_task(url, proxy_, 0, 0, callback);
    task->set_keep_alive(n % 2 == 0 ? 0 : 60'000);
    WFDeadlineTask* const deadline =
        has_deadline_ ? with_deadline(task, std::chrono::hours(1), nullptr) : nullptr;
    fault::arm(n);
    fault::counts_here = true;
    deadline ? deadline->start() : task->start();
    fault::counts_here = false;
    group.wait();
    const bool failed = fault::disarm() > 0;
    EXPECT_EQ(ended.callbacks, 1);
    return {ended.state, ended.error, ended.body, failed};
  }

  // Each of them fails once, on connections that are new and on ones that are kept.
  void fail_each(uint16_t port, bool tls, bool streamed) {
    std::map<std::pair<int, int>, int> outcomes;
    bool failed = true;
    long n = 1;
    for (; failed && n < 20'000; n++) {
      const Outcome got = fetch_failing(port, tls, streamed, n);
      failed = got.failed;
      outcomes[{got.state, got.state == WFT_STATE_SSL_ERROR ? 0 : got.error}]++;
      if (got.state == WFT_STATE_SUCCESS) {
        ASSERT_EQ(got.body, kBody) << n;
      }
      // It was that request's misfortune alone.
      const Outcome after = fetch_failing(port, tls, streamed, kNone);
      ASSERT_EQ(after.state, WFT_STATE_SUCCESS) << n << ": " << after.error;
      ASSERT_EQ(after.body, kBody);
    }
    EXPECT_FALSE(failed);
    EXPECT_GT(n, 8);
    for (const auto& [outcome, count] : outcomes) {
      const auto [state, error] = outcome;
      EXPECT_TRUE(state == WFT_STATE_SUCCESS || (state == WFT_STATE_SYS_ERROR && error == ENOMEM) ||
                  (tls && state == WFT_STATE_SSL_ERROR))
          << state << " " << error << ", " << count << " times";
    }
    EXPECT_GT((outcomes[{WFT_STATE_SYS_ERROR, ENOMEM}]), 0);
  }

  static constexpr size_t kBody = 200'000;
  std::string proxy_;
  bool has_deadline_ = false;

  test_support::Authority authority_;
  const test_support::Certificate certificate_;
  const std::string body_ = std::string(kBody, 'b');

  // Raw: a server of the library shares its pollers.
  RawServer server_{[this](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply(body_);
    }
  }};
  RawServer tls_server_{[this](Peer& peer, int) { serve_tls(peer); }};

  void serve_tls(Peer& peer) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    SSL_CTX_use_certificate_chain_file(context.get(), certificate_.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), certificate_.key_file.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
    SSL_set_fd(ssl.get(), peer.fd());
    if (SSL_accept(ssl.get()) != 1) return;
    std::string input;
    char buffer[4096];
    for (int n = 0; (n = SSL_read(ssl.get(), buffer, sizeof buffer)) > 0;) {
      input.append(buffer, static_cast<size_t>(n));
      if (input.find("\r\n\r\n") != std::string::npos) {
        input.clear();
        const std::string reply =
            "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kBody) + "\r\n\r\n" + body_;
        SSL_write(ssl.get(), reply.data(), static_cast<int>(reply.size()));
      }
    }
  }
};

TEST_F(ClientMemory, EachAllocationMayFail) {
  fail_each(server_.port(), false, false);
}

TEST_F(ClientMemory, EachAllocationOfAStreamedResponseMayFail) {
  fail_each(server_.port(), false, true);
}

TEST_F(ClientMemory, EachAllocationMayFailWithADeadline) {
  has_deadline_ = true;
  fail_each(server_.port(), false, false);
}

TEST_F(ClientMemory, EachAllocationOfATunnelMayFail) {
  RawServer proxy([this](Peer& peer, int) {
    if (!peer.request().empty()) {
      peer.send(
          "HTTP/1.1 200 OK\r\nVia: 1.1 a-proxy-whose-name-is-long-enough-to-be-allocated\r\n\r\n");
      serve_tls(peer);
    }
  });
  proxy_ = proxy.url("");
  fail_each(tls_server_.port(), true, false);
}

TEST_F(ClientMemory, EachAllocationMayFailOverTls) {
  fail_each(tls_server_.port(), true, false);
}

}  // namespace
}  // namespace client_test
