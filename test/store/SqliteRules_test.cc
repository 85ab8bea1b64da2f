#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "support/SqliteKit.h"

namespace test_support {
namespace {

using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::ExtendRequest;
using workflow::FailedRequest;
using workflow::FinishRequest;
using workflow::ListRequest;
using workflow::LookRequest;
using workflow::RescheduleRequest;
using workflow::RunId;
using workflow::ScheduleRequest;
using workflow::StoreFailure;
using How = FinishRequest::How;

// The rules, coarsely: one case for each line of the table of verdicts and for each rule. What all
// backends have in common is tested in depth against a plain reference elsewhere.
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

  // Stores a timer that is due, and claims it.
  ClaimRequest::Claimed run(const std::string& name, int64_t lease_us = kLeaseUs) {
    ask(schedule(name, now()));
    ClaimRequest claimed = ask(claim(100, lease_us));
    EXPECT_EQ(claimed.claimed.size(), 1U);
    return claimed.claimed.at(0);
  }

  uint64_t count(const std::string& prefix) { return ask(workflow::CountRequest{prefix, 0}).count; }

  std::vector<WFStoreInfo> list(const std::string& prefix, bool failed_only = false) {
    ListRequest request;
    request.prefix = prefix;
    request.max = 100;
    request.failed_only = failed_only;
    return ask(request).timers;
  }

  FastDir directory_;
  SetClock clock_;
  workflow::StoreBackendOptions options_ = options_of(clock_);
  std::unique_ptr<workflow::SqliteBackend> backend_;
  std::string message_;
  StoreFailure failure_;
};

TEST_F(SqliteRules, AWaitingTimerIsCancelledAndNeverClaimed) {
  const uint64_t id = ask(schedule("tea", now() + kSecondUs)).timer;
  const CancelRequest cancelled = ask(cancel("tea"));
  ASSERT_EQ(cancelled.answers.size(), 1U);
  EXPECT_EQ(cancelled.answers[0].verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(cancelled.answers[0].timer, id);
  clock_.us += 2 * kSecondUs;
  EXPECT_TRUE(ask(claim()).claimed.empty());
  EXPECT_EQ(count(""), 0U);
}

TEST_F(SqliteRules, AClaimTakesWhatIsDueAndSaysWhatIsNext) {
  ask(schedule("now", now()));
  ask(schedule("later", now() + 5 * kSecondUs));
  const ClaimRequest first = ask(claim());
  ASSERT_EQ(first.claimed.size(), 1U);
  EXPECT_EQ(first.claimed[0].spec.name, "now");
  EXPECT_EQ(first.claimed[0].spec.payload, "payload of now");
  EXPECT_EQ(first.claimed[0].attempts, 1U);
  EXPECT_EQ(first.claimed[0].lease_end_us, now() + kLeaseUs);
  EXPECT_EQ(first.next_us, now() + 5 * kSecondUs);
  EXPECT_FALSE(first.more);
  clock_.us += 5 * kSecondUs - 1;
  EXPECT_TRUE(ask(claim()).claimed.empty());
  clock_.us += 1;
  EXPECT_EQ(ask(claim()).claimed.size(), 1U);
}

TEST_F(SqliteRules, AClaimKeepsToItsLimits) {
  for (int i = 0; i < 3; i++) {
    ask(schedule("old", now()));
  }
  clock_.us += kSecondUs + 1;
  for (int i = 0; i < 3; i++) {
    ask(schedule("new", now()));
  }
  ClaimRequest request = claim();
  request.kinds = {{"kind", 4, 2}, {"another", 5, 5}};
  request = ask(request);
  ASSERT_EQ(request.claimed.size(), 4U);
  EXPECT_EQ(request.claimed[0].spec.name, "new");
  EXPECT_EQ(request.claimed[2].spec.name, "new");
  EXPECT_EQ(request.claimed[3].spec.name, "old");
  EXPECT_TRUE(request.more);
}

TEST_F(SqliteRules, ARunningTimerIsMarkedByACancel) {
  const ClaimRequest::Claimed taken = run("tea");
  clock_.us += kSecondUs;
  const CancelRequest cancelled = ask(cancel("tea"));
  ASSERT_EQ(cancelled.answers.size(), 1U);
  EXPECT_EQ(cancelled.answers[0].verdict, WFStoreVerdict::kRunning);
  EXPECT_EQ(cancelled.answers[0].owner, "owner");
  EXPECT_EQ(cancelled.answers[0].fence, taken.run.fence);
  EXPECT_EQ(cancelled.answers[0].lease_left.count(), kLeaseUs - kSecondUs);
  ExtendRequest extend;
  extend.runs = {taken.run};
  extend.lease_us = kLeaseUs;
  extend = ask(extend);
  EXPECT_TRUE(extend.extended[0].live);
  EXPECT_TRUE(extend.extended[0].cancelled);
  EXPECT_EQ(extend.extended[0].lease_end_us, now() + kLeaseUs);
  EXPECT_TRUE(ask(finish(taken.run, How::kRetry, now())).accepted);
  EXPECT_EQ(ask(cancel("tea")).answers[0].outcome, WFStoreOutcome::kCancelled);
}

TEST_F(SqliteRules, ATimerWhoseLeaseIsOverIsClaimedAgainOrCancelled) {
  const ClaimRequest::Claimed first = run("tea");
  clock_.us += kLeaseUs - 1;
  EXPECT_TRUE(ask(claim()).claimed.empty());
  clock_.us += 1;
  const ClaimRequest second = ask(claim());
  ASSERT_EQ(second.claimed.size(), 1U);
  EXPECT_EQ(second.claimed[0].attempts, 2U);
  EXPECT_GT(second.claimed[0].run.fence, first.run.fence);
  EXPECT_FALSE(ask(finish(first.run)).accepted);
  clock_.us += kLeaseUs;
  EXPECT_FALSE(ask(finish(second.claimed[0].run)).accepted);
  const CancelRequest cancelled = ask(cancel("tea"));
  EXPECT_EQ(cancelled.answers[0].verdict, WFStoreVerdict::kWonAfter);
  EXPECT_EQ(cancelled.answers[0].attempts, 2U);
}

TEST_F(SqliteRules, AMarkedTimerWhoseLeaseIsOverEndsAtTheNextClaim) {
  run("tea");
  ask(cancel("tea"));
  clock_.us += kLeaseUs;
  EXPECT_TRUE(ask(claim()).claimed.empty());
  EXPECT_EQ(count(""), 0U);
  EXPECT_EQ(ask(cancel("tea")).answers[0].outcome, WFStoreOutcome::kCancelled);
}

TEST_F(SqliteRules, ADoneTimerIsRemembered) {
  const ClaimRequest::Claimed taken = run("tea");
  clock_.us += 5;
  EXPECT_TRUE(ask(finish(taken.run)).accepted);
  EXPECT_FALSE(ask(finish(taken.run)).accepted);
  const WFStoreAnswer answer = ask(cancel("tea")).answers.at(0);
  EXPECT_EQ(answer.verdict, WFStoreVerdict::kDone);
  EXPECT_EQ(answer.outcome, WFStoreOutcome::kDone);
  EXPECT_EQ(answer.timer, taken.run.timer);
  EXPECT_EQ(answer.when, std::chrono::system_clock::time_point(std::chrono::microseconds(now())));
}

TEST_F(SqliteRules, AnUnknownTimerIsUnknown) {
  const int64_t created_us = now();
  clock_.us += 5;
  for (const WFStoreAnswer& answer :
       {ask(cancel("tea")).answers.at(0), ask(reschedule("tea", now())).answers.at(0),
        ask(schedule("tea", now(), WF_TIMER_REPLACE)).answers.at(0)}) {
    EXPECT_EQ(answer.verdict, WFStoreVerdict::kUnknown);
    EXPECT_EQ(answer.when,
              std::chrono::system_clock::time_point(std::chrono::microseconds(created_us)));
  }
  EXPECT_EQ(count("tea"), 1U);
}

TEST_F(SqliteRules, AReschduleMovesWhatWaitsAndGivesARunASuccessor) {
  ask(schedule("tea", now() + kSecondUs));
  RescheduleRequest moved = ask(reschedule("tea", now()));
  EXPECT_EQ(moved.answers.at(0).verdict, WFStoreVerdict::kWon);
  const ClaimRequest taken = ask(claim());
  ASSERT_EQ(taken.claimed.size(), 1U);

  moved = ask(reschedule("tea", now() + 7));
  EXPECT_EQ(moved.answers.at(0).verdict, WFStoreVerdict::kAfterRun);
  moved = ask(reschedule("tea", now() + 3));
  EXPECT_EQ(moved.answers.at(0).verdict, WFStoreVerdict::kAfterRun);
  EXPECT_EQ(count("tea"), 2U);
  EXPECT_EQ(list("tea").at(1).stage, WFStoreStage::kBlocked);
  clock_.us += 10;
  EXPECT_TRUE(ask(claim()).claimed.empty());
  EXPECT_TRUE(ask(finish(taken.claimed[0].run, How::kDone, now() + kSecondUs)).accepted);
  const ClaimRequest successor = ask(claim());
  ASSERT_EQ(successor.claimed.size(), 1U);
  EXPECT_EQ(successor.claimed[0].due_us, now() - 7);
  EXPECT_EQ(successor.claimed[0].spec.payload, "payload of tea");
  EXPECT_EQ(count("tea"), 1U);

  clock_.us += kLeaseUs;
  moved = ask(reschedule("tea", now()));
  EXPECT_EQ(moved.answers.at(0).verdict, WFStoreVerdict::kWonAfter);
  EXPECT_EQ(ask(claim()).claimed.at(0).attempts, 1U);
}

TEST_F(SqliteRules, AReplacementWaitsForTheRunThatIsUnderWay) {
  const ClaimRequest::Claimed taken = run("tea");
  ask(schedule("tea", now() + kSecondUs));
  const ScheduleRequest replaced = ask(schedule("tea", now(), WF_TIMER_REPLACE));
  ASSERT_EQ(replaced.answers.size(), 2U);
  EXPECT_EQ(replaced.answers[0].verdict, WFStoreVerdict::kAfterRun);
  EXPECT_EQ(replaced.answers[1].verdict, WFStoreVerdict::kWon);
  const ScheduleRequest again = ask(schedule("tea", now(), WF_TIMER_REPLACE));
  ASSERT_EQ(again.answers.size(), 1U);
  EXPECT_EQ(count("tea"), 2U);
  EXPECT_TRUE(ask(claim()).claimed.empty());
  EXPECT_TRUE(ask(finish(taken.run, How::kRetry, now())).accepted);
  // It runs once more, since it was not acknowledged, and goes before the other.
  const ClaimRequest retried = ask(claim());
  ASSERT_EQ(retried.claimed.size(), 1U);
  EXPECT_EQ(retried.claimed[0].run.timer, taken.run.timer);
  EXPECT_EQ(retried.claimed[0].attempts, 2U);
  ask(finish(retried.claimed[0].run));
  EXPECT_EQ(ask(claim()).claimed.at(0).run.timer, again.timer);
}

TEST_F(SqliteRules, KeepRefusesASecondTimer) {
  ask(schedule("tea", now(), WF_TIMER_KEEP));
  EXPECT_EQ(failure_.error, 0);
  EXPECT_EQ(ask(schedule("tea", now(), WF_TIMER_KEEP)).timer, 0U);
  EXPECT_EQ(failure_.error, EEXIST);
}

TEST_F(SqliteRules, ARecurringTimerGoesOn) {
  ScheduleRequest recurring = schedule("tea", now());
  recurring.spec.repeat = "each second";
  ask(recurring);
  ClaimRequest taken = ask(claim());
  EXPECT_TRUE(ask(finish(taken.claimed.at(0).run, How::kDone, now() + kSecondUs)).accepted);
  clock_.us += kSecondUs;
  taken = ask(claim());
  ASSERT_EQ(taken.claimed.size(), 1U);
  EXPECT_EQ(taken.claimed[0].attempts, 1U);
  EXPECT_EQ(taken.claimed[0].due_us, now());
  EXPECT_EQ(taken.claimed[0].spec.repeat, "each second");
  FinishRequest given_up = finish(taken.claimed[0].run, How::kFailed, now() + kSecondUs);
  given_up.reason = "no water";
  EXPECT_TRUE(ask(given_up).accepted);
  ASSERT_EQ(list("", true).size(), 1U);
  EXPECT_EQ(list("", true)[0].reason, "no water");
  EXPECT_EQ(count(""), 2U);
}

TEST_F(SqliteRules, FailedTimersAreListedRetriedAndRemoved) {
  for (int i = 0; i < 2; i++) {
    ask(finish(run("tea").run, How::kFailed));
  }
  const WFStoreAnswer answer = ask(cancel("tea")).answers.at(0);
  EXPECT_EQ(answer.verdict, WFStoreVerdict::kDone);
  EXPECT_EQ(answer.outcome, WFStoreOutcome::kFailed);
  EXPECT_TRUE(ask(claim()).claimed.empty());
  EXPECT_EQ(ask(FailedRequest{"tea", false, 0}).count, 2U);
  const ClaimRequest taken = ask(claim());
  ASSERT_EQ(taken.claimed.size(), 2U);
  EXPECT_EQ(taken.claimed[0].attempts, 1U);
  ask(finish(taken.claimed[0].run, How::kFailed));
  ask(finish(taken.claimed[1].run, How::kMissed));
  EXPECT_EQ(ask(FailedRequest{"tea", true, 0}).count, 1U);
  EXPECT_EQ(count(""), 0U);
  EXPECT_EQ(ask(cancel("tea")).answers.at(0).outcome, WFStoreOutcome::kMissed);
}

TEST_F(SqliteRules, ListsGoOnWhereTheyEnded) {
  for (const char* name : {"b", "a", "b", "ab", "c", "b"}) {
    ask(schedule(name, now()));
  }
  std::vector<std::pair<std::string, uint64_t>> seen;
  ListRequest request;
  request.max = 2;
  do {
    request.timers.clear();
    request = ask(request);
    for (const WFStoreInfo& info : request.timers) {
      seen.emplace_back(info.name, info.timer);
    }
    request.after_name = seen.back().first;
    request.after_timer = seen.back().second;
  } while (request.more);
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, uint64_t>>{
                      {"a", 2}, {"ab", 4}, {"b", 1}, {"b", 3}, {"b", 6}, {"c", 5}}));
  request = ListRequest();
  request.prefix = "a";
  request.after_name = "a";
  request.max = 10;
  EXPECT_EQ(ask(request).timers.size(), 2U);
  EXPECT_EQ(count("b"), 3U);
  EXPECT_EQ(count("\xff"), 0U);
}

TEST_F(SqliteRules, ALookCountsWhatIsOverdue) {
  ask(schedule("a", now()));
  ScheduleRequest other = schedule("b", now());
  other.spec.kind = "other";
  ask(other);
  ask(schedule("c", now() + 5));
  LookRequest look;
  look.handled = {"kind"};
  look.overdue_us = 10;
  clock_.us += 11;
  look = ask(look);
  EXPECT_EQ(look.stored, 3U);
  EXPECT_EQ(look.overdue, 2U);
  EXPECT_EQ(look.unhandled, 1U);
}

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

TEST_F(SqliteRules, OnlyTheLastAnswersOfASessionAreRemembered) {
  options_.remembered = 3;
  open();
  for (uint64_t i = 1; i <= 5; i++) {
    ask(schedule("tea", now()), 10 * i);
  }
  for (uint64_t i = 1; i <= 5; i++) {
    AskRequest asked;
    asked.asked = {1, 10 * i};
    EXPECT_EQ(ask(asked).found, i > 2) << i;
    EXPECT_EQ(failure_.error, i > 2 ? 0 : ENODATA) << i;
  }
}

TEST_F(SqliteRules, OnlyTheLastEndsAreRemembered) {
  options_.remembered = 3;
  open();
  for (int i = 0; i < 5; i++) {
    ask(schedule("tea" + std::to_string(i), now()));
    clock_.us += 1;
    ask(cancel("tea" + std::to_string(i)));
  }
  for (int i = 0; i < 5; i++) {
    const WFStoreAnswer answer = ask(cancel("tea" + std::to_string(i))).answers.at(0);
    EXPECT_EQ(answer.verdict, i > 1 ? WFStoreVerdict::kDone : WFStoreVerdict::kUnknown) << i;
    if (i <= 1) {
      EXPECT_EQ(answer.when,
                std::chrono::system_clock::time_point(std::chrono::microseconds(now() - 2)));
    }
  }
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

TEST_F(SqliteRules, RequestsOfABatchAreCarriedOutInTheirOrder) {
  workflow::StoreRequest requests[] = {
      make_request(schedule("tea", now()), 1), make_request(schedule("tea", 0, WF_TIMER_KEEP), 2),
      make_request(cancel("tea"), 3), make_request(schedule("tea", now(), WF_TIMER_KEEP), 4),
      make_request(schedule("tea", now()), 1)};
  std::vector<workflow::StoreRequest*> pointers;
  for (workflow::StoreRequest& request : requests) {
    pointers.push_back(&request);
  }
  EXPECT_TRUE(backend_->execute(pointers));
  EXPECT_EQ(requests[0].failure.error, 0);
  EXPECT_EQ(requests[1].failure.error, EEXIST);
  EXPECT_EQ(std::get<CancelRequest>(requests[2].what).answers.size(), 1U);
  EXPECT_EQ(requests[3].failure.error, 0);
  EXPECT_EQ(std::get<ScheduleRequest>(requests[4].what).timer,
            std::get<ScheduleRequest>(requests[0].what).timer);
  EXPECT_EQ(count(""), 1U);
}

TEST_F(SqliteRules, AnEmptyClaimWritesNothing) {
  ask(claim());
  const auto size = std::filesystem::file_size(directory_.path("timers-wal"));
  ask(claim());
  EXPECT_EQ(std::filesystem::file_size(directory_.path("timers-wal")), size);
}

}  // namespace
}  // namespace test_support
