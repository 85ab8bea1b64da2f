// wf::go_detached(): the wait for a function ends at its limit, and the function runs on.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>

#include "support/Eventually.h"
#include "support/Tally.h"
#include "workflow/WFCoroutine.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;

// What a detached function shares with its test.
struct Detached {
  std::atomic<bool> has_begun{false};
  std::atomic<bool> was_stopped{false};
  Tally has_gone_on;
  Tally has_returned;
};

void run_until_stopped(const std::stop_token& token, const std::shared_ptr<Detached>& shared) {
  shared->has_begun = true;
  EXPECT_TRUE(shared->has_gone_on.wait_for(1));
  shared->was_stopped = token.stop_requested();
  shared->has_returned.add();
}

TEST(CoroutineDetached, GivesWhatAFunctionReturnsOrThrowsInTime) {
  const auto run = []() -> WFCo<> {
    const auto length = [](const std::string& text) { return text.size(); };
    auto result = co_await wf::go_detached("queue", 1h, length, std::string("four"));
    EXPECT_EQ(std::move(result).get(), 4u);
    const auto never_stopped = [](const std::stop_token& token) { return token.stop_requested(); };
    auto stopped = co_await wf::go_detached("queue", -1s, never_stopped);
    EXPECT_FALSE(std::move(stopped).get());
    const auto thrower = [] { throw std::runtime_error("computed"); };
    (void)co_await wf::go_detached("queue", 1h, thrower);
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
}

// On a busy machine the limit may pass before the function begins.
TEST(CoroutineDetached, GoesOnAtTheLimitAndTheFunctionRunsOn) {
  const auto run = [](std::shared_ptr<Detached> shared) -> WFCo<> {
    const WFEnd ended = co_await wf::go_detached("queue", 5ms, run_until_stopped, shared);
    EXPECT_EQ(ended, (WFEnd{WFT_STATE_SYS_ERROR, ETIMEDOUT}));
    EXPECT_EQ(shared->has_returned.count(), 0u);
    shared->has_gone_on.add();
  };
  for (bool has_begun = false; !has_begun;) {
    const auto shared = std::make_shared<Detached>();
    wf::wait(run, shared);
    has_begun = shared->has_begun;
    if (has_begun) {
      EXPECT_TRUE(shared->has_returned.wait_for(1));
      EXPECT_TRUE(shared->was_stopped);
    }
  }
}

TEST(CoroutineDetached, GoesOnWhenItsScopeEndsAndTheFunctionRunsOn) {
  const auto shared = std::make_shared<Detached>();
  const auto run = [&shared]() -> WFCo<> {
    const auto cancel_when_it_has_begun = [&shared]() -> WFCo<> {
      while (!shared->has_begun)
        (void)co_await wf::sleep(1ms);
      WFScope::current().cancel();
    };
    const auto ended = co_await wf::all_ended(
        wf::go_detached("queue", 1h, run_until_stopped, shared), cancel_when_it_has_begun());
    EXPECT_EQ(std::get<0>(ended).error, ECANCELED);
    EXPECT_EQ(shared->has_returned.count(), 0u);
    shared->has_gone_on.add();
  };
  wf::wait(run);
  EXPECT_TRUE(shared->has_returned.wait_for(1));
  EXPECT_TRUE(shared->was_stopped);
}

// The copies live until the function has returned. What it throws then is dropped.
TEST(CoroutineDetached, ArgumentsLiveAsLongAsTheFunction) {
  const auto shared = std::make_shared<Detached>();
  std::weak_ptr<int> seen;
  const auto run = [&]() -> WFCo<> {
    auto argument = std::make_shared<int>(5);
    seen = argument;
    const auto function = [](const std::shared_ptr<Detached>& with, const std::shared_ptr<int>& n) {
      run_until_stopped({}, with);
      EXPECT_EQ(*n, 5);
      throw std::runtime_error("nobody waits for it");
    };
    auto work = wf::go_detached("queue", 1h, function, shared, std::move(argument));
    const auto cancel_when_it_has_begun = [&shared]() -> WFCo<> {
      while (!shared->has_begun)
        (void)co_await wf::sleep(1ms);
      WFScope::current().cancel();
    };
    (void)co_await wf::all_ended(std::move(work), cancel_when_it_has_begun());
  };
  wf::wait(run);
  EXPECT_FALSE(seen.expired());
  shared->has_gone_on.add();
  EXPECT_TRUE(test_support::eventually([&seen] { return seen.expired(); }));
}

}  // namespace
