#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
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

Tally calls;
Tally go_on;
std::atomic<bool> blocks{false};

std::string find_in_database(const std::string& key) {
  calls.add();
  if (blocks) {
    EXPECT_TRUE(go_on.wait_for(1));
  }
  return "value of " + key;
}

class BlockingRecipe : public testing::Test {
 protected:
  BlockingRecipe() { EXPECT_TRUE(clock_stands()); }
  ~BlockingRecipe() override { blocks = false; }
};

TEST_F(BlockingRecipe, AnswersWithWhatTheCallReturns) {
  Database database;
  const LocalServer server([&database](WFHttpTask* task) { database.answer(task); });
  EXPECT_EQ(ask(server.url() + "/key").body, "value of /key");
}

TEST_F(BlockingRecipe, AnswersWithoutTheCallWhenTheTimeIsOver) {
  Database database;
  const LocalServer server([&database](WFHttpTask* task) { database.answer(task); });
  const size_t before = calls.count();
  blocks = true;
  Answer answer;
  std::thread client([&] { answer = ask(server.url() + "/key"); });
  EXPECT_TRUE(calls.wait_for(before + 1));
  WFManualClock::advance(std::chrono::seconds(2));
  client.join();
  EXPECT_EQ(answer.status, 504);
  go_on.add();
}

}  // namespace
}  // namespace recipes_test
