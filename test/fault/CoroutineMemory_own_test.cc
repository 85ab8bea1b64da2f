// Each allocation fails in its turn while a coroutine makes works and waits for them. It is told
// std::bad_alloc or ENOMEM, and nothing is lost: AddressSanitizer sees what leaks.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/MemoryFaults.h"
#include "support/RawClient.h"
#include "support/TestServer.h"
#include "workflow/WFCoroutine.h"

namespace {

using namespace std::chrono_literals;
using F = WFTaskFactory;

// Every copy of it allocates.
std::string long_text(char c) {
  return std::string(100, c);
}

// Runs scenario(n), which lets its n-th allocation fail, for each of them. A scenario makes what is
// not to be tested, calls fault::arm(n), and waits.
template <class SCENARIO>
void fail_each(SCENARIO scenario) {
  long failures = 0;
  // How many there are varies a little.
  for (long n = 1, without = 0; without < 3; n++) {
    long failed = 0;
    const auto run = [&scenario, &failed, n]() -> WFCo<> {
      try {
        co_await scenario(n);
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(fault::failures, 1);
      }
      failed = fault::disarm();
    };
    wf::wait(run);
    without = failed == 0 ? without + 1 : 0;
    failures += failed;
  }
  EXPECT_GT(failures, 0);
}

WFCo<size_t> child(std::string text) {
  (co_await wf::sleep(0ms)).check();
  co_return text.size();
}

TEST(CoroutineMemory, AChildAndASleep) {
  fail_each([](long n) -> WFCo<> {
    fault::arm(n);
    const size_t size = co_await child(long_text('a'));
    EXPECT_EQ(size, 100u);
    (void)co_await wf::sleep(long_text('s'), 0ms);
  });
}

TEST(CoroutineMemory, WorksSideBySide) {
  const auto all = [](long n) -> WFCo<> {
    auto one = wf::sleep(0ms);
    auto two = wf::sleep(0ms);
    fault::arm(n);
    auto ended = co_await wf::all(std::move(one), std::move(two));
    static_cast<void>(ended);
  };
  fail_each(all);
  const auto any = [](long n) -> WFCo<> {
    WFTimerTask* const one = F::create_timer_task(0, 0, nullptr);
    SeriesWork* const two =
        Workflow::create_series_work(F::create_timer_task(3600, 0, nullptr), nullptr);
    fault::arm(n);
    auto first = co_await wf::any(one, two);
    static_cast<void>(first);
  };
  fail_each(any);
  const auto all_ended = [](long n) -> WFCo<> {
    auto one = wf::sleep(0ms);
    fault::arm(n);
    auto ended = co_await wf::all_ended(std::move(one));
    static_cast<void>(ended);
  };
  fail_each(all_ended);
}

TEST(CoroutineMemory, WithinALimit) {
  fail_each([](long n) -> WFCo<> {
    const auto token = std::make_shared<int>(1);
    fault::arm(n);
    const auto get = [token] { return *token; };
    const auto ended = co_await wf::within(1h, wf::go(long_text('q'), get));
    static_cast<void>(ended);
  });
}

TEST(CoroutineMemory, EachAndScope) {
  const auto each = [](long n) -> WFCo<> {
    const std::vector<int> numbers(3, 1);
    const auto rest = [](int) -> WFCo<> { (void)co_await wf::sleep(0ms); };
    fault::arm(n);
    co_await wf::each(numbers, 2, rest);
  };
  fail_each(each);
  const auto scope = [](long n) -> WFCo<> {
    fault::arm(n);
    co_await wf::scope([](WFScope& inside) { inside.start(child, long_text('d')); });
  };
  fail_each(scope);
}

TEST(CoroutineMemory, GuardsAndResources) {
  const auto hold = [](long n) -> WFCo<> {
    const std::string guard = long_text('g');
    fault::arm(n);
    const WFEnd held = co_await wf::hold(guard);
    fault::disarm();
    if (held) F::release_guard(guard, nullptr);
  };
  fail_each(hold);
  const auto take = [](long n) -> WFCo<> {
    int thing = 0;
    void* resources[1] = {&thing};
    WFResourcePool pool(resources, 1);
    fault::arm(n);
    const WFEnd taken = co_await wf::take(pool);
    if (taken) pool.post(&thing);
  };
  fail_each(take);
}

// Asks a server whose handler lacks memory from its n-th allocation on, as many times as `more`
// says. Returns how many have failed.
template <class HANDLER>
long ask_without_memory(HANDLER handler, int expected, long n, long more) {
  const http_process_t serve = wf::serve(handler);
  // The server would drop the connection in that case, too; but who calls this in a function of
  // theirs need not expect exceptions.
  std::atomic<int> thrown{0};
  server_test::TestServer server([&, n, more](WFHttpTask* request) {
    fault::arm(n, more);
    try {
      serve(request);
    } catch (const std::bad_alloc&) {
      thrown++;
      throw;
    }
  });
  server_test::RawClient client = server.client();
  const auto reply = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const long failed = fault::disarm();
  EXPECT_EQ(thrown, 0) << "the function of wf::serve() has thrown, " << n;
  if (failed == 0) {
    EXPECT_TRUE(reply && reply->status == expected) << n;
  } else if (reply) {
    // What is not of the handler, such as the reply's way to the client, may lack memory without
    // harm.
    EXPECT_TRUE(reply->status == expected || reply->status == 500) << n << " " << reply->status;
  }
  if (!reply || reply->status == 500) {
    EXPECT_TRUE(client.ended()) << n;
  }
  return failed;
}
template <class HANDLER>
void serve_without_memory(HANDLER handler, int expected, long more) {
  long failures = 0;
  for (long n = 1, without = 0; without < 3; n++) {
    const long failed = ask_without_memory(handler, expected, n, more);
    without = failed == 0 ? without + 1 : 0;
    failures += failed;
  }
  EXPECT_GT(failures, 0);
}

// The client gets a 500, or no reply if there is no memory for that; the connection ends.
TEST(CoroutineMemory, AHandlerOfAServer) {
  const auto replies = [](WFHttpTask* request) -> WFCo<> {
    const size_t size = co_await child(long_text('h'));
    request->get_resp()->append_output_body(std::string(size, 'b'));
  };
  serve_without_memory(replies, 200, 0);
  serve_without_memory(replies, 200, 1000);
  const auto throws = [](WFHttpTask*) -> WFCo<> {
    co_await child(long_text('t'));
    throw std::runtime_error("no reply");
  };
  serve_without_memory(throws, 500, 0);
  serve_without_memory(throws, 500, 1000);
}

TEST(CoroutineMemory, TasksAndSeriesOfTheUser) {
  const auto series = [](long n) -> WFCo<> {
    SeriesWork* const two = Workflow::create_series_work(F::create_empty_task(), nullptr);
    two->push_back(F::create_empty_task());
    fault::arm(n);
    (void)co_await two;
  };
  fail_each(series);
  const auto callback = [](long n) -> WFCo<> {
    const std::string text = long_text('k');
    WFTimerTask* const timer = F::create_timer_task(0, 0, [text](WFTimerTask*) {});
    fault::arm(n);
    (void)co_await timer;
  };
  fail_each(callback);
  const auto chunks = [](long n) -> WFCo<> {
    WFHttpChunkedTask* const task = WFHttpChunkedClient::create_chunked_task(
        "http://127.0.0.1:1/", 0, nullptr, [](WFHttpChunkedTask*) {});
    fault::arm(n);
    const WFCoChunks unread(task);
    co_return;
  };
  fail_each(chunks);
}

}  // namespace
