// Rows coroutine_* over standalone asio: awaitables on one io_context that one thread runs. Links:
// threads (header only).

#include <array>
#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <thread>

#include "common/CoroutineRows.h"

namespace bench {
namespace {

using asio::ip::tcp;
using Bytes = std::array<char, kPingBytes>;

asio::awaitable<void> empties(size_t n) {
  asio::any_io_executor executor = co_await asio::this_coro::executor;
  for (size_t i = 0; i < n; ++i)
    co_await asio::post(executor, asio::use_awaitable);
}

asio::awaitable<size_t> one_child(size_t i) {
  co_return i;
}

asio::awaitable<void> children(size_t n, size_t* sum) {
  for (size_t i = 0; i < n; ++i)
    *sum += co_await one_child(i);
}

asio::awaitable<void> sleeps(size_t n) {
  asio::any_io_executor executor = co_await asio::this_coro::executor;
  for (size_t i = 0; i < n; ++i) {
    asio::steady_timer timer(executor, std::chrono::nanoseconds(0));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> sleep_long(size_t* sleeping) {
  asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, std::chrono::hours(1));
  ++*sleeping;
  co_await timer.async_wait(asio::use_awaitable);
}

asio::awaitable<void> answer(tcp::acceptor* acceptor) {
  tcp::socket socket = co_await acceptor->async_accept(asio::use_awaitable);
  socket.set_option(tcp::no_delay(true));
  Bytes bytes;
  try {
    while (true) {
      co_await asio::async_read(socket, asio::buffer(bytes), asio::use_awaitable);
      co_await asio::async_write(socket, asio::buffer(bytes), asio::use_awaitable);
    }
  } catch (const std::system_error&) {  // the client has left
  }
}

asio::awaitable<void> ask(tcp::socket* socket, size_t n) {
  Bytes bytes = {};
  for (size_t i = 0; i < n; ++i) {
    co_await asio::async_write(*socket, asio::buffer(bytes), asio::use_awaitable);
    co_await asio::async_read(*socket, asio::buffer(bytes), asio::use_awaitable);
  }
}

// Answers on a thread of its own, as long as a client is connected.
class Server {
 public:
  Server()
      : acceptor_(context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        endpoint_(acceptor_.local_endpoint()),
        thread_([this] {
          asio::co_spawn(context_, answer(&acceptor_), asio::detached);
          context_.run();
        }) {}
  ~Server() { thread_.join(); }
  const tcp::endpoint& endpoint() const { return endpoint_; }

 private:
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  const tcp::endpoint endpoint_;
  std::thread thread_;
};

class AsioCoroutines {
 public:
  static constexpr const char* kPeer = "asio";

  void empty(size_t n) { run(empties(n)); }

  void child(size_t n) {
    size_t sum = 0;
    run(children(n, &sum));
    if (sum != n * (n - 1) / 2) std::abort();
  }

  void due(size_t n) { run(sleeps(n)); }

  void ping(size_t n) {
    Server server;
    asio::io_context context{1};
    tcp::socket socket(context);
    socket.connect(server.endpoint());
    socket.set_option(tcp::no_delay(true));
    asio::co_spawn(context, ask(&socket, n), asio::detached);
    context.run();
  }

  void sleepers(size_t n) {
    size_t sleeping = 0;
    for (size_t i = 0; i < n; ++i)
      asio::co_spawn(context_, sleep_long(&sleeping), asio::detached);
    context_.restart();
    while (sleeping < n)
      context_.poll();
  }

 private:
  void run(asio::awaitable<void> coroutine) {
    asio::io_context context{1};
    asio::co_spawn(context, std::move(coroutine), asio::detached);
    context.run();
  }

  asio::io_context context_{1};  // of the sleepers
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::AsioCoroutines program;
  bench::run_coroutine_rows(program, argc, argv);
  std::fflush(stdout);
  std::_Exit(0);  // not what it takes to destroy the sleepers
}
