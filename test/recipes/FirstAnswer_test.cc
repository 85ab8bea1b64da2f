#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recipes/Recipes.h"
#include "workflow/HttpUtil.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace recipes_test {
namespace {

// Recipe
using AnswerCallback = std::function<void(const std::string* body)>;  // Null: nobody has answered.

WFSelectorTask* ask_all(const std::vector<std::string>& urls, std::chrono::milliseconds limit,
                        AnswerCallback callback) {
  const auto bodies = std::make_shared<std::vector<std::string>>(urls.size());
  WFSelectorTask* first = WFTaskFactory::create_selector_task(
      urls.size(), [bodies, callback = std::move(callback)](WFSelectorTask* task) {
        callback(static_cast<const std::string*>(task->get_message()));
      });
  for (size_t i = 0; i < urls.size(); i++) {
    WFHttpTask* request = WFTaskFactory::create_http_task(
        urls[i], /*redirect_max=*/5, /*retry_max=*/0, [first, bodies, i](WFHttpTask* task) {
          const bool answered = task->get_state() == WFT_STATE_SUCCESS &&
                                std::strcmp(task->get_resp()->get_status_code(), "200") == 0;
          std::string& body = (*bodies)[i];
          if (answered) body = protocol::HttpUtil::decode_chunked_body(task->get_resp());
          first->submit(answered ? &body : nullptr);
        });
    with_deadline(request, limit)->start();
  }
  return first;
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

TEST_F(FirstAnswerRecipe, TheFirstCounts) {
  ask({"/slow", "/fast"});
  ASSERT_TRUE(answers("fast"));
  EXPECT_EQ(answer(), "fast");
  EXPECT_TRUE(answers("slow"));
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
