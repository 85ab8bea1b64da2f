#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <functional>
#include <string>

#include "support/Descriptors.h"
#include "support/Loopback.h"
#include "support/MemoryFaults.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"

// Each allocation of the library's threads, from accept to reply, fails in its turn. The connection
// may be closed, refused or served; the next one is served.

namespace {

using namespace server_test;

// How many blocks of large() the reply of "/large" has. They are more bytes than one round of
// writing takes. Each block costs time, so there are fewer under sanitizers.
constexpr size_t kLargeBlocks = test_support::kSanitized ? 4 : 8;

const std::string& large() {
  static const std::string text(300'000, 'L');
  return text;
}

// Fills in what the target asks for; false when a call says that there is no memory.
bool fill_in(WFHttpTask* task) {
  const std::string_view target = task->get_req()->get_request_uri();
  protocol::HttpResponse* response = task->get_resp();
  if (target == "/large") {
    for (size_t i = 0; i < kLargeBlocks; i++) {
      if (!response->append_output_body_nocopy(large())) return false;
    }
    return true;
  }
  if (target == "/throws") {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(100, nullptr));
    return response->append_output_body(std::string(1000, 't'));
  }
  return response->add_header_pair("X-Long", std::string(600, 'h').c_str()) &&
         response->append_output_body("hello");
}

void serve(WFHttpTask* task) {
  if (!fill_in(task)) {
    task->noreply();
  }
}

std::string chunked_post() {
  std::string text = "POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";
  for (int i = 0; i < 60; i++) {
    text += "X-Field-" + std::to_string(i) + ": some value of that field\r\n";
  }
  text += "\r\n";
  for (int i = 0; i < 50; i++) {
    text += "400\r\n" + std::string(1024, 'c') + "\r\n";
  }
  return text + "0\r\n\r\n";
}

const test_support::Certificate& certificate() {
  static test_support::Authority authority;
  static const test_support::Certificate issued = authority.issue({"IP:127.0.0.1"});
  return issued;
}

// One exchange; what it comes to does not matter, but it ends.
using Talk = std::function<void(uint16_t port)>;

void talk_plainly(uint16_t port, const std::string& request, int receive_buffer) {
  RawClient client(port, receive_buffer);
  const size_t cut = request.size() / 2;
  if (client.send(std::string_view(request).substr(0, cut))) {
    client.send(std::string_view(request).substr(cut));
  }
  const auto got = client.reply();
  if (got && got->status == 200) {
    EXPECT_TRUE(got->body == "hello" || got->body.size() == 1000 ||
                got->body.size() == kLargeBlocks * large().size());
  } else if (!got) {
    EXPECT_NE(client.ending(), server_test::Ending::kStillOpen);
  }
}

void talk_over_tls(uint16_t port, const std::string& request) {
  // OpenSSL's own sockets, which the client has, write where nobody reads. The library's threads
  // block every signal, and do not need this.
  ::signal(SIGPIPE, SIG_IGN);
  TlsClient client(port, {});
  if (client.connected()) {
    client.send(request);
    client.body();
  }
}

bool serves(const TestServer& server, bool over_tls) {
  if (!over_tls) {
    RawClient client = server.client();
    return client.ask(get("/")).has_value();
  }
  TlsClient client(server.port(), {});
  return client.connected() && client.send(get("/")) && client.body() == "hello";
}

// The allocations in question: all, or those that follow most of what a small reply needs, which
// are left to another case.
enum class Which { kAll, kLater };

// `more`: how many allocations fail after the first.
void fail_each(const Talk& talk, bool over_tls, long more, Which which = Which::kAll) {
  TestServer server(serve, server_test::http_params(), over_tls ? &certificate() : nullptr);
  ASSERT_TRUE(server.started());
  ASSERT_TRUE(serves(server, over_tls));
  ASSERT_TRUE(server.has_connections(0));
  const size_t descriptors = test_support::descriptor_count();
  // Under a sanitizer every fourth, beginning with one that the seed chooses.
  constexpr long kStep = test_support::kSanitized ? 4 : 1;
  long n = 1 + static_cast<long>(test_support::test_seed() % kStep);
  if (which == Which::kLater) {
    fault::arm(LONG_MAX);
    EXPECT_TRUE(serves(server, over_tls));
    fault::disarm();
    n += fault::allocations * 3 / 4;
    ASSERT_TRUE(server.has_connections(0));
  }
  const long late_step = std::max<long>(1 + more, kStep);
  // How many there are varies a little: done only when several in a row have been too few.
  for (int without = 0; without < 5; n += n < 500 ? kStep : late_step) {
    fault::arm(n, more);
    talk(server.port());
    const bool gone = server.has_connections(0);
    without = fault::disarm() == 0 ? without + 1 : 0;
    ASSERT_TRUE(gone) << "allocation " << n;
    ASSERT_TRUE(serves(server, over_tls)) << "allocation " << n;
    ASSERT_TRUE(server.has_connections(0)) << "allocation " << n;
  }
  std::printf("%ld allocations\n", n);
  EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
}

class OutOfMemory : public testing::TestWithParam<long> {};

}  // namespace

TEST_P(OutOfMemory, PlainRequest) {
  fail_each([](uint16_t port) { talk_plainly(port, get("/"), 0); }, false, GetParam());
}

TEST_P(OutOfMemory, LargeRequest) {
  fail_each([](uint16_t port) { talk_plainly(port, chunked_post(), 0); }, false, GetParam());
}

TEST_P(OutOfMemory, LargeReplyToASlowReader) {
  fail_each([](uint16_t port) { talk_plainly(port, get("/large"), 4096); }, false, GetParam());
}

TEST_P(OutOfMemory, PipelinedRequests) {
  fail_each([](uint16_t port) { talk_plainly(port, get("/1") + get("/2") + "nonsense", 0); }, false,
            GetParam());
}

TEST_P(OutOfMemory, ProcessThrowsBadAlloc) {
  fail_each([](uint16_t port) { talk_plainly(port, get("/throws"), 0); }, false, GetParam());
}

TEST_P(OutOfMemory, Tls) {
  certificate();
  fail_each([](uint16_t port) { talk_over_tls(port, get("/")); }, true, GetParam());
}

TEST_P(OutOfMemory, TlsLargeReply) {
  certificate();
  fail_each([](uint16_t port) { talk_over_tls(port, get("/large")); }, true, GetParam(),
            Which::kLater);
}

INSTANTIATE_TEST_SUITE_P(Failures, OutOfMemory, testing::Values(0, 2),
                         [](const auto& each) { return std::to_string(each.param + 1); });

// Without memory for the timer of its rest, and the first timer of a poller needs some.
TEST(OutOfMemory, AListenerThatRestsGoesOn) {
  TestServer server;
  const workflow::UniqueFd early(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct rlimit before = {};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const struct rlimit none = {static_cast<rlim_t>(early.get()) + 1, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  fault::arm(1, 1'000'000'000);
  struct sockaddr_in address = test_support::loopback(server.port());
  ASSERT_EQ(
      ::connect(early.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address),
      0);
  EXPECT_TRUE(server_test::eventually([] { return fault::failures > 0; }));
  EXPECT_GT(fault::disarm(), 0);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(server.serves());
}

TEST(OutOfMemory, AProcessThatThrowsDropsItsRequest) {
  std::atomic<int> state{-2};
  std::atomic<int> error{0};
  test_support::Tally ended;
  TestServer server([&](WFHttpTask* task) {
    if (std::string_view(task->get_req()->get_request_uri()) != "/throws") return;
    task->set_callback([&](WFHttpTask* done) {
      state = done->get_state();
      error = done->get_error();
      ended.add();
    });
    throw std::bad_alloc();
  });
  RawClient client = server.client();
  ASSERT_TRUE(client.send(get("/throws")));
  EXPECT_TRUE(client.ended());
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(error, ENOMEM);
  EXPECT_TRUE(server.serves());
}

// On the caller's thread: start() says so, and the next one succeeds.
void start_fails_cleanly(const test_support::Certificate* cert) {
  TestServer running;  // so is the library
  ASSERT_TRUE(running.serves());
  ASSERT_TRUE(running.has_connections(0));
  const size_t descriptors = test_support::descriptor_count();
  fault::counts_here = true;
  // Beyond the first ones OpenSSL reads the certificate.
  for (long n = 1;; n += n < 500 ? 1 : (test_support::kSanitized ? 29 : 7)) {
    WFHttpServer server(serve);
    fault::arm(n);
    const int result =
        cert ? server.start("127.0.0.1", 0, cert->cert_file.c_str(), cert->key_file.c_str())
             : server.start("127.0.0.1", 0);
    const long failures = fault::disarm();
    if (failures == 0) {
      ASSERT_EQ(result, 0);
      std::printf("%ld allocations\n", n);
      break;
    }
    if (result == 0) {
      server.stop();
    } else {
      ASSERT_NE(errno, 0) << n;
      ASSERT_EQ(server.start("127.0.0.1", 0), 0) << n;
    }
  }
  fault::counts_here = false;
  EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
  EXPECT_TRUE(running.serves());
}

TEST(OutOfMemory, StartFailsCleanly) {
  start_fails_cleanly(nullptr);
}

TEST(OutOfMemory, StartWithTlsFailsCleanly) {
  start_fails_cleanly(&certificate());
}
