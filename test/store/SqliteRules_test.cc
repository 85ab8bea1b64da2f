#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

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

TEST_F(SqliteRules, AnEmptyClaimWritesNothing) {
  ask(claim());
  const auto size = std::filesystem::file_size(directory_.path("timers-wal"));
  ask(claim());
  EXPECT_EQ(std::filesystem::file_size(directory_.path("timers-wal")), size);
}

}  // namespace
}  // namespace test_support
