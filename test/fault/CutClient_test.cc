#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>

#include "fault/CutStream.h"
#include "support/Certificates.h"
#include "support/Descriptors.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/Sanitizers.h"
#include "workflow/WFGlobal.h"

// A server goes away, by FIN or by RST, at each byte of the request that it receives and of its
// response: the client's task ends once, in a state that is right.

namespace {

using client_test::Fetched;
using client_test::Peer;
using fault::Cut;
using fault::CutStream;

struct CutResponse {
  bool over_tls;
  Cut cut;
  const char* framing;
};

std::string name_of_response(const testing::TestParamInfo<CutResponse>& kind) {
  return std::string(kind.param.over_tls ? "Tls" : "Plain") +
         (kind.param.cut == Cut::kFin ? "Fin" : "Reset") + kind.param.framing;
}

class CutByServer : public testing::TestWithParam<CutResponse> {
 protected:
  void SetUp() override {
    listener_ = test_support::listen_on_loopback(16);
    ASSERT_TRUE(listener_.valid());
    url_ = std::string(GetParam().over_tls ? "https" : "http") +
           "://127.0.0.1:" + std::to_string(test_support::port_of(listener_.get())) + "/";
    SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str());
    const test_support::Certificate certificate = authority_.issue({"IP:127.0.0.1"});
    context_.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate_chain_file(context_.get(), certificate.cert_file.c_str());
    SSL_CTX_use_PrivateKey_file(context_.get(), certificate.key_file.c_str(), SSL_FILETYPE_PEM);
  }

  // One request, of which the server receives `may_receive` bytes of the stream, and of whose
  // response it sends `may_send`; `*whole`: that was all.
  Fetched fetch(size_t may_send, bool* whole, size_t may_receive = SIZE_MAX) {
    std::thread server([&] {
      Peer peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      CutStream stream(peer.fd(), GetParam().over_tls ? context_.get() : nullptr,
                       CutStream::Role::kServer, may_send, may_receive);
      *whole = stream.handshake() && stream.receive([](const std::string& text) {
        const size_t head = text.find("\r\n\r\n");
        return head != std::string::npos && text.size() == head + 14;
      }) && stream.send(response());
      if (GetParam().cut == Cut::kReset) {
        peer.reset();
      } else if (may_receive != SIZE_MAX) {
        // With bytes that were not read the end would be a reset.
        ::shutdown(peer.fd(), SHUT_WR);
        while (!peer.request().empty()) {
        }
      }
    });
    const Fetched got = client_test::fetch(url_, {.change = [](WFHttpTask* task) {
                                             task->get_req()->set_method("POST");
                                             task->get_req()->append_output_body("0123456789");
                                           }});
    server.join();
    return got;
  }

  static std::string response() {
    const std::string framing = GetParam().framing;
    const std::string head = "HTTP/1.1 200 OK\r\nX-Field: some value\r\n";
    if (framing == "Length") return head + "Content-Length: 20\r\n\r\n01234567890123456789";
    if (framing == "Chunked") {
      return head +
             "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n";
    }
    return head + "\r\n01234567890123456789";
  }

  static void expect_right(const Fetched& got, size_t sent, bool whole) {
    const bool by_close = std::string(GetParam().framing) == "Close";
    const size_t head = response().find("\r\n\r\n") + 4;
    if (got.state == WFT_STATE_SUCCESS) {
      // Over TLS the end of the connection alone delimits nothing.
      ASSERT_TRUE(whole || (by_close && !GetParam().over_tls && sent >= head)) << sent;
      ASSERT_TRUE(!by_close || GetParam().cut == Cut::kFin) << sent;
      ASSERT_EQ(got.body, whole ? "01234567890123456789"
                                : std::string("01234567890123456789").substr(0, sent - head));
    } else {
      ASSERT_EQ(got.state, WFT_STATE_SYS_ERROR) << sent;
      ASSERT_EQ(got.error, ECONNRESET) << sent;
      // What is on its way when a connection is reset may be lost.
      const bool enough = by_close ? !GetParam().over_tls && sent >= head : whole;
      ASSERT_TRUE(!enough || GetParam().cut == Cut::kReset) << sent;
    }
  }

  // cut(n, &whole): after n bytes, until all of them have gone over.
  template <class Cut>
  void cut_everywhere(Cut cut) {
    const size_t step = !test_support::kSanitized ? 1 : GetParam().over_tls ? 13 : 3;
    bool whole = false;
    fetch(SIZE_MAX, &whole);
    ASSERT_TRUE(whole);
    const size_t descriptors = test_support::descriptor_count();
    size_t n = 0;
    for (whole = false; !whole; n += step) {
      ASSERT_NO_FATAL_FAILURE(cut(n, &whole));
      ASSERT_LT(n, 10'000u);
    }
    std::printf("%zu bytes\n", n);
    EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
  }

  test_support::Authority authority_;
  workflow::UniqueFd listener_;
  fault::Context context_;
  std::string url_;
};

}  // namespace

TEST_P(CutByServer, AtEachByteOfTheResponse) {
  cut_everywhere([this](size_t n, bool* whole) {
    const Fetched got = fetch(n, whole);
    ASSERT_NO_FATAL_FAILURE(expect_right(got, n, *whole));
  });
}

TEST_P(CutByServer, AtEachByteOfTheRequest) {
  cut_everywhere([this](size_t n, bool* whole) {
    const Fetched got = fetch(SIZE_MAX, whole, n);
    if (!*whole) {
      ASSERT_EQ(got.state, WFT_STATE_SYS_ERROR) << n;
      ASSERT_EQ(got.error, ECONNRESET) << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, CutByServer,
    testing::Values(
        CutResponse{false, Cut::kFin, "Length"}, CutResponse{false, Cut::kReset, "Length"},
        CutResponse{false, Cut::kFin, "Chunked"}, CutResponse{false, Cut::kReset, "Chunked"},
        CutResponse{false, Cut::kFin, "Close"}, CutResponse{false, Cut::kReset, "Close"},
        CutResponse{true, Cut::kFin, "Length"}, CutResponse{true, Cut::kReset, "Length"},
        CutResponse{true, Cut::kFin, "Chunked"}, CutResponse{true, Cut::kReset, "Chunked"},
        CutResponse{true, Cut::kFin, "Close"}, CutResponse{true, Cut::kReset, "Close"}),
    name_of_response);
