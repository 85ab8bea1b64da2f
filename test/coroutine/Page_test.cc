// What docs/coroutines.md shows is what is compiled here: each part between "// Example" and
// "// End of example" is a block of the page, but for its indentation. What must work runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/Text.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFHttpChunkedClient.h"

// The page begins with a whole program.
#define main coroutine_page_main
// A main() need not return a value.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wreturn-type"
// The layout below is that of the page, whose comments stand in columns.
// clang-format off
// Example
#include "workflow/WFCoroutine.h"
#include "workflow/WFHttpServer.h"

using namespace std::chrono_literals;

WFCo<> later(WFHttpTask* task) {
  const WFEnd slept = co_await wf::sleep("tea", 1s);
  task->get_resp()->append_output_body(slept ? "a second later\n" : "woken\n");
}

int main() {
  WFHttpServer server(wf::serve(later));  // the reply leaves when the coroutine has returned
  if (server.start("127.0.0.1", 8080) != 0) return 1;
  std::getchar();
  server.stop();
}
// End of example
#pragma GCC diagnostic pop
#undef main

namespace coroutine_page {
namespace {

using test_support::Tally;

// What the examples use.
std::atomic<int> groups_ended{0};
std::atomic<int> answers{0};
struct User {};
struct Orders {};
using Id = int;
WFCo<User> load_user(Id) {
  co_return User();
}
WFCo<Orders> load_orders(Id) {
  co_return Orders();
}
WFCo<> work() {
  (void)co_await wf::sleep(1h);
}
WFCo<> worker(int) {
  (void)co_await wf::sleep(1h);
}
WFCo<> fill(std::string& buffer, size_t length) {
  buffer.assign(length, ' ');
  co_return;
}
WFCo<> log(const std::string&) {
  co_return;
}
void use(const std::string& text) {
  EXPECT_FALSE(text.empty());
}

WFCo<> groups(Id id) {
  // Example
  auto both = co_await wf::all(load_user(id), load_orders(id));            // WFCo<User>, WFCo<Orders>
  auto& [user, orders] = both;

  const auto first = co_await wf::any(wf::receive("stop"), work());
  if (first.index == 0) co_return;                                         // work() has returned, too

  co_await wf::scope([&](WFScope& scope) -> WFCo<> {
    for (int i = 0; i < 3; i++) scope.start(worker, i);
    (void)co_await wf::receive("enough");
    scope.cancel();                                                        // the workers' waits end
  });
  // End of example
  static_cast<void>(user);
  static_cast<void>(orders);
  groups_ended++;
}

// Example
WFCo<> pass_on(WFHttpTask* task, std::string url) {       // given to wf::serve()
  const WFCoStream reply = wf::stream(task);              // wf::event_stream(task): server-sent events
  WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 4, nullptr, nullptr));
  while (auto piece = co_await chunks.next()) {
    if (!co_await reply.write(*std::move(piece))) co_return;   // the client has left
  }
  if (!chunks.end()) task->noreply();                     // cut: not to be taken for a whole one
}
// End of example

namespace detached {
// Example
size_t count_words(const std::stop_token& stop, const std::string& text);

WFCo<> answer(WFHttpTask* task, std::string text) {
  const auto words = co_await wf::go_detached("count", 200ms, count_words, std::move(text));
  if (!words) task->get_resp()->set_status_code("503");      // count_words may run on
}
// End of example

// Until the limit of answer() has passed.
size_t count_words(const std::stop_token& stop, const std::string& text) {
  while (!stop.stop_requested())
    std::this_thread::yield();
  return static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) + 1;
}
}  // namespace detached

std::string buffer_;
std::string name_ = "a name that is too long to be kept in the object itself";

namespace awaited {
// Example
WFCo<size_t> length_of(const std::string& url);

WFCo<> good(std::string url) {                   // by value: a copy for the coroutine
  const size_t length = co_await length_of(url);            // refers to a variable of this frame
  const size_t other = co_await length_of("http://...");    // the temporary lives until this line ends
  co_await wf::all(fill(buffer_, length + other), log(url));   // both have returned when this does
}
// End of example

WFCo<size_t> length_of(const std::string& url) {
  (co_await wf::sleep(0ms)).check();
  co_return url.size();
}
}  // namespace awaited

WFCo<> f(const std::string& text) {
  use(text);
  co_return;
}

namespace given_away {
[[maybe_unused]] void bad(std::string name);

// Example
void good(std::string name) {
  auto greet = [name](int times) -> WFCo<> {
    while (times-- > 0 && co_await wf::sleep(1ms)) use(name);
  };
  wf::task(greet, 3)->start();                    // the copy of greet, with its name, lives on
}

void bad(std::string name) {
  wf::task([&name]() -> WFCo<> { co_await f(name); })->start();   // `name` is gone when it runs
  wf::task(f, std::cref(name))->start();                          // the same
}
// End of example
}  // namespace given_away

namespace lambda_that_lives {
// Example
WFCo<> good() {
  auto lambda = [name = name_]() -> WFCo<> { (co_await wf::sleep(1ms)).check(); use(name); };
  co_await lambda();                              // the variable `lambda` outlives it
}
// End of example
}  // namespace lambda_that_lives

WFCo<> store_it(std::string name) {
  use(name);
  co_return;
}
WFCo<> transfer(std::string from, std::string to) {
  use(from + to);
  (void)co_await wf::sleep(1h);
}

void in_structures(const std::string& url, const std::string& name, const std::string& from,
                   const std::string& to) {
  SeriesWork* const series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  const http_callback_t callback = nullptr;
  // Example
  *series << WFTaskFactory::create_http_task(url, 4, 2, callback) << wf::task(store_it, name);
  with_deadline(wf::task(transfer, from, to), 30s)->start();
  // End of example
  series->start();
}

WFCo<> ask(std::string url) {
  // Example
  WFHttpTask* request = WFTaskFactory::create_http_task(url, 4, 2, nullptr);
  request->get_req()->add_header_pair("Accept", "text/plain");
  auto response = co_await request;               // WFEnded<protocol::HttpResponse>
  if (!response) co_return;                       // response.state, response.error
  use(response.value->get_status_code());
  // End of example
  answers++;
}

struct Result {
  int number;
};
void library_with_callbacks(int request, const std::function<void(Result*)>& callback) {
  static Result result = {request};
  callback(&result);
}

void wake(int request) {
  // Example
  auto waits = []() -> WFCo<> {
    const auto message = co_await wf::receive("results");
    if (message) use(std::to_string(static_cast<Result*>(*message.value)->number));
  };
  wf::task(waits)->start();
  library_with_callbacks(request, [](Result* result) { WFTaskFactory::send_by_name("results", result); });
  // End of example
}

}  // namespace
}  // namespace coroutine_page
// clang-format on

namespace coroutine_page {
namespace {

std::string url_of(const WFServerBase& server) {
  return "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
}

TEST(CoroutinePage, ExamplesOfGroupsEndAsTheySay) {
  Tally ended;
  // The message of the first is the one that stops; work() would take an hour.
  Workflow::start_series_work(wf::task(groups, 1), [&ended](const SeriesWork*) { ended.add(); });
  while (!ended.wait_for(1, 1ms))
    WFTaskFactory::send_by_name("stop", &ended);
  EXPECT_EQ(groups_ended, 0);
}

TEST(CoroutinePage, ExamplesOfLifetimesRun) {
  wf::wait(awaited::good, std::string("http://example.com/"));
  EXPECT_EQ(buffer_.size(), 29u);
  wf::wait(lambda_that_lives::good);
  // These are told to end when the process exits, if they have not ended before.
  given_away::good(name_);
  in_structures("http://127.0.0.1:1/", name_, "from", "to");
  wake(1);
}

TEST(CoroutinePage, ExamplesOfRequestsRun) {
  WFHttpServer back(
      [](WFHttpTask* task) { task->get_resp()->append_output_body("from the back"); });
  ASSERT_EQ(back.start("127.0.0.1", 0), 0);
  const std::string back_url = url_of(back);
  WFHttpServer front(
      wf::serve([back_url](WFHttpTask* task) -> WFCo<> { co_await pass_on(task, back_url); }));
  ASSERT_EQ(front.start("127.0.0.1", 0), 0);
  wf::wait(ask, url_of(front));
  EXPECT_EQ(answers, 1);
  const auto get = [](std::string url) -> WFCo<std::string> {
    auto response = co_await WFTaskFactory::create_http_task(url, 0, 0, nullptr);
    EXPECT_TRUE(response);
    co_return response ? protocol::HttpUtil::decode_chunked_body(&*response.value) : "";
  };
  EXPECT_EQ(wf::wait(get, url_of(front)), "from the back");
  front.stop();
  back.stop();
}

TEST(CoroutinePage, TheExampleOfADetachedFunctionIsAnsweredAtItsLimit) {
  WFHttpServer server(
      wf::serve([](WFHttpTask* task) -> WFCo<> { co_await detached::answer(task, "two words"); }));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const auto get = [](std::string url) -> WFCo<std::string> {
    auto response = co_await WFTaskFactory::create_http_task(url, 0, 0, nullptr);
    co_return response ? response.value->get_status_code() : "";
  };
  EXPECT_EQ(wf::wait(get, url_of(server)), "503");
  server.stop();
}

// The blocks of a text between lines, without the indentation that all lines of a block have.
std::multiset<std::string> blocks_of(const std::string& text, const std::string& begin,
                                     const std::string& end) {
  std::multiset<std::string> blocks;
  std::istringstream lines(text);
  std::string block;
  size_t indentation = std::string::npos;  // outside of blocks
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(' ');
    const std::string bare = first == std::string::npos ? "" : line.substr(first);
    if (indentation == std::string::npos) {
      if (bare == begin) indentation = first;
    } else if (bare == end) {
      blocks.insert(std::exchange(block, ""));
      indentation = std::string::npos;
    } else {
      block += bare.empty() ? "\n" : line.substr(std::min(indentation, first)) + "\n";
    }
  }
  return blocks;
}

TEST(CoroutinePage, ShowsTheCodeThatIsTested) {
  const std::string root = SOURCE_TREE;
  const auto shown =
      blocks_of(test_support::text_of(root + "/docs/coroutines.md"), "```cpp", "```");
  const auto tested = blocks_of(test_support::text_of(root + "/test/coroutine/Page_test.cc"),
                                "// Example", "// End of example");
  EXPECT_GT(shown.size(), 5u);
  for (const std::string& block : shown)
    EXPECT_TRUE(tested.contains(block)) << "shown, but not tested:\n" << block;
  for (const std::string& block : tested)
    EXPECT_TRUE(shown.contains(block)) << "tested, but not shown:\n" << block;
}

}  // namespace
}  // namespace coroutine_page
