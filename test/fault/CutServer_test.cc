#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "fault/CutStream.h"
#include "support/Descriptors.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"

// A client goes away, by FIN or by RST, at each byte of its request and of the reply: each exchange
// ends once, others are served, nothing is left behind.

namespace {

using fault::Cut;
using fault::CutStream;
using server_test::RawClient;
using server_test::TestServer;

struct CutRequest {
  bool over_tls;
  Cut cut;
};

std::string name_of_request(const testing::TestParamInfo<CutRequest>& kind) {
  return std::string(kind.param.over_tls ? "Tls" : "Plain") +
         (kind.param.cut == Cut::kFin ? "Fin" : "Reset");
}

class CutByClient : public testing::TestWithParam<CutRequest> {
 protected:
  static constexpr size_t kAll = SIZE_MAX;

  void SetUp() override {
    ASSERT_TRUE(server_.started());
    ASSERT_EQ(other_.ask(server_test::kGet)->status, 200);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    // The library has all that it keeps open.
    ASSERT_TRUE(talk(kAll, kAll));
    ASSERT_TRUE(server_.has_connections(0));
    descriptors_ = test_support::descriptor_count();
  }

  // Ends a connection when so many bytes have gone either way. Whether the exchange was whole.
  bool talk(size_t may_send, size_t may_receive) {
    RawClient client = server_.client();
    CutStream stream(client.fd(), GetParam().over_tls ? context_.get() : nullptr,
                     CutStream::Role::kClient, may_send, may_receive);
    static const std::string request =
        server_test::post("/target", std::string(100, 'b'), "X-Field: some value\r\n");
    const bool whole =
        stream.handshake() && stream.send(request) && stream.receive([](const std::string& text) {
          return text.size() > 130 && text.compare(text.size() - 3, 3, "bbb") == 0;
        });
    GetParam().cut == Cut::kReset ? client.reset() : client.close();
    return whole;
  }

  // For each n until the exchange is whole.
  template <class Talk>
  void at_each_byte(Talk talk_until) {
    size_t n = test_support::kSanitized ? test_support::test_seed() % step() : 0;
    for (; !talk_until(n); n += step()) {
      if (n % 16 == 0) {
        ASSERT_EQ(other_.ask(server_test::kGet)->status, 200) << n;
      }
      ASSERT_LT(n, 10'000u);
    }
    std::printf("%zu bytes\n", n);
    EXPECT_TRUE(server_.has_connections(0));
    EXPECT_TRUE(server_test::eventually([this] { return ended_ == begun_; }));
    EXPECT_TRUE(test_support::descriptors_return_to(descriptors_));
  }

  size_t step() const { return !test_support::kSanitized ? 1 : GetParam().over_tls ? 13 : 3; }

  test_support::Authority authority_;
  const test_support::Certificate certificate_ = authority_.issue({"IP:127.0.0.1"});
  std::atomic<int> begun_{0};
  std::atomic<int> ended_{0};
  TestServer server_{[this](WFHttpTask* task) {
                       begun_++;
                       task->set_callback([this](WFHttpTask*) { ended_++; });
                       server_test::echo(task);
                     },
                     server_test::http_params(), GetParam().over_tls ? &certificate_ : nullptr};
  TestServer plain_;
  RawClient other_ = plain_.client();
  fault::Context context_;
  size_t descriptors_ = 0;
};

}  // namespace

TEST_P(CutByClient, AtEachByteOfTheRequest) {
  at_each_byte([this](size_t n) { return talk(n, kAll); });
  EXPECT_GT(ended_, 0);
}

TEST_P(CutByClient, AtEachByteOfTheReply) {
  at_each_byte([this](size_t n) { return talk(kAll, n); });
  EXPECT_GT(ended_, 0);
}

// The reply does not fit into the buffers: the server is still writing it.
TEST_P(CutByClient, WhileALargeReplyIsWritten) {
  TestServer server(
      [this](WFHttpTask* task) {
        static const std::string large(1'000'000, 'L');
        begun_++;
        task->set_callback([this](WFHttpTask*) { ended_++; });
        for (int i = 0; i < 10; i++) {
          task->get_resp()->append_output_body_nocopy(large);
        }
      },
      server_test::http_params(), GetParam().over_tls ? &certificate_ : nullptr);
  test_support::TestRandom random(test_support::test_seed());
  for (int i = 0; i < (test_support::kSanitized ? 10 : 50); i++) {
    RawClient client(server.port(), 4096);
    CutStream stream(client.fd(), GetParam().over_tls ? context_.get() : nullptr,
                     CutStream::Role::kClient, kAll, 3000 + random.below(1'000'000));
    EXPECT_TRUE(stream.handshake());
    EXPECT_TRUE(stream.send(server_test::kGet));
    EXPECT_FALSE(stream.receive([](const std::string&) { return false; }));
    GetParam().cut == Cut::kReset ? client.reset() : client.close();
  }
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_TRUE(server_test::eventually([this] { return ended_ == begun_; }));
  server->stop();
  EXPECT_TRUE(test_support::descriptors_return_to(descriptors_));
}

INSTANTIATE_TEST_SUITE_P(All, CutByClient,
                         testing::Values(CutRequest{false, Cut::kFin},
                                         CutRequest{false, Cut::kReset},
                                         CutRequest{true, Cut::kFin},
                                         CutRequest{true, Cut::kReset}),
                         name_of_request);
