#include <openssl/x509.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "Fuzzing.h"
#include "ScriptedClient.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFHttpStream.h"
#include "workflow/WFManualClock.h"

// The bytes are what a client does to a connection of a real server, in the clear or over TLS: what
// it sends, in what pieces, how much it reads and when, how it leaves, and how much time passes
// meanwhile, by a clock that stands still else. Whatever it does: each request's task ends once;
// replies are well-framed, each request has its own, in their order, and a refusal is the last;
// what a task says was sent has come whole; and the connection is closed within its time limits.
//
// The first byte: 1 TLS, 2 the smallest send buffer for the server, 4 what was not sent when the
// script is over is sent then. Then come operations, a byte each with one of argument.

using fuzzing::Replies;
using fuzzing::require;
using fuzzing::ScriptedClient;

namespace {

constexpr int64_t kMs = 1'000'000;

// What became of the requests of one connection.
struct Ledger {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<int> sent{0};  // SUCCESS
};
Ledger ledger;

// A reply for each request, of a kind that its target says.
void process(WFHttpTask* task) {
  protocol::HttpResponse* reply = task->get_resp();
  const std::string target = task->get_req()->get_request_uri();
  reply->add_header_pair("X-Number", std::to_string(++ledger.begun));
  reply->add_header_pair("X-Method", task->get_req()->get_method());
  task->set_callback([](WFHttpTask* done) {
    ledger.sent += done->get_state() == WFT_STATE_SUCCESS;
    ledger.ended++;
  });
  if (target == "/large") {
    reply->append_output_body(std::string(100'000, 'b'));
  } else if (target == "/delay") {
    reply->append_output_body("bbb");
    series_of(task)->push_back(WFTaskFactory::create_timer_task(1, 500 * kMs, nullptr));
  } else if (target == "/abandon") {
    task->cancel_timers_on_closed();
    series_of(task)->push_back(WFTaskFactory::create_timer_task(20, 0, nullptr));
  } else if (target == "/stream" || target == "/stream-large") {
    reply->add_header_pair("X-Stream", "yes");
    WFHttpStream stream = WFHttpStream::begin(task);
    const size_t size = target == "/stream" ? 10 : 100'000;
    for (int i = 0; stream && i < 3; i++) {
      series_of(task)->push_back(stream.create_write_task(std::string(size, 'b'), nullptr));
      series_of(task)->push_back(WFTaskFactory::create_timer_task(1, 0, nullptr));
    }
  } else if (target == "/interim") {
    constexpr std::string_view kInterim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    task->push(kInterim.data(), kInterim.size());
  } else if (target == "/none") {
    task->noreply();
  } else if (target == "/last") {
    task->set_keep_alive(0);
  }
}

class Server : public WFHttpServer {
 public:
  Server() : WFHttpServer(process) {}

  std::atomic<bool> smallest_buffer{false};

 protected:
  WFConnection* new_connection(int fd) override {
    if (smallest_buffer) {
      const int size = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    }
    return WFHttpServer::new_connection(fd);
  }
  // A certificate that signs itself; the files do not matter.
  SSL_CTX* new_ssl_ctx(const char*, const char*) override {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    SSL_CTX* context = WFGlobal::new_ssl_server_ctx();
    require(SSL_CTX_use_certificate(context, certificate) == 1);
    require(SSL_CTX_use_PrivateKey(context, key) == 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return context;
  }
};

// A server on a unix socket with a name of the kernel's choice.
struct Listening {
  explicit Listening(WFHttpServer& server, bool over_tls) {
    const workflow::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address.sun_family = AF_UNIX;
    require(::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address),
                   sizeof address.sun_family) == 0);
    length = sizeof address;
    ::getsockname(fd.get(), reinterpret_cast<struct sockaddr*>(&address), &length);
    require(::listen(fd.get(), 16) == 0);
    require(server.serve(fd.get(), over_tls ? "-" : nullptr, over_tls ? "-" : nullptr) == 0);
  }

  struct sockaddr_un address = {};
  socklen_t length = 0;
};

// One for all inputs: a poller, a handler, and a clock that stands still. Never destroyed.
class Harness {
 public:
  static Harness& process() {
    static Harness& harness = *new Harness;
    return harness;
  }

  std::unique_ptr<ScriptedClient> connect(bool over_tls, bool smallest_buffer, size_t piece) {
    Server& server = over_tls ? tls_server_ : server_;
    server.smallest_buffer = smallest_buffer;
    const Listening& at = over_tls ? *tls_ : *plain_;
    return std::make_unique<ScriptedClient>(at.address, at.length,
                                            over_tls ? client_context_ : nullptr, piece);
  }
  bool connected() const {
    return server_.get_conn_count() > 0 || tls_server_.get_conn_count() > 0;
  }

  // The server has seen all that was sent before, and has done what it then could at once: one
  // poller meets what comes in the order in which it came.
  void settle() {
    constexpr std::string_view kAsk = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    char reply[4096];
    require(::send(witness_.get(), kAsk.data(), kAsk.size(), MSG_NOSIGNAL) > 0);
    ssize_t n = 0;
    do {
      n = ::recv(witness_.get(), reply, sizeof reply, 0);
    } while (n < 0 && errno == EINTR);  // a fuzzer has an alarm
    require(n > 0);
    WFManualClock::advance(0);
  }
  void pass(int64_t ms) {
    settle();
    WFManualClock::advance(ms * kMs);
    settle();
  }

 private:
  static struct WFServerParams patient() {
    struct WFServerParams params = HTTP_SERVER_PARAMS_DEFAULT;
    params.keep_alive_timeout = -1;
    return params;
  }

  Harness() {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    settings.handler_threads = 1;
    settings.compute_threads = 1;
    WORKFLOW_library_init(&settings);
    require(WFManualClock::install() == 0);
    plain_ = std::make_unique<Listening>(server_, false);
    tls_ = std::make_unique<Listening>(tls_server_, true);
    const Listening by(witness_server_, false);
    witness_ = workflow::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(::connect(witness_.get(), reinterpret_cast<const struct sockaddr*>(&by.address),
                      by.length) == 0);
    settle();
  }

  Server server_;
  Server tls_server_;
  const struct WFServerParams patient_ = patient();
  WFHttpServer witness_server_{&patient_, [](WFHttpTask*) {}};
  std::unique_ptr<Listening> plain_;
  std::unique_ptr<Listening> tls_;
  workflow::UniqueFd witness_;
  SSL_CTX* const client_context_ = SSL_CTX_new(TLS_client_method());
};

// What a script sends without spelling it. Of those before kClosing the connection goes on.
constexpr std::string_view kRequests[] = {
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /delay HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /stream-large HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /interim HTTP/1.1\r\nHost: x\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n123\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n12345",
    "GET /abandon HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET /stream HTTP/1.0\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /last HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "NONSENSE\r\n\r\n",
};
constexpr size_t kClosing = 11;
constexpr int64_t kTimesMs[] = {1, 100, 499, 500, 1000, 2000, 9999, 10'000, 30'000, 60'000};
// No limit of the server's is so short.
constexpr int64_t kHarmlessMs = 2000;
// While nothing happens time passes by steps of this, and of four times the last.
constexpr int64_t kFirstStepMs = 1000;

class Script {
 public:
  Script(std::string_view bytes, size_t piece) : bytes_(bytes) {
    const uint8_t options = next();
    ledger.begun = ledger.ended = ledger.sent = 0;
    client_ = harness_.connect(options & 1, options & 2, piece);
    while (!bytes_.empty() && !closed_) {
      const uint8_t operation = next();
      perform(operation % 10, next());
    }
    finish(options & 4);
    check();
  }

 private:
  uint8_t next() {
    const uint8_t byte = bytes_.empty() ? 0 : static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(bytes_.empty() ? 0 : 1);
    return byte;
  }
  std::string_view take(size_t size) {
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  void perform(int operation, uint8_t argument) {
    switch (operation) {
      case 0: {
        const size_t which = argument % std::size(kRequests);
        client_->say(kRequests[which]);
        requests_++;
        harmless_ = harmless_ && which < kClosing;
        break;
      }
      case 1:
        client_->say(take(argument));
        harmless_ = false;
        break;
      case 2:
        client_->say_on_wire(take(argument));
        harmless_ = false;
        break;
      case 3:
        client_->send(size_t{argument} + 1);
        break;
      case 4:
        client_->send(SIZE_MAX);
        break;
      case 5:
        client_->receive(size_t{argument} * argument + 1);
        break;
      case 6:
        client_->receive(SIZE_MAX);
        break;
      case 7: {
        const int64_t ms = kTimesMs[argument % std::size(kTimesMs)];
        harness_.pass(ms);
        passed_ms_ += ms;
        break;
      }
      case 8:
        client_->half_close(argument & 1);
        harmless_ = false;
        break;
      default:
        // One in four, so that most scripts go on.
        if (argument % 4 == 0) {
          client_->close();
          closed_ = true;
        } else {
          harness_.settle();
        }
    }
  }

  // The client reads all that comes, and waits for the end.
  void finish(bool sends_rest) {
    // Each request may take a time limit, and no connection has more of them than this.
    int64_t left_ms = 300'000 + requests_ * 60'000;
    for (int64_t step_ms = kFirstStepMs;; step_ms *= 4) {
      harness_.settle();
      bool moved = false;
      while ((sends_rest && client_->send(SIZE_MAX)) || client_->receive(SIZE_MAX)) {
        moved = true;
      }
      if (client_->ended() && !harness_.connected() && ledger.begun == ledger.ended) return;
      if (moved) {
        step_ms = kFirstStepMs / 4;
        continue;
      }
      require(left_ms > 0);  // hangs
      WFManualClock::advance(step_ms * kMs);
      left_ms -= step_ms;
    }
  }

  void check() {
    const Replies replies(client_->received());
    require(replies.numbered <= ledger.begun);
    if (closed_) return;
    require(replies.numbered == ledger.sent ||
            (replies.open_ended && replies.numbered == ledger.sent + 1));
    require(!replies.cut || ledger.sent < ledger.begun);
    if (harmless_ && requests_ > 0 && passed_ms_ <= kHarmlessMs && client_->all_sent()) {
      require(ledger.begun == requests_ && ledger.sent == requests_);
      require(replies.refusals == 0);
    }
  }

  Harness& harness_ = Harness::process();
  std::string_view bytes_;
  std::unique_ptr<ScriptedClient> client_;
  int requests_ = 0;
  int64_t passed_ms_ = 0;
  bool closed_ = false;
  // Nothing but requests that leave the connection open was sent.
  bool harmless_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Script(bytes, SIZE_MAX);
  if (fuzzing::cut_everywhere) {
    Script(bytes, 1);
    for (size_t cut = 1; cut < size; cut++) {
      Script(bytes.substr(0, cut), SIZE_MAX);
    }
  }
  return 0;
}
