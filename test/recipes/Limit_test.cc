#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "recipes/Recipes.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace recipes_test {
namespace {

// Recipe
class LimitedClient {
 public:
  explicit LimitedClient(size_t at_once) : permits_(at_once) {}

  WFConditional* create_request(const std::string& url, http_callback_t callback) {
    WFHttpTask* request =
        WFTaskFactory::create_http_task(url, /*redirect_max=*/5, /*retry_max=*/1,
                                        [this, callback = std::move(callback)](WFHttpTask* ended) {
                                          permits_.post(nullptr);
                                          if (callback) callback(ended);
                                        });
    return permits_.get(request);
  }

 private:
  WFResourcePool permits_;
};
// End of recipe

// Recipe
class Pace {
 public:
  explicit Pace(std::chrono::nanoseconds interval) : interval_(interval) {}

  WFTimerTask* create_turn() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto turn = std::max(next_, WFTimer::steady_now());
    next_ = turn + interval_;
    return WFTimer::create(turn, nullptr);
  }

 private:
  const std::chrono::nanoseconds interval_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_;
};
// End of recipe

class LimitRecipe : public testing::Test {
 protected:
  LimitRecipe() { EXPECT_TRUE(clock_stands()); }
};

TEST_F(LimitRecipe, AtMostSoManyAtOnce) {
  std::atomic<int> present{0};
  std::atomic<int> most{0};
  const LocalServer server([&](WFHttpTask* task) {
    const int now = ++present;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    task->get_resp()->append_output_body("x");
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        "work", std::chrono::hours(1), [&present](WFTimerTask*) { present--; }));
  });
  constexpr int kRequests = 10;
  constexpr int kAtOnce = 3;
  LimitedClient client(kAtOnce);
  Tally answered;
  for (int i = 0; i < kRequests; i++) {
    client
        .create_request(server.url(),
                        [&answered](WFHttpTask* task) {
                          if (task->get_state() == WFT_STATE_SUCCESS) answered.add();
                        })
        ->start();
  }
  for (int left = kRequests; left > 0; left -= kAtOnce) {
    const auto next = static_cast<size_t>(std::min(left, kAtOnce));
    ASSERT_TRUE(eventually([next] { return WFTimer::count("work") == next; }));
    WFTaskFactory::cancel_by_name("work");
    ASSERT_TRUE(answered.wait_for(static_cast<size_t>(kRequests - left) + next));
  }
  EXPECT_EQ(most, kAtOnce);
}

TEST_F(LimitRecipe, TurnsAreAnIntervalApart) {
  using std::chrono::milliseconds;
  Pace pace(milliseconds(100));
  std::atomic<int> turns{0};
  const auto run_queued = [&] {
    WFTimerTask* turn = pace.create_turn();
    turn->set_callback([&turns](WFTimerTask*) { turns++; });
    turn->start();
  };
  for (int i = 0; i < 3; i++)
    run_queued();
  WFManualClock::advance(0);
  EXPECT_EQ(turns, 1);
  WFManualClock::advance(milliseconds(99));
  EXPECT_EQ(turns, 1);
  WFManualClock::advance(milliseconds(1));
  EXPECT_EQ(turns, 2);
  WFManualClock::advance(milliseconds(100));
  EXPECT_EQ(turns, 3);

  // What nobody has used is not saved up.
  WFManualClock::advance(std::chrono::hours(1));
  run_queued();
  run_queued();
  WFManualClock::advance(0);
  EXPECT_EQ(turns, 4);
  WFManualClock::advance(milliseconds(100));
  EXPECT_EQ(turns, 5);
}

}  // namespace
}  // namespace recipes_test
