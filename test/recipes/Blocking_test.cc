#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <system_error>
#include <thread>

#include "recipes/Recipes.h"
#include "workflow/Executor.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

namespace recipes_test {
namespace {

std::string find_in_database(const std::string& key);

// Recipe
class Database {
 public:
  Database() {
    if (executor_.init(8) != 0) throw std::system_error(errno, std::generic_category());
    queue_.init();
  }
  void answer(WFHttpTask* task) {
    auto* call = WFThreadTaskFactory<std::string, std::string>::create_thread_task(
        /*seconds=*/2, /*nanoseconds=*/0, &queue_, &executor_,
        [](const std::string* key, std::string* value) { *value = find_in_database(*key); },
        [task](WFThreadTask<std::string, std::string>* ended) {
          if (ended->get_state() == WFT_STATE_SUCCESS)
            task->get_resp()->append_output_body(*ended->get_output());
          else
            protocol::HttpUtil::set_response_status(task->get_resp(), HttpStatusGatewayTimeout);
        });
    *call->get_input() = task->get_req()->get_request_uri();
    series_of(task)->push_back(call);
  }

 private:
  ExecQueue queue_;
  Executor executor_;
};
// End of recipe

// What a call does before it returns.
std::function<void()> during_call;

std::string find_in_database(const std::string& key) {
  if (during_call) during_call();
  return "value of " + key;
}

class BlockingRecipe : public testing::Test {
 protected:
  BlockingRecipe() { EXPECT_TRUE(clock_stands()); }
  ~BlockingRecipe() override { during_call = nullptr; }
};

TEST_F(BlockingRecipe, AnswersWithWhatTheCallReturns) {
  Database database;
  const LocalServer server([&database](WFHttpTask* task) { database.answer(task); });
  EXPECT_EQ(ask(server.url() + "/key").body, "value of /key");
}

TEST_F(BlockingRecipe, AnswersWithoutTheCallWhenTheTimeIsOver) {
  Tally called;
  Tally go_on;
  during_call = [&] {
    called.add();
    EXPECT_TRUE(go_on.wait_for(1));
  };
  Database database;
  const LocalServer server([&database](WFHttpTask* task) { database.answer(task); });
  Answer answer;
  std::thread client([&] { answer = ask(server.url() + "/key"); });
  EXPECT_TRUE(called.wait_for(1));
  WFManualClock::advance(std::chrono::seconds(2));
  client.join();
  EXPECT_EQ(answer.status, 504);
  go_on.add();
}

}  // namespace
}  // namespace recipes_test
