#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recipes/Recipes.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFScope.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/Workflow.h"

namespace recipes_test {
namespace {

// Recipe
// Receives the first body that came with status 200; null if nobody has answered.
using AnswerCallback = std::function<void(const std::string* body)>;

WFScopeTask* ask_all(const std::vector<std::string>& urls, std::chrono::milliseconds limit,
                     AnswerCallback callback) {
  const auto first = std::make_shared<std::optional<std::string>>();
  ParallelWork* all = Workflow::create_parallel_work(nullptr);
  for (const std::string& url : urls) {
    WFHttpTask* request = WFTaskFactory::create_http_task(
        url, /*redirect_max=*/5, /*retry_max=*/0, [first](WFHttpTask* task) {
          const bool answered = task->get_state() == WFT_STATE_SUCCESS &&
                                std::strcmp(task->get_resp()->get_status_code(), "200") == 0;
          if (answered && WFScope::current().cancel()) {  // True for one of them only.
            *first = protocol::HttpUtil::decode_chunked_body(task->get_resp());
          }
        });
    all->add_series(Workflow::create_series_work(request, nullptr));
  }
  auto end = [first, callback = std::move(callback)](WFScopeTask*) {
    callback(first->has_value() ? &**first : nullptr);
  };
  return WFTaskFactory::create_deadline_task(all, limit, std::move(end));
}
// End of recipe

constexpr std::chrono::milliseconds kLimit(300);

// Answers after its timer, "slow" or "fast", was cancelled.
void process(WFHttpTask* task) {
  const std::string name = std::string(task->get_req()->get_request_uri()).substr(1);
  task->get_resp()->append_output_body(name);
  if (name == "error") protocol::HttpUtil::set_response_status(task->get_resp(), 500);
  if (name != "error") {
    task->cancel_timers_on_closed();
    series_of(task)->push_back(
        WFTaskFactory::create_timer_task(name, std::chrono::hours(1), nullptr));
  }
}

class FirstAnswerRecipe : public testing::Test {
 protected:
  FirstAnswerRecipe() { EXPECT_TRUE(clock_stands()); }

  void ask(const std::vector<std::string>& paths) {
    std::vector<std::string> urls;
    for (const std::string& path : paths)
      urls.push_back(server_.url() + path);
    ask_all(urls, kLimit, [this](const std::string* body) {
      answer_ = body ? *body : "none";
      ended_.add();
    })->start();
  }
  static bool answers(const std::string& name) {
    return eventually([&] { return WFTaskFactory::cancel_by_name(name) == 1; });
  }
  const std::string& answer() {
    EXPECT_TRUE(ended_.wait_for(1));
    return answer_;
  }

 private:
  LocalServer server_{process};
  Tally ended_;
  std::string answer_;
};

TEST_F(FirstAnswerRecipe, TheFirstCountsAndEndsTheOther) {
  ask({"/slow", "/fast"});
  ASSERT_TRUE(eventually([] { return WFTimer::count("slow") == 1; }));
  ASSERT_TRUE(answers("fast"));
  EXPECT_EQ(answer(), "fast");
  // The other connection is closed, so its server stops waiting, too.
  EXPECT_TRUE(eventually([] { return WFTimer::count("slow") == 0; }));
}

TEST_F(FirstAnswerRecipe, AnErrorIsNoAnswer) {
  ask({"/error", "/slow"});
  ASSERT_TRUE(answers("slow"));
  EXPECT_EQ(answer(), "slow");
}

TEST_F(FirstAnswerRecipe, NobodyAnswers) {
  ask({"/error", "/error"});
  EXPECT_EQ(answer(), "none");
}

TEST_F(FirstAnswerRecipe, NobodyIsAsked) {
  ask({});
  EXPECT_EQ(answer(), "none");
}

TEST_F(FirstAnswerRecipe, NobodyAnswersInTime) {
  ask({"/slow", "/fast"});
  ASSERT_TRUE(
      eventually([] { return WFTimer::count("slow") == 1 && WFTimer::count("fast") == 1; }));
  WFManualClock::advance(kLimit);
  EXPECT_EQ(answer(), "none");
}

}  // namespace
}  // namespace recipes_test
