#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "store/SqliteAnswers.h"
#include "store/SqliteFile.h"
#include "store/SqliteTimers.h"
#include "support/SqliteKit.h"

namespace test_support {
namespace {

// Everything that a backend prepares, over an open file.
class SqlitePlans : public ::testing::Test {
 protected:
  SqlitePlans() {
    std::string message;
    EXPECT_EQ(file_.create(clock_.us, &message), 0) << message;
    EXPECT_EQ(file_.open(&message), 0) << message;
  }

  // How SQLite carries out a statement, one step in each line.
  std::vector<std::string> plan(const std::string& sql) {
    std::vector<std::string> steps;
    const std::string explain = "EXPLAIN QUERY PLAN " + sql;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(
        sqlite3_prepare_v2(file_.connection().handle(), explain.c_str(), -1, &statement, nullptr),
        SQLITE_OK)
        << sql;
    while (sqlite3_step(statement) == SQLITE_ROW) {
      steps.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(statement, 3)));
    }
    sqlite3_finalize(statement);
    return steps;
  }

  SetClock clock_;
  FastDir directory_;
  workflow::SqliteFile file_{directory_.path("timers"), {}};
};

// Carries out everything, so that everything is prepared, and looks at each statement.
TEST_F(SqlitePlans, EachStatementUsesItsIndex) {
  using workflow::FinishRequest;
  workflow::SqliteConnection& connection = file_.connection();
  workflow::SqliteMeta meta(connection);
  workflow::SqliteTimers timers(connection, meta, 1);
  workflow::SqliteAnswers answers(connection, meta, 1);
  connection.run("BEGIN IMMEDIATE");
  meta.load();
  timers.begin();
  answers.begin(clock_.us);
  workflow::StoreFailure failure;
  const auto store = [&](WFTimerPolicy policy, uint64_t number) {
    workflow::StoreRequest request = make_request(schedule("tea", clock_.us, policy), number);
    answers.repeat(request);
    timers.carry_out(std::get<workflow::ScheduleRequest>(request.what), request.failure, clock_.us);
    answers.add(request);
  };
  const auto run = [&](auto request) {
    timers.carry_out(request, clock_.us);
    return request;
  };
  for (uint64_t i = 1; i <= 4; i++) {
    store(i % 2 == 0 ? WF_TIMER_KEEP : WF_TIMER_REPLACE, i);
    store(WF_TIMER_APPEND, 10 + i);
  }
  store(WF_TIMER_APPEND, 20);
  store(WF_TIMER_APPEND, 21);
  workflow::StoreRequest old = make_request(cancel("tea"), 2);
  answers.repeat(old);
  workflow::AskRequest ask;
  ask.asked = {1, 3};
  answers.carry_out(ask, failure);
  run(cancel("nobody"));
  const auto taken = run(claim()).claimed;
  ASSERT_GE(taken.size(), 4U);
  run(reschedule("tea", clock_.us));
  run(reschedule("tea", clock_.us));
  workflow::ExtendRequest extend;
  extend.runs = {taken[0].run};
  run(extend);
  run(cancel("tea", 1));
  run(finish(taken[0].run));
  run(finish(taken[1].run, FinishRequest::How::kFailed, clock_.us));
  run(finish(taken[2].run, FinishRequest::How::kRetry, clock_.us));
  run(finish(taken[3].run, FinishRequest::How::kDone, clock_.us));
  workflow::CountRequest count;
  count.prefix = "t";
  timers.carry_out(count);
  for (const bool failed_only : {false, true}) {
    workflow::ListRequest list;
    list.failed_only = failed_only;
    list.max = 100;
    run(list);
    list.after_name = "a";
    run(list);
  }
  workflow::LookRequest look;
  run(look);
  run(workflow::FailedRequest{"tea", false, 0});
  for (uint64_t session = 2; session < 300; session++) {
    answers.know(session);
  }
  timers.save();
  answers.save();
  meta.save();
  ASSERT_TRUE(connection.run("COMMIT")) << connection.message();

  // Tables that are read as a whole because they are small, and what need not be read.
  const std::vector<std::string> small = {"SCAN kinds", "SCAN sessions", "SCAN (subquery",
                                          "SCAN done"};
  int seen = 0;
  int of_queue = 0;
  for (sqlite3_stmt* each = sqlite3_next_stmt(connection.handle(), nullptr); each;
       each = sqlite3_next_stmt(connection.handle(), each)) {
    const std::string sql = sqlite3_sql(each);
    seen++;
    for (const std::string& step : plan(sql)) {
      // The oldest row of `done` is the first one.
      const bool is_first_row = sql.find("FROM done ORDER BY id LIMIT 1") != std::string::npos;
      const bool is_small =
          std::any_of(small.begin(), small.end(),
                      [&step](const std::string& start) { return step.starts_with(start); });
      EXPECT_TRUE(!step.starts_with("SCAN") ||
                  (is_small && (is_first_row || !step.starts_with("SCAN done"))))
          << sql << "\n"
          << step;
      // What is due next, and whose lease has ended, is one question to one index.
      if (sql.find("kind = ? AND wake") != std::string::npos && step.starts_with("SEARCH")) {
        EXPECT_NE(step.find("INDEX timers_wake"), std::string::npos) << sql << "\n" << step;
        of_queue++;
      }
      EXPECT_TRUE(step.find("TEMP B-TREE") == std::string::npos ||
                  sql.find("FROM sessions") != std::string::npos)
          << sql << "\n"
          << step;
    }
  }
  EXPECT_GT(seen, 40);
  EXPECT_GE(of_queue, 5);
}

}  // namespace
}  // namespace test_support
