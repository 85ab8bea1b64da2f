// What becomes of that which a dropped coroutine waits for, or has got and does not know of yet.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;
using F = WFTaskFactory;

// Tells its series, and waits for what `make` returns, which it never learns of.
template <class MAKE>
WFCo<> wait_in_vain(SeriesWork** series, MAKE make) {
  *series = co_await wf::own_series();
  auto work = make();
  auto ended = co_await std::move(work);
  static_cast<void>(ended);
  ADD_FAILURE() << "not dropped";
}

constexpr const char* kGuard = "coroutine dropped";

WFCo<> hold_alone(const char* guard, std::atomic<int>& holders, Tally& done) {
  auto held = co_await wf::hold(guard);
  EXPECT_TRUE(held);
  EXPECT_EQ(++holders, 1);
  (co_await wf::sleep(1ms)).check();  // so that a second holder would come
  holders--;
  F::release_guard(guard, nullptr);
  done.add();
}

// The series is made while the coroutine waits, and the timer's callback asks for it, too.
TEST(CoroutineDropped, ByACancelOfTheSeriesThatItGetsWhileItWaitsAlone) {
  Tally gone;
  SeriesWork* seen = nullptr;
  auto* const counter =
      F::create_counter_task(1, [&seen](WFCounterTask* task) { seen = series_of(task); });
  const auto wait = [counter](std::shared_ptr<void>) -> WFCo<> {
    (void)co_await counter;
    ADD_FAILURE() << "not dropped";
  };
  WFCoTask* const task = wf::task(
      wait, std::shared_ptr<void>(&gone, [](void* tally) { static_cast<Tally*>(tally)->add(); }));
  const auto run = [task]() -> WFCo<> {
    task->start();  // it waits when this returns, as this is a thread of the library
    co_return;
  };
  wf::wait(run);
  SeriesWork* const series = series_of(task);
  Tally ended;
  series->set_callback([&ended](const SeriesWork*) { ended.add(); });
  series->cancel();
  counter->count();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(gone.count(), 1u);
  EXPECT_EQ(seen, series);
}

TEST(CoroutineDropped, AGuardIsGivenBackOnce) {
  std::atomic<int> holders{0};
  Tally done;
  const auto run = [&]() -> WFCo<> {
    auto held = co_await wf::hold(kGuard);
    EXPECT_TRUE(held);
    // Each waits when its start() returns, as this is a thread of the library.
    SeriesWork* series = nullptr;
    const auto hold = [] { return wf::hold(kGuard); };
    wf::task(wait_in_vain<decltype(hold)>, &series, hold)->start();
    for (int i = 0; i < 2; i++)
      wf::task(hold_alone, kGuard, std::ref(holders), std::ref(done))->start();
    series->cancel();
    F::release_guard(kGuard, nullptr);
  };
  wf::wait(run);
  EXPECT_TRUE(done.wait_for(2));
}

TEST(CoroutineDropped, AResourceIsGivenBackOnce) {
  int thing = 0;
  void* resources[1] = {&thing};
  WFResourcePool pool(resources, 1);
  const auto run = [&]() -> WFCo<> {
    auto taken = co_await wf::take(pool);
    EXPECT_TRUE(taken);
    SeriesWork* series = nullptr;
    const auto take = [&pool] { return wf::take(pool); };
    wf::task(wait_in_vain<decltype(take)>, &series, take)->start();
    series->cancel();
    pool.post(&thing);
    auto one = co_await wf::take(pool);
    EXPECT_EQ(one.value, &thing);
    auto none = co_await wf::within(1ms, wf::take(pool));
    EXPECT_EQ(none.error, ETIMEDOUT);
  };
  wf::wait(run);
}

TEST(CoroutineDropped, AMessageStaysInItsQueueOnce) {
  int message = 0;
  WFMessageQueue queue;
  const auto run = [&]() -> WFCo<> {
    SeriesWork* series = nullptr;
    const auto receive = [&queue] { return wf::receive(queue); };
    wf::task(wait_in_vain<decltype(receive)>, &series, receive)->start();
    series->cancel();
    queue.post(&message);
    auto one = co_await wf::receive(queue);
    EXPECT_EQ(one.value, &message);
    auto none = co_await wf::within(1ms, wf::receive(queue));
    EXPECT_EQ(none.error, ETIMEDOUT);
  };
  wf::wait(run);
}

// Cancels its series, so that the work that `make` returns is never started.
template <class MAKE>
WFCo<> wait_cancelled(MAKE make) {
  (co_await wf::own_series())->cancel();
  auto ended = co_await make();
  static_cast<void>(ended);
  ADD_FAILURE() << "not dropped";
}
template <class MAKE>
void drop_unstarted(MAKE make) {
  Tally ended;
  Workflow::start_series_work(wf::task(wait_cancelled<MAKE>, std::move(make)),
                              [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(CoroutineDropped, WhatAGroupWasToRunIsDestroyed) {
  const auto token = std::make_shared<int>(1);
  const auto go = [&token] { return wf::go("queue", [token] { return *token; }); };
  drop_unstarted([go] { return wf::within(1h, go()); });
  EXPECT_EQ(token.use_count(), 1);
  drop_unstarted([go] { return wf::all(go(), wf::sleep(1h)); });
  EXPECT_EQ(token.use_count(), 1);
  drop_unstarted([go] { return wf::any(wf::sleep(1h), go()); });
  EXPECT_EQ(token.use_count(), 1);
  const auto child = [](std::shared_ptr<int> copy) -> WFCo<int> { co_return *copy; };
  drop_unstarted([&] { return wf::all_ended(child(token), go()); });
  EXPECT_EQ(token.use_count(), 1);
}

WFTimerTask* no_timer() {
  throw std::runtime_error("no timer");
}

// A timer that is lost would keep its name.
TEST(CoroutineDropped, AWorkBesideAnArgumentThatThrows) {
  const char* const name = "coroutine beside";
  const auto run = [name]() -> WFCo<> {
    int thrown = 0;
    try {
      auto ended = co_await wf::all(wf::sleep(name, 1h), no_timer());
      static_cast<void>(ended);
    } catch (const std::runtime_error&) {
      thrown++;
    }
    try {  // compilers differ in the order of arguments
      auto ended = co_await wf::all(no_timer(), wf::sleep(name, 1h));
      static_cast<void>(ended);
    } catch (const std::runtime_error&) {
      thrown++;
    }
    EXPECT_EQ(thrown, 2);
    EXPECT_EQ(F::cancel_by_name(name), 0);
    const auto never_awaited = wf::sleep(name, 1h);
  };
  wf::wait(run);
  EXPECT_EQ(F::cancel_by_name(name), 0);
}

TEST(CoroutineDropped, AReaderOfChunksBeforeTheFirst) {
  const auto read = []() -> WFCo<> {
    WFCoChunks chunks(
        WFHttpChunkedClient::create_chunked_task("http://127.0.0.1:1/", 0, nullptr, nullptr));
    (co_await wf::own_series())->cancel();
    auto piece = co_await chunks.next();
    static_cast<void>(piece);
    ADD_FAILURE() << "not dropped";
  };
  Tally ended;
  Workflow::start_series_work(wf::task(read), [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(CoroutineDropped, AReaderOfChunksAfterTheFirst) {
  Tally left;
  const auto handler = [&left](WFHttpTask* request) -> WFCo<> {
    const WFCoStream stream = wf::stream(request);
    while (co_await stream.write(std::string(100000, 'x'))) {
    }
    left.add();
  };
  WFHttpServer server(wf::serve(handler));
  ASSERT_EQ(server.start("127.0.0.1", 0), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
  const auto read = [url]() -> WFCo<> {
    WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url, 0, nullptr, nullptr));
    auto first = co_await chunks.next();
    EXPECT_TRUE(first);
    (co_await wf::own_series())->cancel();
    auto second = co_await chunks.next();
    static_cast<void>(second);
    ADD_FAILURE() << "not dropped";
  };
  Tally ended;
  Workflow::start_series_work(wf::task(read), [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(left.wait_for(1));
  server.stop();
}

WFCo<> fail_later() {
  (co_await wf::sleep(1ms)).check();
  throw std::runtime_error("later");
}
// Whether the guard can be had in that time. It is released then.
WFCo<bool> is_held_within(std::chrono::milliseconds limit, const char* guard) {
  const WFEnd end = co_await wf::within(limit, wf::hold(guard));
  if (end) F::release_guard(guard, nullptr);
  co_return static_cast<bool>(end);
}

TEST(CoroutineDropped, AnyGivesBackWhatTheOthersGot) {
  const auto run = []() -> WFCo<> {
    auto first = co_await wf::any(wf::hold("coroutine a"), wf::hold("coroutine b"));
    EXPECT_TRUE(std::get<0>(first.value));
    EXPECT_EQ(first.index, 0u);
    EXPECT_TRUE(co_await is_held_within(10s, "coroutine b"));
    EXPECT_FALSE(co_await is_held_within(1ms, "coroutine a"));
    F::release_guard("coroutine a", nullptr);
    // Also inside others.
    auto inner = co_await wf::any(
        wf::sleep(0ms), wf::within(1h, wf::all(wf::hold("coroutine a"), wf::hold("coroutine b"))));
    if (inner.index == 1) {
      F::release_guard("coroutine a", nullptr);
      F::release_guard("coroutine b", nullptr);
    }
    EXPECT_TRUE(co_await is_held_within(10s, "coroutine a"));
    EXPECT_TRUE(co_await is_held_within(10s, "coroutine b"));
  };
  wf::wait(run);
}

TEST(CoroutineDropped, AllGivesBackWhatWasGotWhenOneThrows) {
  int thing = 0;
  void* resources[1] = {&thing};
  WFResourcePool pool(resources, 1);
  WFMessageQueue queue;
  queue.post(&thing);
  const auto run = [&]() -> WFCo<> {
    bool thrown = false;
    try {
      auto all = co_await wf::all(wf::take(pool), wf::within(1h, wf::receive(queue)), fail_later());
      static_cast<void>(all);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    EXPECT_TRUE(thrown);
    auto taken = co_await wf::within(10s, wf::take(pool));
    EXPECT_EQ(taken.value, &thing);
    auto received = co_await wf::within(10s, wf::all_ended(wf::receive(queue)));
    EXPECT_TRUE(received);
    pool.post(&thing);
    // A coroutine that has learnt of its resource keeps it.
    auto both = co_await wf::within(1h, wf::all(wf::take(pool), wf::hold("coroutine a")));
    EXPECT_TRUE(both);
    EXPECT_EQ(std::get<0>(*both.value).value, &thing);
    EXPECT_FALSE(co_await is_held_within(1ms, "coroutine a"));
    F::release_guard("coroutine a", nullptr);
  };
  wf::wait(run);
  const auto empty = wf::wait([&pool] { return wf::within(1ms, wf::take(pool)); });
  EXPECT_EQ(empty.error, ETIMEDOUT);
}

TEST(CoroutineDropped, EachSaysThatItHasNotDoneAll) {
  int begun = 0;
  const auto run = [&begun]() -> WFCo<> {
    const auto work = [&begun](int n) -> WFCo<> {
      begun++;
      if (n == 2) {
        (co_await wf::own_series())->cancel();
        (void)co_await wf::sleep(0ms);
      }
    };
    const std::vector<int> numbers = {1, 2, 3, 4, 5};
    co_await wf::each(numbers, 1, work);
  };
  try {
    wf::wait(run);
    ADD_FAILURE() << "each() has returned";
  } catch (const WFError& error) {
    EXPECT_EQ(error.end, (WFEnd{WFT_STATE_SYS_ERROR, ECANCELED}));
  }
  EXPECT_EQ(begun, 2);
}

}  // namespace
