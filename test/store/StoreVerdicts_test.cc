#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/BackendKit.h"
#include "store/FaultyBackend.h"

// The table of docs/store.md: what a store says about a timer, by the state that it finds it in.

namespace {

using store_test::FaultyBackend;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::FinishRequest;
using workflow::RescheduleRequest;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

constexpr int64_t kDelayUs = 60'000'000;

class StoreVerdicts : public store_test::RulesFixture {
 protected:
  static void expect_one(const std::vector<WFStoreAnswer>& answers, WFStoreVerdict verdict,
                         uint64_t timer, unsigned attempts) {
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].verdict, verdict);
    EXPECT_EQ(answers[0].timer, timer);
    EXPECT_EQ(answers[0].attempts, attempts);
  }

  static void expect_run(const WFStoreAnswer& answer,
                         const workflow::ClaimRequest::Claimed& claimed, int64_t lease_left_us) {
    EXPECT_EQ(answer.owner, "worker");
    EXPECT_EQ(answer.fence, claimed.run.fence);
    EXPECT_EQ(answer.lease_left.count(), lease_left_us);
  }

  static void expect_done(const std::vector<WFStoreAnswer>& answers, uint64_t timer,
                          int64_t when_us) {
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].verdict, WFStoreVerdict::kDone);
    EXPECT_EQ(answers[0].timer, timer);
    EXPECT_EQ(answers[0].outcome, WFStoreOutcome::kDone);
    EXPECT_EQ(answers[0].when.time_since_epoch(), std::chrono::microseconds(when_us));
  }

  static void expect_unknown(const std::vector<WFStoreAnswer>& answers, int64_t opened_us) {
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].verdict, WFStoreVerdict::kUnknown);
    EXPECT_EQ(answers[0].timer, 0U);
    EXPECT_GE(answers[0].when.time_since_epoch(),
              std::chrono::microseconds(store_test::SetClock::kStartUs));
    EXPECT_LE(answers[0].when.time_since_epoch(), std::chrono::microseconds(opened_us));
  }

  // Ends a timer of that name, and so many others that the store has forgotten it in each shard.
  // Returns the time of the last end.
  int64_t forget(const std::string& name) {
    reopen(1);
    schedule(name, kDelayUs);
    cancel(name);
    for (int i = 0; i < 100; i++) {
      const std::string other = "other " + std::to_string(i);
      schedule(other, kDelayUs);
      cancel(other);
    }
    move_us(1);  // it remembers what has ended since then
    return now_us();
  }

  // A timer that was claimed.
  workflow::ClaimRequest::Claimed running(const std::string& name) {
    schedule(name, 0);
    return claim_one();
  }
  // A timer that has begun twice, and has lost its lease each time.
  uint64_t lost_twice(const std::string& name) {
    const uint64_t timer = running(name).run.timer;
    move_us(kLeaseUs);
    const auto again = claim_one();
    EXPECT_EQ(again.run.timer, timer);
    EXPECT_EQ(again.attempts, 2U);
    end_lease(again);
    return timer;
  }
};

TEST_P(StoreVerdicts, CancelOfAWaitingTimerIsWonAndItNeverStarts) {
  const uint64_t timer = schedule("a", kDelayUs).timer;
  expect_one(cancel("a"), WFStoreVerdict::kWon, timer, 0);
  move_us(kDelayUs);
  EXPECT_TRUE(claim().claimed.empty());
}

TEST_P(StoreVerdicts, RescheduleOfAWaitingTimerIsWonAndItStartsAtTheNewTime) {
  const uint64_t timer = schedule("a", 0).timer;
  expect_one(reschedule("a", kDelayUs), WFStoreVerdict::kWon, timer, 0);
  move_us(kDelayUs - 1);
  EXPECT_TRUE(claim().claimed.empty());
  move_us(1);
  const auto claimed = claim_one();
  EXPECT_EQ(claimed.run.timer, timer);
  EXPECT_EQ(claimed.due_us, now_us());
}

TEST_P(StoreVerdicts, ReplaceOfAWaitingTimerIsWonAndOnlyTheNewOneStarts) {
  const uint64_t timer = schedule("a", 0).timer;
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_one(replaced.answers, WFStoreVerdict::kWon, timer, 0);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, ReplaceOfTwoWaitingTimersHasTwoAnswers) {
  const uint64_t first = schedule("a", 0).timer;
  const uint64_t second = schedule("a", 0).timer;
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  ASSERT_EQ(replaced.answers.size(), 2U);
  expect_one({replaced.answers[0]}, WFStoreVerdict::kWon, first, 0);
  expect_one({replaced.answers[1]}, WFStoreVerdict::kWon, second, 0);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, CancelOfARunningTimerTellsItsOwnerAndNoRetryFollows) {
  const auto claimed = running("a");
  move_us(7);
  const std::vector<WFStoreAnswer> answers = cancel("a");
  expect_one(answers, WFStoreVerdict::kRunning, claimed.run.timer, 1);
  expect_run(answers.at(0), claimed, kLeaseUs - 7);
  EXPECT_TRUE(extend(claimed.run, kLeaseUs).cancelled);
  EXPECT_TRUE(finish(claimed.run, FinishRequest::How::kRetry, now_us()));
  EXPECT_TRUE(list().empty());
  EXPECT_EQ(cancel("a").at(0).outcome, WFStoreOutcome::kCancelled);
}

TEST_P(StoreVerdicts, RescheduleOfARunningTimerMakesASuccessorThatStartsAfterTheRun) {
  const auto claimed = running("a");
  const std::vector<WFStoreAnswer> answers = reschedule("a", 0);
  expect_one(answers, WFStoreVerdict::kAfterRun, claimed.run.timer, 1);
  expect_run(answers.at(0), claimed, kLeaseUs);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(acknowledge(claimed.run));
  const auto successor = claim_one();
  EXPECT_GT(successor.run.timer, claimed.run.timer);
  EXPECT_EQ(successor.spec.payload, claimed.spec.payload);
  EXPECT_EQ(successor.attempts, 1U);
}

TEST_P(StoreVerdicts, ReplaceOfARunningTimerStartsTheNewOneAfterTheRun) {
  const auto claimed = running("a");
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_one(replaced.answers, WFStoreVerdict::kAfterRun, claimed.run.timer, 1);
  expect_run(replaced.answers.at(0), claimed, kLeaseUs);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, CancelAfterTheLeaseIsWonAndSaysThatARunBegan) {
  const auto claimed = running("a");
  end_lease(claimed);
  expect_one(cancel("a"), WFStoreVerdict::kWonAfter, claimed.run.timer, 1);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreVerdicts, RescheduleAfterTheLeaseIsWonAndTheTimerBeginsAnew) {
  const auto claimed = running("a");
  end_lease(claimed);
  expect_one(reschedule("a", kDelayUs), WFStoreVerdict::kWonAfter, claimed.run.timer, 1);
  EXPECT_TRUE(claim().claimed.empty());
  move_us(kDelayUs);
  const auto again = claim_one();
  EXPECT_EQ(again.run.timer, claimed.run.timer);
  EXPECT_EQ(again.attempts, 1U);
}

TEST_P(StoreVerdicts, ReplaceAfterTheLeaseIsWonAndOnlyTheNewOneStarts) {
  const auto claimed = running("a");
  end_lease(claimed);
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_one(replaced.answers, WFStoreVerdict::kWonAfter, claimed.run.timer, 1);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, CancelAfterTwoLostLeasesSaysThatTwoRunsBegan) {
  const uint64_t timer = lost_twice("a");
  expect_one(cancel("a"), WFStoreVerdict::kWonAfter, timer, 2);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreVerdicts, RescheduleAfterTwoLostLeasesSaysThatTwoRunsBeganAndCountsAnew) {
  const uint64_t timer = lost_twice("a");
  expect_one(reschedule("a", kDelayUs), WFStoreVerdict::kWonAfter, timer, 2);
  EXPECT_TRUE(claim().claimed.empty());
  move_us(kDelayUs);
  const auto again = claim_one();
  EXPECT_EQ(again.run.timer, timer);
  EXPECT_EQ(again.attempts, 1U);
  end_lease(again);
  expect_one(cancel("a"), WFStoreVerdict::kWonAfter, timer, 1);
}

TEST_P(StoreVerdicts, ReplaceAfterTwoLostLeasesSaysThatTwoRunsBegan) {
  const uint64_t timer = lost_twice("a");
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_one(replaced.answers, WFStoreVerdict::kWonAfter, timer, 2);
  const auto claimed = claim_one();
  EXPECT_EQ(claimed.run.timer, replaced.timer);
  EXPECT_EQ(claimed.attempts, 1U);
}

TEST_P(StoreVerdicts, CancelOfADoneTimerSaysHowAndWhenItEnded) {
  const auto claimed = running("a");
  move_us(5);
  const int64_t when_us = now_us();
  EXPECT_TRUE(acknowledge(claimed.run));
  move_us(kDelayUs);
  expect_done(cancel("a"), claimed.run.timer, when_us);
}

TEST_P(StoreVerdicts, RescheduleOfADoneTimerStoresNothing) {
  const auto claimed = running("a");
  const int64_t when_us = now_us();
  EXPECT_TRUE(acknowledge(claimed.run));
  expect_done(reschedule("a", 0), claimed.run.timer, when_us);
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreVerdicts, ReplaceOfADoneTimerStoresTheNewOne) {
  const auto claimed = running("a");
  const int64_t when_us = now_us();
  EXPECT_TRUE(acknowledge(claimed.run));
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_done(replaced.answers, claimed.run.timer, when_us);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, CancelOfATimerThatNeverWasIsUnknown) {
  const int64_t opened_us = now_us();
  move_us(kDelayUs);
  expect_unknown(cancel("a"), opened_us);
}

TEST_P(StoreVerdicts, RescheduleOfATimerThatNeverWasIsUnknownAndStoresNothing) {
  const int64_t opened_us = now_us();
  expect_unknown(reschedule("a", 0), opened_us);
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreVerdicts, ReplaceOfATimerThatNeverWasIsUnknownAndStoresTheNewOne) {
  const int64_t opened_us = now_us();
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_unknown(replaced.answers, opened_us);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreVerdicts, CancelOfAForgottenTimerIsUnknown) {
  const int64_t ended_us = forget("a");
  const std::vector<WFStoreAnswer> answers = cancel("a");
  expect_unknown(answers, ended_us);
  EXPECT_EQ(answers.at(0).when.time_since_epoch(), std::chrono::microseconds(ended_us));
}

TEST_P(StoreVerdicts, RescheduleOfAForgottenTimerIsUnknownAndStoresNothing) {
  const int64_t ended_us = forget("a");
  expect_unknown(reschedule("a", 0), ended_us);
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreVerdicts, ReplaceOfAForgottenTimerIsUnknownAndStoresTheNewOne) {
  const int64_t ended_us = forget("a");
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  expect_unknown(replaced.answers, ended_us);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

// The last row: the answer is lost, before or after the request was carried out. The same id has
// the one true answer afterwards.
class StoreVerdictsInDoubt : public StoreVerdicts {
 protected:
  void SetUp() override {
    auto faulty = std::make_unique<FaultyBackend>(std::move(backend_));
    faulty_ = faulty.get();
    backend_ = std::move(faulty);
  }

  // Carries out the request with an id, and loses the answer.
  template <class WHAT>
  void lose(const WHAT& what, FaultyBackend::Fault fault) {
    workflow::StoreRequest request;
    request.what = what;
    request.id = {kSession, ++last_id_};
    workflow::StoreRequest* const requests[] = {&request};
    faulty_->fail_next(fault);
    EXPECT_FALSE(backend_->execute(requests));
    EXPECT_TRUE(request.failure.in_doubt);
    std::string message;
    EXPECT_EQ(backend_->reopen(&message), 0) << message;
  }

  AskRequest ask_for_lost() {
    AskRequest request;
    request.asked = {kSession, last_id_};
    return ask(request);
  }

  CancelRequest cancel_request(const std::string& name) {
    CancelRequest request;
    request.name = name;
    return request;
  }

  RescheduleRequest reschedule_request(const std::string& name) {
    RescheduleRequest request;
    request.name = name;
    request.due_us = now_us() + kDelayUs;
    return request;
  }

  FaultyBackend* faulty_ = nullptr;
  uint64_t last_id_ = 0;
};

TEST_P(StoreVerdictsInDoubt, CancelThatWasCarriedOutIsFoundWithItsVerdict) {
  const uint64_t timer = schedule("a", 0).timer;
  lose(cancel_request("a"), FaultyBackend::Fault::kAfter);
  const AskRequest answer = ask_for_lost();
  EXPECT_TRUE(answer.found);
  expect_one(answer.result.answers, WFStoreVerdict::kWon, timer, 0);
  expect_one(ask(cancel_request("a"), nullptr, last_id_).answers, WFStoreVerdict::kWon, timer, 0);
}

TEST_P(StoreVerdictsInDoubt, CancelThatWasNotCarriedOutNeverWillBeOnceAskedFor) {
  const uint64_t timer = schedule("a", 0).timer;
  lose(cancel_request("a"), FaultyBackend::Fault::kBefore);
  EXPECT_FALSE(ask_for_lost().found);
  StoreFailure failure;
  ask(cancel_request("a"), &failure, last_id_);
  EXPECT_EQ(failure.error, ECANCELED);
  EXPECT_EQ(claim_one().run.timer, timer);
}

TEST_P(StoreVerdictsInDoubt, CancelThatIsSaidAgainHappensOnce) {
  const auto claimed = running("a");
  lose(cancel_request("a"), FaultyBackend::Fault::kAfter);
  EXPECT_TRUE(acknowledge(claimed.run));
  schedule("a", kDelayUs);
  // It speaks of the first timer, and the second one stays.
  expect_one(ask(cancel_request("a"), nullptr, last_id_).answers, WFStoreVerdict::kRunning,
             claimed.run.timer, 1);
  EXPECT_EQ(only_stage(), WFStoreStage::kWaiting);
}

TEST_P(StoreVerdictsInDoubt, RescheduleThatIsSaidAgainHappensOnce) {
  const uint64_t timer = schedule("a", 0).timer;
  const RescheduleRequest request = reschedule_request("a");
  lose(request, FaultyBackend::Fault::kAfter);
  move_us(kDelayUs);
  const auto claimed = claim_one();
  EXPECT_EQ(claimed.run.timer, timer);
  expect_one(ask(request, nullptr, last_id_).answers, WFStoreVerdict::kWon, timer, 0);
  EXPECT_EQ(only_stage(), WFStoreStage::kRunning);
}

TEST_P(StoreVerdictsInDoubt, RescheduleThatWasCarriedOutIsFoundWithItsVerdict) {
  const auto claimed = running("a");
  const RescheduleRequest request = reschedule_request("a");
  lose(request, FaultyBackend::Fault::kAfter);
  const AskRequest answer = ask_for_lost();
  EXPECT_TRUE(answer.found);
  expect_one(answer.result.answers, WFStoreVerdict::kAfterRun, claimed.run.timer, 1);
  expect_run(answer.result.answers.at(0), claimed, kLeaseUs);
  // There is one successor, whoever asks.
  expect_one(ask(request, nullptr, last_id_).answers, WFStoreVerdict::kAfterRun, claimed.run.timer,
             1);
  EXPECT_EQ(list().size(), 2U);
}

TEST_P(StoreVerdictsInDoubt, RescheduleThatWasNotCarriedOutNeverWillBeOnceAskedFor) {
  const uint64_t timer = schedule("a", 0).timer;
  const RescheduleRequest request = reschedule_request("a");
  lose(request, FaultyBackend::Fault::kBefore);
  EXPECT_FALSE(ask_for_lost().found);
  StoreFailure failure;
  ask(request, &failure, last_id_);
  EXPECT_EQ(failure.error, ECANCELED);
  EXPECT_EQ(claim_one().run.timer, timer);  // at its old time
}

TEST_P(StoreVerdictsInDoubt, ReplaceThatWasCarriedOutIsFoundWithItsVerdict) {
  const uint64_t timer = schedule("a", 0).timer;
  const ScheduleRequest request = schedule_request("a", 0, WF_TIMER_REPLACE);
  lose(request, FaultyBackend::Fault::kAfter);
  const AskRequest answer = ask_for_lost();
  EXPECT_TRUE(answer.found);
  EXPECT_GT(answer.result.timer, timer);
  expect_one(answer.result.answers, WFStoreVerdict::kWon, timer, 0);
  EXPECT_EQ(claim_one().run.timer, answer.result.timer);
}

TEST_P(StoreVerdictsInDoubt, ReplaceThatWasNotCarriedOutNeverWillBeOnceAskedFor) {
  const uint64_t timer = schedule("a", 0).timer;
  const ScheduleRequest request = schedule_request("a", 0, WF_TIMER_REPLACE);
  lose(request, FaultyBackend::Fault::kBefore);
  const AskRequest answer = ask_for_lost();
  EXPECT_FALSE(answer.found);
  EXPECT_EQ(answer.result.timer, 0U);
  StoreFailure failure;
  EXPECT_EQ(ask(request, &failure, last_id_).timer, 0U);
  EXPECT_EQ(failure.error, ECANCELED);
  EXPECT_EQ(claim_one().run.timer, timer);
}

// It does not replace the timer that it has stored itself.
TEST_P(StoreVerdictsInDoubt, ReplaceThatIsSaidAgainHappensOnce) {
  const uint64_t timer = schedule("a", 0).timer;
  const ScheduleRequest request = schedule_request("a", 0, WF_TIMER_REPLACE);
  lose(request, FaultyBackend::Fault::kAfter);
  const ScheduleRequest again = ask(request, nullptr, last_id_);
  expect_one(again.answers, WFStoreVerdict::kWon, timer, 0);
  EXPECT_EQ(claim_one().run.timer, again.timer);
}

TEST_P(StoreVerdictsInDoubt, ScheduleThatIsSaidAgainStoresOneTimer) {
  for (const auto fault : {FaultyBackend::Fault::kBefore, FaultyBackend::Fault::kAfter}) {
    const std::string name = fault == FaultyBackend::Fault::kBefore ? "before" : "after";
    const ScheduleRequest request = schedule_request(name, 0);
    lose(request, fault);
    const uint64_t timer = ask(request, nullptr, last_id_).timer;
    const std::vector<WFStoreInfo> timers = list(name);
    ASSERT_EQ(timers.size(), 1U) << name;
    EXPECT_EQ(timers[0].timer, timer) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, StoreVerdicts, testing::ValuesIn(store_test::rules_backend_kinds()),
                         store_test::backend_name);
INSTANTIATE_TEST_SUITE_P(Each, StoreVerdictsInDoubt,
                         testing::ValuesIn(store_test::rules_backend_kinds()),
                         store_test::backend_name);

}  // namespace
