#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "fault/CutStream.h"
#include "fault/Slowness.h"
#include "support/Certificates.h"
#include "support/CpuTime.h"
#include "support/Fetch.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "workflow/WFGlobal.h"

// Servers that are stopped in the middle of a response: the client's task waits as long as it may,
// the others go on.

namespace {

using client_test::fetch;
using client_test::Fetched;
using client_test::Peer;
using client_test::RawServer;
using fault::kLargeSize;
using fault::kSlow;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kLimitMs = 1500;
constexpr milliseconds kServedBound{4000};

// A server process of one connection, which stops itself when it has sent half of its response.
class StoppingServer {
 public:
  // Before the process has any other thread. Without a certificate: in the clear.
  explicit StoppingServer(const test_support::Certificate* certificate)
      : scheme_(certificate ? "https" : "http"),
        listen_(test_support::listen_on_loopback(16)),
        port_(test_support::port_of(listen_.get())) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::_exit(live(certificate));
    }
  }
  ~StoppingServer() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  std::string url() const { return scheme_ + "://127.0.0.1:" + std::to_string(port_) + "/"; }
  bool wait_until_stopped() {
    int status = 0;
    return ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  void go_on() { ::kill(pid_, SIGCONT); }

 private:
  int live(const test_support::Certificate* certificate) const {
    fault::Context context;
    if (certificate) {
      context.reset(SSL_CTX_new(TLS_server_method()));
      SSL_CTX_use_certificate_chain_file(context.get(), certificate->cert_file.c_str());
      SSL_CTX_use_PrivateKey_file(context.get(), certificate->key_file.c_str(), SSL_FILETYPE_PEM);
    }
    const Peer peer(::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    fault::CutStream stream(peer.fd(), context.get(), fault::CutStream::Role::kServer, SIZE_MAX,
                            SIZE_MAX);
    const std::string half(kLargeSize / 2, 'L');
    const bool began =
        stream.handshake() && stream.receive([](const std::string& text) {
          return text.find("\r\n\r\n") != std::string::npos;
        }) &&
        stream.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kLargeSize) +
                    "\r\n\r\n" + half);
    ::raise(SIGSTOP);
    return began && stream.send(half) ? 0 : 1;
  }

  const std::string scheme_;
  const workflow::UniqueFd listen_;
  uint16_t port_ = 0;
  pid_t pid_ = -1;
};

struct Download {
  explicit Download(const std::string& url) {
    WFTaskFactory::create_http_task(url, 0, 0, [this](WFHttpTask* task) {
      result = client_test::fetched(task);
      ended.add();
    })->start();
  }

  test_support::Tally ended;
  Fetched result;
};

}  // namespace

TEST(SlowServer, OthersAreAskedMeanwhile) {
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  StoppingServer plain(nullptr);
  StoppingServer tls(&certificate);
  SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority.file().c_str());
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 1;
  settings.handler_threads = 2;
  settings.endpoint_params.response_timeout = -1;  // the downloads wait as long as it takes
  WORKFLOW_library_init(&settings);
  RawServer other([](Peer& peer, int) {
    while (!peer.request().empty()) {
      peer.reply("served");
    }
  });
  ASSERT_EQ(fetch(other.url()).body, "served");
  Download from_plain(plain.url());
  Download from_tls(tls.url());
  ASSERT_TRUE(plain.wait_until_stopped());
  ASSERT_TRUE(tls.wait_until_stopped());
  const auto stopped_at = steady_clock::now();
  // Nobody asks for a moment, and nothing spins: the claim is about real time.
  std::this_thread::sleep_for(milliseconds(200));
  const int64_t before_us = test_support::cpu_us();
  std::this_thread::sleep_for(milliseconds(800));
  EXPECT_LE(test_support::cpu_us() - before_us, 200'000);
  // The system accepts for a process that is stopped; nobody answers.
  const Fetched late =
      fetch(plain.url(), {.change = [](WFHttpTask* t) { t->set_watch_timeout(kLimitMs); }});
  EXPECT_EQ(late.error, ETIMEDOUT);
  EXPECT_EQ(late.timeout_reason, TOR_TRANSMIT_TIMEOUT);
  int asked = 0;
  milliseconds longest{0};
  while (steady_clock::now() < stopped_at + kSlow || asked <= 50) {
    const auto start = steady_clock::now();
    ASSERT_EQ(fetch(other.url()).body, "served");
    asked++;
    longest =
        std::max(longest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - start));
    std::this_thread::sleep_for(milliseconds(2));  // a client that thinks
  }
  EXPECT_LT(longest, kServedBound);
  EXPECT_EQ(from_plain.ended.count() + from_tls.ended.count(), 0u);
  plain.go_on();
  tls.go_on();
  for (Download* download : {&from_plain, &from_tls}) {
    ASSERT_TRUE(download->ended.wait_for(1));
    EXPECT_EQ(download->result.state, WFT_STATE_SUCCESS) << download->result.error;
    EXPECT_EQ(download->result.body.size(), kLargeSize);
  }
}
