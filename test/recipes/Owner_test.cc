#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "recipes/Recipes.h"
#include "workflow/WFTimer.h"

namespace recipes_test {
namespace {

// Recipe
class Session final {
 public:
  Session(std::chrono::milliseconds idle_time, std::function<void()> expired)
      : idle_time_(idle_time), expired_(std::move(expired)) {
    WFTimerTask* timer = WFTimer::create(idle_time_, [this](WFTimerTask* ended) {
      if (ended->get_state() == WFT_STATE_SUCCESS) expired_();
    });
    timer_ = WFTimer::handle_of(timer);
    if (timer_ == WFTimerHandle()) {  // There is no memory for a handle.
      timer->dismiss();
      throw std::bad_alloc();
    }
    timer->start();
  }
  ~Session() { timer_.cancel_and_wait(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool touch() { return timer_.reschedule(idle_time_) == WFTimerMove::kWon; }

 private:
  const std::chrono::milliseconds idle_time_;
  const std::function<void()> expired_;
  WFTimerHandle timer_;
};
// End of recipe

constexpr std::chrono::milliseconds kIdle(100);

class OwnerRecipe : public testing::Test {
 protected:
  OwnerRecipe() { EXPECT_TRUE(clock_stands()); }
};

TEST_F(OwnerRecipe, ExpiresWhenItWasIdle) {
  std::atomic<int> expired{0};
  Session session(kIdle, [&expired] { expired++; });
  WFManualClock::advance(kIdle - std::chrono::milliseconds(1));
  EXPECT_TRUE(session.touch());
  WFManualClock::advance(kIdle - std::chrono::milliseconds(1));
  EXPECT_EQ(expired, 0);
  WFManualClock::advance(std::chrono::milliseconds(1));
  EXPECT_EQ(expired, 1);
  EXPECT_FALSE(session.touch());
}

TEST_F(OwnerRecipe, DestroyedBeforeItDoesNotExpire) {
  std::atomic<int> expired{0};
  {
    const Session session(kIdle, [&expired] { expired++; });
  }
  WFManualClock::advance(kIdle);
  EXPECT_EQ(expired, 0);
}

TEST_F(OwnerRecipe, TheDestructorWaitsForTheCallback) {
  Tally begun;
  Tally go_on;
  std::atomic<bool> returned{false};
  auto session = std::make_unique<Session>(kIdle, [&] {
    begun.add();
    EXPECT_TRUE(go_on.wait_for(1));
    returned = true;
  });
  std::thread clock([] { WFManualClock::advance(kIdle); });
  ASSERT_TRUE(begun.wait_for(1));
  std::thread helper([&go_on] { go_on.add(); });
  session.reset();
  EXPECT_TRUE(returned);
  helper.join();
  clock.join();
}

TEST_F(OwnerRecipe, DestroyedWhileItExpires) {
  for (int i = 0; i < 100; i++) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    auto session =
        std::make_unique<Session>(kIdle, [counter = alive.get()] { counter->fetch_add(1); });
    std::thread clock([] { WFManualClock::advance(kIdle); });
    session.reset();
    alive.reset();  // a callback from now on would touch freed memory
    clock.join();
  }
}

}  // namespace
}  // namespace recipes_test
