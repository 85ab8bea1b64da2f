#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "store/SqliteFile.h"
#include "store/SqliteStatement.h"
#include "store/SqliteStore.h"
#include "support/Eventually.h"
#include "support/SqliteKit.h"

namespace test_support {
namespace {

using workflow::AskRequest;
using workflow::ClaimRequest;
using workflow::StoreFailure;

// What a store keeps over a restart, and how much. StoreRules, StoreVerdicts and BackendRules have
// what all backends have in common.
class SqliteRules : public ::testing::Test {
 protected:
  SqliteRules() { open(); }

  void open() {
    backend_.reset();
    backend_ = open_backend(directory_.path("timers"), options_, {}, &message_);
    ASSERT_TRUE(backend_) << message_;
  }

  template <class WHAT>
  WHAT ask(WHAT what, uint64_t number = 0) {
    failure_ = StoreFailure();
    return carry_out(*backend_, std::move(what), number, 1, &failure_);
  }

  // Closes the store, and lets `what` look into its file.
  void with_file(const std::function<void(workflow::SqliteConnection&)>& what) {
    backend_.reset();
    workflow::SqliteFile file(directory_.path("timers"), {});
    ASSERT_EQ(file.open(&message_), 0) << message_;
    what(file.connection());
    EXPECT_EQ(file.connection().code(), SQLITE_OK);
    file.close();
  }

  int64_t now() const { return clock_.us; }

  uint64_t count(const std::string& prefix) { return ask(workflow::CountRequest{prefix, 0}).count; }

  FastDir directory_;
  SetClock clock_;
  workflow::StoreBackendOptions options_ = options_of(clock_);
  std::unique_ptr<workflow::SqliteBackend> backend_;
  std::string message_;
  StoreFailure failure_;
};

TEST_F(SqliteRules, AnAnswerIsRememberedOverARestart) {
  const uint64_t id = ask(schedule("tea", now()), 1).timer;
  ask(schedule("tea", now(), WF_TIMER_KEEP), 2);
  EXPECT_EQ(failure_.error, EEXIST);
  ask(cancel("tea"), 3);
  open();
  EXPECT_EQ(ask(schedule("tea", now()), 1).timer, id);
  EXPECT_EQ(count(""), 0U);
  ask(schedule("tea", now(), WF_TIMER_KEEP), 2);
  EXPECT_EQ(failure_.error, EEXIST);
  AskRequest asked;
  asked.asked = {1, 3};
  asked = ask(asked);
  EXPECT_TRUE(asked.found);
  ASSERT_EQ(asked.result.answers.size(), 1U);
  EXPECT_EQ(asked.result.answers[0].verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(asked.result.answers[0].timer, id);
  EXPECT_EQ(asked.result.receipt.level, WFStoreReceipt::kFile);
}

TEST_F(SqliteRules, NumbersAndFencesGoOnAfterARestart) {
  uint64_t last_timer = 0;
  uint64_t last_fence = 0;
  for (int i = 0; i < 3; i++) {
    const uint64_t timer = ask(schedule("tea", now())).timer;
    const ClaimRequest claimed = ask(claim());
    ASSERT_EQ(claimed.claimed.size(), 1U);
    EXPECT_GT(timer, last_timer);
    EXPECT_GT(claimed.claimed[0].run.fence, last_fence);
    last_timer = timer;
    last_fence = claimed.claimed[0].run.fence;
    EXPECT_TRUE(ask(finish(claimed.claimed[0].run)).accepted);
    open();
    EXPECT_EQ(count(""), 0U);
  }
}

TEST_F(SqliteRules, AnIdThatWasAskedForInVainIsUsedUp) {
  AskRequest asked;
  asked.asked = {1, 7};
  EXPECT_FALSE(ask(asked).found);
  EXPECT_EQ(failure_.error, 0);
  open();
  ask(schedule("tea", now()), 7);
  EXPECT_EQ(failure_.error, ECANCELED);
  EXPECT_EQ(count(""), 0U);
  EXPECT_FALSE(ask(asked).found);
  EXPECT_EQ(failure_.error, 0);
}

TEST_F(SqliteRules, SessionsAreForgottenWhenThereAreVeryMany) {
  AskRequest asked;
  asked.asked = {5000, 1};
  carry_out(*backend_, schedule("tea", now()), 1, 5000);
  for (uint64_t session = 100; session < 500; session++) {
    clock_.us += 1;
    carry_out(*backend_, schedule("tea", now()), 1, session);
  }
  EXPECT_FALSE(ask(asked).found);
  EXPECT_EQ(failure_.error, ENODATA);
  asked.asked = {499, 1};
  EXPECT_TRUE(ask(asked).found);
  // What a session that was forgotten asks from then on is remembered.
  carry_out(*backend_, schedule("tea", now()), 2, 5000);
  asked.asked = {5000, 2};
  EXPECT_TRUE(ask(asked).found);
}

// Answers do not show whether what is forgotten takes room still.
TEST_F(SqliteRules, WhatIsForgottenIsRemoved) {
  options_.remembered = 10;
  open();
  for (uint64_t i = 1; i <= 300; i++) {
    ask(schedule("timer " + std::to_string(i), now()), 2 * i);
    ask(cancel("timer " + std::to_string(i)), 2 * i + 1);
    ASSERT_EQ(failure_.error, 0);
  }
  with_file([](workflow::SqliteConnection& file) {
    EXPECT_EQ(file.number("SELECT count(*) FROM done"), 10);
    EXPECT_EQ(file.number("SELECT count(*) FROM answers"), 10);
    EXPECT_EQ(file.number("SELECT count(*) FROM timers"), 0);
  });
}

TEST_F(SqliteRules, TheSessionThatIsInUseIsNotForgottenWhenTheClockIsSetBack) {
  constexpr uint64_t kSessions = 300;
  for (uint64_t session = 2; session <= kSessions; session++) {
    carry_out(*backend_, schedule("tea", now()), 1, session);
    clock_.us += kSecondUs;
  }
  clock_.us -= 2 * kSessions * kSecondUs;
  const auto found = [this](uint64_t session, uint64_t number) {
    AskRequest request;
    request.asked = {session, number};
    return ask(request).found;
  };
  // New ones, each of which is used again after the next ones have come.
  for (uint64_t session = kSessions + 1; session <= kSessions + 20; session++) {
    carry_out(*backend_, schedule("tea", now()), 1, session);
    EXPECT_TRUE(found(session, 1)) << session;
    EXPECT_TRUE(found(std::max(session - 5, kSessions + 1), 1)) << session;
  }
  EXPECT_TRUE(found(kSessions, 1));
  EXPECT_FALSE(found(2, 1));
}

// So that nobody has to wait with a change while it counts.
TEST_F(SqliteRules, ALookIsATransactionOfItsOwn) {
  std::vector<workflow::StoreRequest> all(4);
  all[2].what = workflow::LookRequest();
  std::vector<workflow::StoreRequest*> requests;
  for (workflow::StoreRequest& request : all) {
    requests.push_back(&request);
  }
  const std::span<workflow::StoreRequest* const> span(requests);
  EXPECT_EQ(workflow::SqliteStore::group_size(span), 2U);
  EXPECT_EQ(workflow::SqliteStore::group_size(span.subspan(2)), 1U);
  EXPECT_EQ(workflow::SqliteStore::group_size(span.subspan(3)), 1U);
}

TEST_F(SqliteRules, ManyDueTimersAreCountedFromTimeToTime) {
  constexpr uint64_t kMany = 100'001;  // more than it counts each time
  {
    workflow::SqliteFile file(directory_.path("timers"), {});
    ASSERT_EQ(file.open(&message_), 0) << message_;
    ASSERT_TRUE(file.connection().run("INSERT INTO kinds(id, name) VALUES(7, 'kind')"));
    workflow::SqliteStatement insert(
        file.connection(),
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
        " INSERT INTO timers SELECT 1000 + n, 'tea', 7, n, n, 0, 0, NULL, 0, -1, NULL, 0, NULL, "
        "NULL, NULL"
        " FROM numbers");
    ASSERT_TRUE(insert.run(kMany)) << file.connection().message();
  }
  EXPECT_EQ(ask(workflow::LookRequest()).due, kMany);
  ask(schedule("more", now()));
  EXPECT_EQ(failure_.error, 0) << failure_.message;
  EXPECT_TRUE(eventually([&] { return ask(workflow::LookRequest()).due == kMany + 1; }));
}

TEST_F(SqliteRules, AFileOfAnOlderVersionGetsTheIndexOfLeases) {
  with_file([](workflow::SqliteConnection& file) { file.run("DROP INDEX timers_leased"); });
  open();
  with_file([](workflow::SqliteConnection& file) {
    EXPECT_EQ(file.number("SELECT count(*) FROM sqlite_schema WHERE name = 'timers_leased'"), 1);
  });
}

TEST_F(SqliteRules, AnEmptyClaimWritesNothing) {
  ask(claim());
  const auto size = std::filesystem::file_size(directory_.path("timers-wal"));
  ask(claim());
  EXPECT_EQ(std::filesystem::file_size(directory_.path("timers-wal")), size);
}

}  // namespace
}  // namespace test_support
