// The waits of coroutines that need sockets, ended in each way: by what they wait for, by their
// scope, by a deadline, by the stop of the library, and by a series that is cancelled. The other
// kinds of wait are in simulation/CoroutineWaits_test.cc.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/CoroutineWaits.h"
#include "support/Eventually.h"
#include "support/Loopback.h"
#include "support/RawServer.h"
#include "support/Tally.h"
#include "util/UniqueFd.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using test_support::WaitKind;
using test_support::WaitPlace;
using workflow::Runtime;
using workflow::ThreadContext;
using workflow::UniqueFd;
using namespace std::chrono_literals;

constexpr WFEnd kEndSuccess = {WFT_STATE_SUCCESS, 0};
constexpr WFEnd kEndCanceled = {WFT_STATE_SYS_ERROR, ECANCELED};
constexpr WFEnd kEndTimedOut = {WFT_STATE_SYS_ERROR, ETIMEDOUT};
constexpr WFEnd kEndAborted = {WFT_STATE_ABORTED, 0};

// A runtime of the test's own, which this thread uses.
class OwnRuntime {
 public:
  OwnRuntime() : runtime_({.poller_threads = 1, .handler_threads = 2, .compute_threads = 1}) {
    EXPECT_TRUE(runtime_.start());
    ThreadContext::current().runtime = &runtime_;
  }
  ~OwnRuntime() { ThreadContext::current().runtime = nullptr; }
  void stop() { runtime_.stop(); }

 private:
  Runtime runtime_;
};

// A coroutine that waits for the answer to its request, which has been sent.
class ClientWait {
 public:
  explicit ClientWait(const WaitKind& kind) : place_(kind, "network") {
    WFScopeTask* const task = WFTaskFactory::create_scope_task(
        wf::task(&WaitPlace::stay, &place_), [this](WFScopeTask*) { over_.add(); });
    scope_ = task->scope();
    task->start();
    EXPECT_TRUE(test_support::eventually([this] { return place_.is_asked(); }));
  }
  // It ends like this, or, if there is no end, is dropped.
  void expect(const std::optional<WFEnd>& end) {
    EXPECT_TRUE(over_.wait_for(1)) << place_.kind().name;
    EXPECT_EQ(place_.ended, end) << place_.kind().name;
    EXPECT_EQ(place_.problem(), "");
    const bool waits_again = end && !*end;
    EXPECT_EQ(place_.again, waits_again ? end : std::nullopt) << place_.kind().name;
  }
  void answer() {
    do {
      place_.bring();
    } while (!over_.wait_for(1, 1ms));
  }

  WaitPlace& place() { return place_; }
  const WFScope& scope() const { return scope_; }
  bool is_over() const { return over_.count() != 0; }

 private:
  WaitPlace place_;
  WFScope scope_;
  Tally over_;
};

TEST(CoroutineNetworkWaits, RequestsEndInEachWay) {
  for (const WaitKind& kind : test_support::network_wait_kinds()) {
    {
      ClientWait wait(kind);
      EXPECT_FALSE(wait.is_over());
      wait.answer();
      wait.expect(kEndSuccess);
    }
    {
      ClientWait wait(kind);
      wait.place().cancel(wait.scope());
      wait.expect(kEndCanceled);
    }
    {
      ClientWait wait(kind);
      wait.place().set_deadline(wait.scope(), 0ns);
      wait.expect(kEndTimedOut);
    }
    {
      ClientWait wait(kind);
      wait.place().drop();
      EXPECT_FALSE(wait.is_over()) << "a request that has begun was interrupted";
      wait.answer();
      wait.expect(std::nullopt);
    }
  }
}

TEST(CoroutineNetworkWaits, RequestsEndWhenTheLibraryStops) {
  for (const WaitKind& kind : test_support::network_wait_kinds()) {
    OwnRuntime runtime;
    ClientWait wait(kind);
    wait.place().note_stop();
    runtime.stop();
    wait.expect(kEndAborted);
  }
}

TEST(CoroutineNetworkWaits, LosersOfAnyAreGoneWhenItReturns) {
  for (const WaitKind& kind : test_support::network_wait_kinds()) {
    WaitPlace place(kind, "network");
    EXPECT_TRUE(wf::wait(&WaitPlace::lose, &place)) << kind.name;
    EXPECT_EQ(place.ended, kEndCanceled) << kind.name;
  }
}

// More than the buffers of both sides take.
constexpr size_t kPieceThatWaits = size_t{16} << 20;

// A handler that waits until its client has taken a large piece. The client has read its beginning.
class WriterWait {
 public:
  WriterWait()
      : server_(wf::serve([this](WFHttpTask* request) { return write(request); })),
        client_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(server_.start("127.0.0.1", 0), 0);
    const int small = 4096;
    ::setsockopt(client_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    const struct sockaddr_in to = test_support::loopback(test_support::port_of(server_));
    EXPECT_EQ(::connect(client_.get(), reinterpret_cast<const struct sockaddr*>(&to), sizeof to),
              0);
    const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    ::send(client_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(begun_.wait_for(1));
    EXPECT_GT(read_some(), 0u);
    EXPECT_EQ(gone_.count(), 0u);
  }
  ~WriterWait() {
    client_.reset();
    EXPECT_TRUE(gone_.wait_for(1));
    server_.stop();
    EXPECT_EQ(gone_.count(), 1u);
  }

  size_t read_some() {
    std::string bytes(1 << 16, '\0');
    const ssize_t n = ::recv(client_.get(), bytes.data(), bytes.size(), 0);
    return n > 0 ? static_cast<size_t>(n) : 0;
  }
  // Until the other side closes, or everything has come.
  void read_all() {
    size_t total = 0;
    for (size_t n = 1; n > 0 && total < kPieceThatWaits; total += n)
      n = read_some();
  }
  void leave() { client_.reset(); }
  bool wait_until_gone() { return gone_.wait_for(1); }
  void drop() { series_->cancel(); }
  const WFScope& scope() const { return scope_; }

  std::optional<WFEnd> ended;
  std::optional<WFEnd> again;

 private:
  struct Frame {
    explicit Frame(Tally& gone) : gone_(gone) {}
    ~Frame() { gone_.add(); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    Tally& gone_;
  };

  WFCo<> write(WFHttpTask* request) {
    const Frame frame(gone_);
    series_ = co_await wf::own_series();
    scope_ = request->scope();
    const WFCoStream stream = wf::stream(request);
    begun_.add();
    const WFEnd end = co_await stream.write(std::string(kPieceThatWaits, 'x'));
    ended = end;
    if (!end) again = co_await stream.write("more");
  }

  SeriesWork* series_ = nullptr;
  WFScope scope_;
  Tally begun_;
  Tally gone_;
  WFHttpServer server_;
  UniqueFd client_;
};

TEST(CoroutineNetworkWaits, WritesToAStreamEndInEachWay) {
  {
    WriterWait wait;
    wait.read_all();
    EXPECT_TRUE(wait.wait_until_gone());
    EXPECT_EQ(wait.ended, kEndSuccess);
  }
  {
    WriterWait wait;
    wait.scope().cancel();
    EXPECT_TRUE(wait.wait_until_gone());
    EXPECT_EQ(wait.ended, kEndCanceled);
    EXPECT_EQ(wait.again, kEndCanceled);
  }
  {
    WriterWait wait;
    wait.scope().set_deadline(0ns);
    EXPECT_TRUE(wait.wait_until_gone());
    EXPECT_EQ(wait.ended, kEndTimedOut);
    EXPECT_EQ(wait.again, kEndTimedOut);
  }
  {
    WriterWait wait;
    wait.leave();
    EXPECT_TRUE(wait.wait_until_gone());
    EXPECT_TRUE(wait.ended);
    EXPECT_FALSE(wait.ended == kEndSuccess);
    EXPECT_TRUE(wait.again);
  }
  {
    WriterWait wait;
    wait.drop();
    wait.read_all();
    EXPECT_TRUE(wait.wait_until_gone());
    EXPECT_FALSE(wait.ended);
  }
}

// The stop closes the connection before it ends what waits.
TEST(CoroutineNetworkWaits, WritesToAStreamEndWhenTheLibraryStops) {
  OwnRuntime runtime;
  WriterWait wait;
  runtime.stop();
  EXPECT_TRUE(wait.wait_until_gone());
  EXPECT_EQ(wait.ended, kEndCanceled);
  EXPECT_EQ(wait.again, kEndCanceled);
}

// A server that sends a response of this size, as fast as it is taken.
constexpr size_t kLongResponse = size_t{64} << 20;

// Reads the request, sends the head and as much of the body as the other side takes, until it takes
// nothing for a while. Returns how much that was.
size_t send_until_stuck(int listener, const Tally& reader_waits) {
  const UniqueFd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  struct pollfd asked = {peer.get(), POLLIN, 0};
  ::poll(&asked, 1, -1);
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kLongResponse) + "\r\n\r\nbegin";
  ::send(peer.get(), head.data(), head.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(reader_waits.wait_for(1));
  const std::string bytes(1 << 16, 'x');
  size_t sent = 0;
  struct pollfd room = {peer.get(), POLLOUT, 0};
  // On a busy machine it may stop too early, which is right, too.
  while (sent < kLongResponse && ::poll(&room, 1, 50) == 1) {
    const ssize_t n = ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) break;
    sent += n > 0 ? static_cast<size_t>(n) : 0;
  }
  return sent;
}

TEST(CoroutineNetworkWaits, NothingIsReadWhileTheReaderOfChunksDoesOtherThings) {
  const UniqueFd listener = test_support::listen_on_loopback();
  Tally reader_waits;
  size_t sent = 0;
  std::thread server([&] {
    sent = send_until_stuck(listener.get(), reader_waits);
    WFTaskFactory::send_by_name("network reader", &sent);
  });
  const auto read = [&]() -> WFCo<> {
    const std::string url =
        "http://127.0.0.1:" + std::to_string(test_support::port_of(listener.get())) + "/";
    WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr));
    const auto piece = co_await chunks.next();
    EXPECT_EQ(piece, "begin");
    auto stuck = wf::receive("network reader");
    reader_waits.add();
    (void)co_await std::move(stuck);
  };
  wf::wait(read);
  server.join();
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, kLongResponse);
}

WFCo<std::string> read_chunks(std::string url, int redirect_max) {
  WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, redirect_max, nullptr, nullptr));
  std::string text;
  while (auto piece = co_await chunks.next()) {
    text += *piece + " ";
  }
  co_return text + (chunks.end() ? "whole" : "cut");
}

TEST(CoroutineNetworkWaits, AReaderOfChunksFollowsRedirects) {
  // The body of the second response has not ended when it is known where to go.
  const std::string moved[] = {
      "HTTP/1.1 302 Found\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 302 Found\r\nLocation: /2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nmoved\r\n",
      "HTTP/1.1 302 Found\r\nLocation: /3\r\nConnection: close\r\n\r\n"};
  client_test::RawServer server([&](client_test::Peer& peer, int) {
    for (std::string request; !(request = peer.request()).empty();) {
      const auto number = static_cast<size_t>(request.at(5) - '0');
      peer.send(number < std::size(moved) ? moved[number]
                                          : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                            "4\r\nhere\r\n0\r\n\r\n");
      if (number == 2) return;
    }
  });
  EXPECT_EQ(wf::wait(read_chunks, server.url("/0"), 3), "here whole");
  EXPECT_EQ(wf::wait(read_chunks, server.url("/2"), 1), "here whole");
  EXPECT_EQ(wf::wait(read_chunks, server.url("/0"), 0), "whole");
}

}  // namespace
