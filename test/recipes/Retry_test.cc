#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "recipes/Recipes.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace recipes_test {
namespace {

// Recipe
struct Retry {
  std::string url, name;                  // the name of its pauses, which nothing else may have
  std::function<bool(WFHttpTask*)> take;  // returns false to send the request again
  unsigned tries = 0;
  std::atomic<bool> stopped{false};
  void stop() {
    stopped = true;
    WFTaskFactory::cancel_by_name(name);
  }
  WFRepeaterTask* create_task(repeater_callback_t callback) {
    const auto ended = [this](WFHttpTask* task) {
      if (take(task)) tries = 5;
      if (tries == 5) return;
      const unsigned half_ms = 50U << tries;
      const std::chrono::milliseconds pause(half_ms + std::random_device()() % half_ms);
      series_of(task)->push_front(WFTaskFactory::create_timer_task(name, pause, nullptr));
      if (stopped) stop();  // This pause may be newer than the call that has set the flag.
    };
    const auto next_try = [this, ended](WFRepeaterTask*) -> SubTask* {
      if (stopped || tries++ == 5) return nullptr;
      return WFTaskFactory::create_http_task(url, 0, 0, ended);
    };
    return WFTaskFactory::create_repeater_task(next_try, std::move(callback));
  }
};
// End of recipe

// Answers 503 until it was asked `failures` times.
class Failing {
 public:
  explicit Failing(int failures)
      : server_([this, failures](WFHttpTask* task) {
          if (++asked_ <= failures) {
            protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusServiceUnavailable);
          }
          task->get_resp()->append_output_body("answer");
        }) {}

  const std::string& url() const { return server_.url(); }
  int asked() const { return asked_; }

 private:
  std::atomic<int> asked_{0};
  LocalServer server_;
};

class RetryRecipe : public testing::Test {
 protected:
  RetryRecipe() { EXPECT_TRUE(clock_stands()); }

  void start(const std::string& url, std::chrono::milliseconds limit = std::chrono::hours(1)) {
    retry_.url = url;
    retry_.name = "pause";
    retry_.take = [this](WFHttpTask* task) {
      if (take_) take_();
      if (task->get_state() != WFT_STATE_SUCCESS) return false;
      if (*task->get_resp()->get_status_code() == '5') return false;
      answered_ = true;
      return true;
    };
    with_deadline(retry_.create_task(nullptr), limit, [this](WFDeadlineTask*) {
      ended_.add();
    })->start();
  }

  static bool pauses() {
    return eventually([] { return WFTimer::count("pause") == 1; });
  }
  // Exactly one pause passes. Returns how long it was.
  static std::chrono::nanoseconds pass() {
    WFManualClock::advance(0);  // the callback that has made the pause has returned then
    const std::vector<WFTimerInfo> pauses = WFTimer::list("pause", 1);
    EXPECT_EQ(pauses.size(), 1U);
    if (pauses.empty()) return {};
    WFManualClock::advance(pauses[0].remaining);
    return pauses[0].remaining;
  }
  bool ends() const { return ended_.wait_for(1); }

  Retry retry_;
  std::function<void()> take_;
  Tally ended_;
  std::atomic<bool> answered_{false};
};

TEST_F(RetryRecipe, AsksUntilThereIsAnAnswer) {
  Failing server(2);
  start(server.url());
  for (int i = 1; i <= 2; i++) {
    ASSERT_TRUE(pauses());
    EXPECT_EQ(server.asked(), i);
    pass();
  }
  ASSERT_TRUE(ends());
  EXPECT_TRUE(answered_);
  EXPECT_EQ(server.asked(), 3);
}

TEST_F(RetryRecipe, PausesGrow) {
  Failing server(4);
  start(server.url());
  for (unsigned i = 1; i <= 4; i++) {
    ASSERT_TRUE(pauses());
    const std::chrono::nanoseconds pause = pass();
    EXPECT_GE(pause, std::chrono::milliseconds(50U << i));
    EXPECT_LT(pause, std::chrono::milliseconds(100U << i));
  }
  ASSERT_TRUE(ends());
  EXPECT_TRUE(answered_);
}

TEST_F(RetryRecipe, GivesUpAfterFiveTries) {
  Failing server(100);
  start(server.url());
  for (int i = 1; i <= 4; i++) {
    ASSERT_TRUE(pauses());
    pass();
  }
  ASSERT_TRUE(ends());
  EXPECT_FALSE(answered_);
  EXPECT_EQ(server.asked(), 5);
}

TEST_F(RetryRecipe, StopEndsThePauseAtOnce) {
  Failing server(100);
  start(server.url());
  ASSERT_TRUE(pauses());
  retry_.stop();
  ASSERT_TRUE(ends());
  EXPECT_EQ(server.asked(), 1);
}

TEST_F(RetryRecipe, StopBeforeThePauseIsMadeEndsItToo) {
  Failing server(100);
  take_ = [this] { retry_.stop(); };
  start(server.url());
  ASSERT_TRUE(ends());
  EXPECT_EQ(server.asked(), 1);
}

TEST_F(RetryRecipe, StopBeforeTheStartSendsNothing) {
  Failing server(100);
  retry_.stop();
  start(server.url());
  ASSERT_TRUE(ends());
  EXPECT_EQ(server.asked(), 0);
}

TEST_F(RetryRecipe, ADeadlineLimitsTheWhole) {
  Failing server(100);
  start(server.url(), std::chrono::milliseconds(50));
  ASSERT_TRUE(pauses());
  WFManualClock::advance(std::chrono::milliseconds(50));
  ASSERT_TRUE(ends());
  EXPECT_EQ(server.asked(), 1);
}

}  // namespace
}  // namespace recipes_test
