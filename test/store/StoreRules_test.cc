#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "store/BackendKit.h"
#include "store/RedisStorePlace.h"

// The rules 5 to 13 of store/StoreBackend.h, one by one. BackendRules has their combinations.

namespace {

using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::kUsPerSec;
using workflow::ScheduleRequest;
using workflow::StoreFailure;
using How = workflow::FinishRequest::How;

constexpr int64_t kMinuteUs = 60'000'000;

class StoreRules : public store_test::RulesFixture {
 protected:
  std::vector<WFStoreStage> stages() {
    std::vector<WFStoreStage> stages;
    for (const WFStoreInfo& timer : list()) {
      stages.push_back(timer.stage);
    }
    return stages;
  }

  // What the store says about the latest timer of that name, which has ended.
  WFStoreOutcome outcome(const std::string& name) {
    const std::vector<WFStoreAnswer> answers = cancel(name);
    EXPECT_EQ(answers.at(0).verdict, WFStoreVerdict::kDone);
    return answers.at(0).outcome;
  }

  ClaimRequest claim_limited(size_t max, size_t max_overdue) {
    ClaimRequest request;
    request.kinds = {{"kind", max, max_overdue}};
    request.owner = "worker";
    request.lease_us = kLeaseUs;
    request.fresh_us = kUsPerSec;
    return ask(request);
  }

  bool asked_is_found(uint64_t id, StoreFailure* failure) {
    AskRequest request;
    request.asked = {kSession, id};
    return ask(request, failure).found;
  }
};

// An answer about an ended timer says how many runs have begun, if the store remembers that.
TEST_P(StoreRules, AnEndedTimerSaysHowManyRunsHaveBegun) {
  schedule("a", 0);
  finish(claim_one().run, FinishRequest::How::kRetry, now_us());
  acknowledge(claim_one().run);
  schedule("b", 0);
  cancel("b");
  const bool is_redis = GetParam().redis_shards > 0;
  EXPECT_EQ(cancel("a").at(0).attempts, is_redis ? 0U : 2U);
  EXPECT_EQ(cancel("b").at(0).attempts, 0U);
}

// Rule 4.

TEST_P(StoreRules, EachClaimHasAGreaterFence) {
  schedule("a", 0);
  const auto first = claim_one();
  end_lease(first);
  const auto second = claim_one();
  EXPECT_GT(second.run.fence, first.run.fence);
  EXPECT_TRUE(finish(second.run, How::kRetry, now_us()));
  EXPECT_GT(claim_one().run.fence, second.run.fence);
}

// Rule 5.

TEST_P(StoreRules, EachMoveTakesAFence) {
  schedule("a", 0);
  const auto before = claim_one();
  acknowledge(before.run);
  schedule("a", kMinuteUs);
  for (int moves = 1; moves <= 5; moves++) {
    reschedule("a", kMinuteUs + moves);
  }
  move_us(2 * kMinuteUs);
  // That of the claim, and those of the moves.
  EXPECT_GE(claim_one().run.fence, before.run.fence + 6);
}

TEST_P(StoreRules, TimerIsClaimedFromTheMicrosecondOnAtWhichItIsDue) {
  schedule("a", 10);
  move_us(9);
  const ClaimRequest early = claim();
  EXPECT_TRUE(early.claimed.empty());
  EXPECT_EQ(early.next_us, now_us() + 1);
  move_us(1);
  const auto claimed = claim_one();
  EXPECT_EQ(claimed.attempts, 1U);
  EXPECT_EQ(claimed.lease_end_us, now_us() + kLeaseUs);
  EXPECT_EQ(claimed.spec.name, "a");
  EXPECT_EQ(claimed.spec.payload, "payload of a");
}

TEST_P(StoreRules, LeaseIsOverAtItsEndAndNotBefore) {
  schedule("a", 0);
  const auto first = claim_one();
  move_us(kLeaseUs - 1);
  const ClaimRequest early = claim();
  EXPECT_TRUE(early.claimed.empty());
  EXPECT_EQ(early.next_us, first.lease_end_us);
  move_us(1);
  const auto second = claim_one();
  EXPECT_EQ(second.run.timer, first.run.timer);
  EXPECT_EQ(second.attempts, 2U);
  EXPECT_EQ(second.due_us, first.due_us);
}

TEST_P(StoreRules, TimerThatIsNeverDueIsNotClaimed) {
  ScheduleRequest request = schedule_request("a", 0);
  request.due_us = kNeverUs;
  ask(request);
  const ClaimRequest claimed = claim();
  EXPECT_TRUE(claimed.claimed.empty());
  EXPECT_EQ(claimed.next_us, kNeverUs);
  EXPECT_FALSE(claimed.more);
}

TEST_P(StoreRules, ClaimTakesOnlyItsKinds) {
  ScheduleRequest request = schedule_request("a", 0);
  request.spec.kind = "other kind";
  ask(request);
  const ClaimRequest claimed = claim();
  EXPECT_TRUE(claimed.claimed.empty());
  EXPECT_FALSE(claimed.more);
  EXPECT_EQ(claimed.next_us, kNeverUs);
}

TEST_P(StoreRules, AClaimTakesFreshTimersFirstAndKeepsToBothLimits) {
  schedule("old 1", 0);
  schedule("old 2", 1);
  move_us(kUsPerSec + 2);
  schedule("fresh 1", 0);
  schedule("fresh 2", 0);
  const ClaimRequest first = claim_limited(2, 1);
  ASSERT_EQ(first.claimed.size(), 2U);
  EXPECT_EQ(first.claimed[0].spec.name, "fresh 1");
  EXPECT_EQ(first.claimed[1].spec.name, "fresh 2");
  EXPECT_TRUE(first.more);
  EXPECT_EQ(claim_limited(5, 0).claimed.size(), 0U);
  const ClaimRequest second = claim_limited(5, 1);
  ASSERT_EQ(second.claimed.size(), 1U);
  EXPECT_EQ(second.claimed[0].spec.name, "old 1");
  EXPECT_TRUE(second.more);
  const ClaimRequest third = claim_limited(5, 5);
  ASSERT_EQ(third.claimed.size(), 1U);
  EXPECT_EQ(third.claimed[0].spec.name, "old 2");
  EXPECT_FALSE(third.more);
}

TEST_P(StoreRules, TimerIsFreshAsLongAsTheClaimSays) {
  schedule("a", 0);
  move_us(kUsPerSec);
  EXPECT_EQ(claim_limited(1, 0).claimed.size(), 1U);
  schedule("b", 0);
  move_us(kUsPerSec + 1);
  EXPECT_EQ(claim_limited(1, 0).claimed.size(), 0U);
  EXPECT_EQ(claim_limited(1, 1).claimed.size(), 1U);
}

// Rule 6.

TEST_P(StoreRules, FinishAndExtendWithAnOldFenceDoNothing) {
  schedule("a", 0);
  const auto first = claim_one();
  end_lease(first);
  const auto second = claim_one();
  for (const How how : {How::kDone, How::kMissed, How::kRetry, How::kFailed}) {
    EXPECT_FALSE(finish(first.run, how, now_us()));
  }
  EXPECT_FALSE(extend(first.run, kMinuteUs).live);
  EXPECT_EQ(list().at(0).stage, WFStoreStage::kRunning);
  EXPECT_EQ(list().at(0).attempts, 2U);
  EXPECT_TRUE(acknowledge(second.run));
}

TEST_P(StoreRules, FinishAndExtendAfterTheLeaseDoNothing) {
  schedule("a", 0);
  const auto claimed = claim_one();
  end_lease(claimed);
  EXPECT_FALSE(acknowledge(claimed.run));
  EXPECT_FALSE(extend(claimed.run, kMinuteUs).live);
  EXPECT_EQ(claim_one().run.timer, claimed.run.timer);
}

TEST_P(StoreRules, FinishInTheLastMicrosecondOfTheLeaseCounts) {
  schedule("a", 0);
  const auto claimed = claim_one();
  move_us(kLeaseUs - 1);
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kDone);
}

TEST_P(StoreRules, ExtendMakesTheLeaseLastFromNow) {
  schedule("a", 0);
  const auto claimed = claim_one();
  move_us(kLeaseUs - 1);
  const workflow::ExtendRequest::Extended extended = extend(claimed.run, kMinuteUs);
  EXPECT_TRUE(extended.live);
  EXPECT_FALSE(extended.cancelled);
  EXPECT_EQ(extended.lease_end_us, now_us() + kMinuteUs);
  move_us(kMinuteUs - 1);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(acknowledge(claimed.run));
}

TEST_P(StoreRules, FinishTwiceCountsOnce) {
  schedule("a", 0);
  const auto claimed = claim_one();
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_FALSE(acknowledge(claimed.run));
}

// Rule 7.

TEST_P(StoreRules, CancelledRunEndsWithItsLease) {
  schedule("a", 0);
  const auto claimed = claim_one();
  cancel("a");
  end_lease(claimed);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(list().empty());
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kCancelled);
}

TEST_P(StoreRules, CancelledRunMayBeAcknowledged) {
  schedule("a", 0);
  const auto claimed = claim_one();
  cancel("a");
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kDone);
}

TEST_P(StoreRules, CancelledRunHasNoFurtherDate) {
  schedule_recurring("a");
  const auto claimed = claim_one();
  cancel("a");
  EXPECT_TRUE(finish(claimed.run, How::kDone, now_us() + 1));
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreRules, CancelEndsTheSuccessorToo) {
  schedule("a", 0);
  const auto claimed = claim_one();
  reschedule("a", 0);
  const std::vector<WFStoreAnswer> answers = cancel("a");
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].verdict, WFStoreVerdict::kRunning);
  EXPECT_EQ(answers[1].verdict, WFStoreVerdict::kWon);
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreRules, CancelTakesTheOldestAndNoMoreThanTheLimit) {
  const uint64_t first = schedule("a", kMinuteUs).timer;
  const uint64_t second = schedule("a", 0).timer;
  const uint64_t third = schedule("a", 0).timer;
  const std::vector<WFStoreAnswer> answers = cancel("a", 2);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].timer, first);
  EXPECT_EQ(answers[1].timer, second);
  EXPECT_EQ(list().at(0).timer, third);
}

TEST_P(StoreRules, FailedTimersAreNoTimersForOtherRequests) {
  schedule("a", 0);
  EXPECT_TRUE(finish(claim_one().run, How::kFailed));
  EXPECT_EQ(cancel("a").at(0).verdict, WFStoreVerdict::kDone);
  EXPECT_EQ(reschedule("a", 0).at(0).verdict, WFStoreVerdict::kDone);
  EXPECT_NE(schedule("a", kMinuteUs, WF_TIMER_KEEP).timer, 0U);
  EXPECT_EQ(stages(), (std::vector{WFStoreStage::kFailed, WFStoreStage::kWaiting}));
}

// Rule 8.

TEST_P(StoreRules, SecondRescheduleOfARunMovesItsSuccessor) {
  schedule("a", 0);
  const auto claimed = claim_one();
  reschedule("a", 0);
  const uint64_t successor = list().at(1).timer;
  const std::vector<WFStoreAnswer> answers = reschedule("a", kMinuteUs);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].timer, claimed.run.timer);
  EXPECT_EQ(stages(), (std::vector{WFStoreStage::kRunning, WFStoreStage::kBlocked}));
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_TRUE(claim().claimed.empty());
  move_us(kMinuteUs);
  EXPECT_EQ(claim_one().run.timer, successor);
}

TEST_P(StoreRules, RescheduleOfACancelledRunMakesASuccessorThatRecurs) {
  schedule_recurring("a");
  const auto claimed = claim_one();
  cancel("a");
  EXPECT_EQ(reschedule("a", kMinuteUs).at(0).verdict, WFStoreVerdict::kAfterRun);
  EXPECT_TRUE(finish(claimed.run, How::kDone, now_us() + 1));
  EXPECT_TRUE(claim().claimed.empty());
  move_us(kMinuteUs);
  const auto successor = claim_one();
  EXPECT_NE(successor.run.timer, claimed.run.timer);
  EXPECT_EQ(successor.spec.repeat, "each full moon");
  EXPECT_TRUE(finish(successor.run, How::kDone, now_us() + 1));
  EXPECT_EQ(stages(), std::vector{WFStoreStage::kWaiting});
  // A cancel that comes last ends both.
  reschedule("a", 0);
  claim_one();
  reschedule("a", kMinuteUs);
  EXPECT_EQ(cancel("a").size(), 2U);
  EXPECT_EQ(stages(), std::vector{WFStoreStage::kRunning});
}

TEST_P(StoreRules, RescheduleKeepsTheRecurrenceUnlessItBringsAnother) {
  schedule_recurring("a");
  reschedule("a", 0);
  auto claimed = claim_one();
  EXPECT_EQ(claimed.spec.repeat, "each full moon");
  EXPECT_TRUE(finish(claimed.run, How::kRetry, now_us()));
  workflow::RescheduleRequest request;
  request.name = "a";
  request.due_us = now_us();
  request.changes_repeat = true;
  request.repeat = "each new moon";
  ask(request);
  EXPECT_EQ(claim_one().spec.repeat, "each new moon");
}

// Rule 9.

TEST_P(StoreRules, ReplaceEndsASuccessorWithoutAnAnswer) {
  schedule("a", 0);
  const auto claimed = claim_one();
  reschedule("a", 0);
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  ASSERT_EQ(replaced.answers.size(), 1U);
  EXPECT_EQ(replaced.answers[0].verdict, WFStoreVerdict::kAfterRun);
  EXPECT_EQ(stages(), (std::vector{WFStoreStage::kRunning, WFStoreStage::kBlocked}));
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreRules, ReplaceWaitsForTheNewestRun) {
  schedule("a", 0);
  schedule("a", 0);
  const ClaimRequest claimed = claim();
  ASSERT_EQ(claimed.claimed.size(), 2U);
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  EXPECT_EQ(replaced.answers.size(), 2U);
  EXPECT_TRUE(acknowledge(claimed.claimed[0].run));
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_TRUE(acknowledge(claimed.claimed[1].run));
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
}

TEST_P(StoreRules, ReplaceOfACancelledRunWaitsForItsEnd) {
  schedule("a", 0);
  const auto claimed = claim_one();
  cancel("a");
  const ScheduleRequest replaced = schedule("a", 0, WF_TIMER_REPLACE);
  EXPECT_EQ(replaced.answers.at(0).verdict, WFStoreVerdict::kAfterRun);
  end_lease(claimed);
  EXPECT_EQ(claim_one().run.timer, replaced.timer);
  EXPECT_EQ(list().size(), 1U);
}

TEST_P(StoreRules, KeepStoresNothingBesideATimerInAnyStage) {
  schedule("a", 0);
  const auto refused = [this] {
    StoreFailure failure;
    const ScheduleRequest request = ask(schedule_request("a", 0, WF_TIMER_KEEP), &failure);
    return failure.error == EEXIST && request.timer == 0;
  };
  EXPECT_TRUE(refused());
  const auto claimed = claim_one();
  EXPECT_TRUE(refused());
  end_lease(claimed);
  EXPECT_TRUE(refused());
  EXPECT_EQ(list().size(), 1U);
  cancel("a");
  EXPECT_FALSE(refused());
}

// Rule 10.

TEST_P(StoreRules, SuccessorWaitsForItsOwnTime) {
  schedule("a", 0);
  const auto claimed = claim_one();
  reschedule("a", kMinuteUs);
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(only_stage(), WFStoreStage::kWaiting);
  EXPECT_TRUE(claim().claimed.empty());
  move_us(kMinuteUs);
  EXPECT_EQ(claim().claimed.size(), 1U);
}

TEST_P(StoreRules, SuccessorIsReleasedWhenTheRunFails) {
  schedule("a", 0);
  const auto claimed = claim_one();
  reschedule("a", 0);
  EXPECT_TRUE(finish(claimed.run, How::kFailed));
  EXPECT_EQ(stages(), (std::vector{WFStoreStage::kFailed, WFStoreStage::kWaiting}));
}

TEST_P(StoreRules, SuccessorStaysBlockedWhenTheRunIsRetried) {
  schedule("a", 0);
  auto claimed = claim_one();
  reschedule("a", 0);
  EXPECT_TRUE(finish(claimed.run, How::kRetry, now_us()));
  EXPECT_EQ(stages(), (std::vector{WFStoreStage::kWaiting, WFStoreStage::kBlocked}));
  claimed = claim_one();
  EXPECT_EQ(claimed.attempts, 2U);
  EXPECT_TRUE(acknowledge(claimed.run));
  EXPECT_EQ(only_stage(), WFStoreStage::kWaiting);
}

TEST_P(StoreRules, NextDateOfARunWithASuccessorIsTheSuccessors) {
  schedule_recurring("a");
  const auto claimed = claim_one();
  reschedule("a", kMinuteUs);
  EXPECT_TRUE(finish(claimed.run, How::kDone, now_us() + 1));
  const std::vector<WFStoreInfo> timers = list();
  ASSERT_EQ(timers.size(), 1U);
  EXPECT_NE(timers[0].timer, claimed.run.timer);
  move_us(kMinuteUs);
  EXPECT_EQ(claim_one().spec.repeat, "each full moon");
}

// Rule 11.

TEST_P(StoreRules, RecurringTimerGoesOnWithItsNextDate) {
  schedule_recurring("a");
  for (const How how : {How::kDone, How::kMissed}) {
    const auto claimed = claim_one();
    EXPECT_EQ(claimed.attempts, 1U);
    const int64_t next_us = now_us() + kMinuteUs;
    EXPECT_TRUE(finish(claimed.run, how, next_us));
    EXPECT_TRUE(claim().claimed.empty());
    EXPECT_FALSE(acknowledge(claimed.run));
    move_us(kMinuteUs);
    EXPECT_EQ(list().at(0).timer, claimed.run.timer);
    EXPECT_EQ(list().at(0).due.time_since_epoch(), std::chrono::microseconds(next_us));
  }
  EXPECT_TRUE(finish(claim_one().run, How::kMissed));
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kMissed);
}

TEST_P(StoreRules, RetryWaitsWithItsAttempts) {
  schedule("a", 0);
  const auto first = claim_one();
  EXPECT_TRUE(finish(first.run, How::kRetry, now_us() + 10));
  EXPECT_EQ(claim().next_us, now_us() + 10);
  move_us(10);
  const auto second = claim_one();
  EXPECT_EQ(second.attempts, 2U);
  EXPECT_EQ(second.due_us, first.due_us);
}

TEST_P(StoreRules, ClaimSaysSinceWhenItWasPossible) {
  schedule("a", 0);
  const int64_t due_us = now_us();
  move_us(5);
  const auto first = claim_one();
  EXPECT_EQ(first.wake_us, due_us);
  EXPECT_TRUE(finish(first.run, How::kRetry, now_us() + 10));
  const int64_t retry_us = now_us() + 10;
  move_us(15);
  const auto second = claim_one();
  EXPECT_EQ(second.wake_us, retry_us);
  move_us(second.lease_end_us - now_us() + 5);
  EXPECT_EQ(claim_one().wake_us, second.lease_end_us);
}

TEST_P(StoreRules, FailedTimerSaysWhyAndMayBeTriedAgain) {
  schedule("a", 0);
  EXPECT_TRUE(finish(claim_one().run, How::kFailed));
  const WFStoreInfo failed = list().at(0);
  EXPECT_EQ(failed.stage, WFStoreStage::kFailed);
  EXPECT_EQ(failed.reason, "the reason");
  EXPECT_EQ(failed.attempts, 1U);
  EXPECT_TRUE(claim().claimed.empty());
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kFailed);
  move_us(kMinuteUs);
  EXPECT_EQ(retry_failed("b"), 0U);
  EXPECT_EQ(retry_failed("a"), 1U);
  const auto claimed = claim_one();
  EXPECT_EQ(claimed.run.timer, failed.timer);
  EXPECT_EQ(claimed.attempts, 1U);
  EXPECT_EQ(claimed.due_us, now_us());
}

TEST_P(StoreRules, FailedTimerMayBeRemoved) {
  schedule("a", 0);
  EXPECT_TRUE(finish(claim_one().run, How::kFailed));
  schedule("a", 0);
  EXPECT_EQ(retry_failed("a", true), 1U);
  EXPECT_EQ(only_stage(), WFStoreStage::kWaiting);
}

TEST_P(StoreRules, RecurringTimerThatFailsGoesOnBesideTheFailedOne) {
  schedule_recurring("a");
  const auto claimed = claim_one();
  EXPECT_TRUE(finish(claimed.run, How::kFailed, now_us() + kMinuteUs));
  const std::vector<WFStoreInfo> timers = list();
  ASSERT_EQ(timers.size(), 2U);
  EXPECT_EQ(timers[0].timer, claimed.run.timer);
  EXPECT_EQ(timers[0].stage, WFStoreStage::kFailed);
  move_us(kMinuteUs);
  const auto next = claim_one();
  EXPECT_EQ(next.run.timer, timers[1].timer);
  EXPECT_EQ(next.attempts, 1U);
  EXPECT_EQ(next.spec.repeat, "each full moon");
  // The dates are those of one timer only.
  retry_failed("a");
  EXPECT_EQ(claim_one().spec.repeat, "");
}

TEST_P(StoreRules, ListGoesOnAfterThePlaceThatWasReached) {
  const uint64_t first = schedule("a", 0).timer;
  const uint64_t second = schedule("a", 0).timer;
  schedule("ab", 0);
  schedule("b", 0);
  workflow::ListRequest request;
  request.prefix = "a";
  request.max = 1;
  std::vector<std::string> names;
  std::vector<uint64_t> timers;
  for (bool more = true; more;) {
    const workflow::ListRequest page = ask(request);
    ASSERT_EQ(page.timers.size(), 1U);
    names.push_back(page.timers[0].name);
    timers.push_back(page.timers[0].timer);
    request.after_name = names.back();
    request.after_timer = timers.back();
    more = page.more;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a", "ab"}));
  EXPECT_EQ(timers.at(0), first);
  EXPECT_EQ(timers.at(1), second);
}

// Rule 14.

TEST_P(StoreRules, AListIsCutWhereItsBytesAreTooMany) {
  using workflow::ListRequest;
  constexpr size_t kPayload = 65536;
  constexpr size_t kMost = ListRequest::kMaxBytes / kPayload + 1;  // in one answer
  const size_t shards = std::max<size_t>(GetParam().redis_shards, 1);
  std::vector<std::string> stored;
  for (size_t i = 0; i < 2 * kMost + 1; i++) {
    // Several have the same name, and an answer may end between them.
    stored.push_back("timer " + std::to_string(1000 + i / 3));
    ScheduleRequest request = schedule_request(stored.back(), kMinuteUs);
    request.spec.payload.assign(kPayload, 'x');
    ask(std::move(request));
  }
  ListRequest request;
  request.max = 10'000;
  std::vector<std::string> listed;
  std::set<uint64_t> timers;
  size_t answers = 0;
  for (bool more = true; more; answers++) {
    const ListRequest page = ask(request);
    ASSERT_FALSE(page.timers.empty());
    EXPECT_LE(page.timers.size(), kMost * shards);
    for (const WFStoreInfo& info : page.timers) {
      listed.push_back(info.name);
      timers.insert(info.timer);
      EXPECT_EQ(info.payload.size(), kPayload);
    }
    request.after_name = page.timers.back().name;
    request.after_timer = page.timers.back().timer;
    more = page.more;
  }
  EXPECT_EQ(listed, stored);
  EXPECT_EQ(timers.size(), stored.size());
  EXPECT_TRUE(shards > 1 || answers >= 3) << answers;
}

TEST_P(StoreRules, AListOfFailedTimersIsCutWhereItsBytesAreTooMany) {
  using workflow::ListRequest;
  if (GetParam().redis_shards > 1) {
    GTEST_SKIP() << "each shard may send as much";
  }
  constexpr size_t kTimers = 260;
  for (size_t i = 0; i < kTimers; i++) {
    ScheduleRequest request = schedule_request("timer " + std::to_string(1000 + i), 0);
    request.spec.payload.assign(65536, 'x');
    ask(std::move(request));
  }
  size_t failed = 0;
  for (ClaimRequest claimed = claim(); !claimed.claimed.empty(); claimed = claim()) {
    for (const ClaimRequest::Claimed& timer : claimed.claimed) {
      EXPECT_TRUE(finish(timer.run, How::kFailed));
      failed++;
    }
  }
  EXPECT_EQ(failed, kTimers);
  ListRequest request;
  request.max = 10'000;
  request.failed_only = true;
  const ListRequest page = ask(request);
  EXPECT_TRUE(page.more);
  ASSERT_FALSE(page.timers.empty());
  request.after_name = page.timers.back().name;
  request.after_timer = page.timers.back().timer;
  const ListRequest rest = ask(request);
  EXPECT_FALSE(rest.more);
  EXPECT_EQ(page.timers.size() + rest.timers.size(), kTimers);
}

// Rule 12.

TEST_P(StoreRules, RequestThatIsSaidAgainChangesNothing) {
  const ScheduleRequest first = ask(schedule_request("a", 0), nullptr, 5);
  const ScheduleRequest again = ask(schedule_request("a", 0), nullptr, 5);
  EXPECT_EQ(again.timer, first.timer);
  EXPECT_EQ(list().size(), 1U);
}

TEST_P(StoreRules, FailureIsRememberedAsWell) {
  schedule("a", 0);
  StoreFailure failure;
  ask(schedule_request("a", 0, WF_TIMER_KEEP), &failure, 5);
  EXPECT_EQ(failure.error, EEXIST);
  cancel("a");
  ask(schedule_request("a", 0, WF_TIMER_KEEP), &failure, 5);
  EXPECT_EQ(failure.error, EEXIST);
  AskRequest request;
  request.asked = {kSession, 5};
  request = ask(request);
  EXPECT_TRUE(request.found);
  EXPECT_EQ(request.result.error, EEXIST);
  EXPECT_TRUE(list().empty());
}

TEST_P(StoreRules, IdThatWasAskedForAndNotFoundIsUsedUp) {
  StoreFailure failure;
  EXPECT_FALSE(asked_is_found(5, &failure));
  EXPECT_EQ(failure.error, 0);
  ask(schedule_request("a", 0), &failure, 5);
  EXPECT_EQ(failure.error, ECANCELED);
  EXPECT_TRUE(list().empty());
  EXPECT_FALSE(asked_is_found(5, &failure));
  EXPECT_EQ(failure.error, 0);
}

TEST_P(StoreRules, OldRequestsAreForgotten) {
  reopen(3);
  for (uint64_t id = 1; id <= 4; ++id) {
    ask(schedule_request("a", 0), nullptr, id);
  }
  StoreFailure failure;
  asked_is_found(1, &failure);
  EXPECT_EQ(failure.error, ENODATA);
  EXPECT_TRUE(asked_is_found(2, &failure));
  EXPECT_TRUE(asked_is_found(4, &failure));
  EXPECT_EQ(failure.error, 0);
}

TEST_P(StoreRules, RequestsOfOneBatchAreCarriedOutInTheirOrder) {
  std::vector<workflow::StoreRequest> batch(4);
  batch[0].what = schedule_request("a", 0);
  batch[1].what = CancelRequest{"a", SIZE_MAX, {}};
  batch[2].what = schedule_request("a", 0, WF_TIMER_KEEP);
  batch[3].what = schedule_request("a", 0, WF_TIMER_KEEP);
  std::vector<workflow::StoreRequest*> requests;
  for (workflow::StoreRequest& request : batch) {
    requests.push_back(&request);
  }
  ASSERT_TRUE(backend_->execute(requests));
  EXPECT_EQ(std::get<CancelRequest>(batch[1].what).answers.at(0).verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(batch[2].failure.error, 0);
  EXPECT_EQ(batch[3].failure.error, EEXIST);
  EXPECT_EQ(only_stage(), WFStoreStage::kWaiting);
}

// Rule 13.

TEST_P(StoreRules, LatestTimerOfTheNameIsRemembered) {
  schedule("a", 0);
  EXPECT_TRUE(acknowledge(claim_one().run));
  schedule("a", 0);
  cancel("a");
  EXPECT_EQ(outcome("a"), WFStoreOutcome::kCancelled);
}

// Each shard of a Redis remembers as many, and answers for its own timers.
TEST_P(StoreRules, OldEndsAreForgottenAndTheAnswerSaysSinceWhen) {
  const size_t shards = std::max<size_t>(GetParam().redis_shards, 1);
  const auto name_in = [shards](size_t shard, int number) {
    for (int i = 0;; i++) {
      const std::string name = std::to_string(number) + " " + std::to_string(i);
      if (workflow::redis_store_shard(name, shards) == shard) return name;
    }
  };
  reopen(2);
  std::vector<int64_t> end_us(shards);
  const auto end_one = [&](size_t shard, int number) {
    move_us(kMinuteUs);
    schedule(name_in(shard, number), 0);
    cancel(name_in(shard, number));
    return now_us();
  };
  // In the first shard one more than in the others.
  for (size_t shard = 0; shard < shards; shard++) {
    end_us[shard] = end_one(shard, 1);
    end_one(shard, 2);
  }
  end_one(0, 3);
  const auto remembers_since_us = [&](size_t shard, int number) {
    const WFStoreAnswer answer = cancel(name_in(shard, number)).at(0);
    EXPECT_EQ(answer.verdict, WFStoreVerdict::kUnknown);
    const auto when = answer.when.time_since_epoch();
    return int64_t{std::chrono::duration_cast<std::chrono::microseconds>(when).count()};
  };
  EXPECT_GE(remembers_since_us(0, 1), end_us[0]);
  EXPECT_LE(remembers_since_us(0, 1), now_us());
  EXPECT_EQ(outcome(name_in(0, 2)), WFStoreOutcome::kCancelled);
  for (size_t shard = 1; shard < shards; shard++) {
    EXPECT_EQ(outcome(name_in(shard, 1)), WFStoreOutcome::kCancelled) << shard;
    EXPECT_LE(remembers_since_us(shard, 4), end_us[shard]) << shard;
    // Then they forget one as well.
    end_one(shard, 3);
    EXPECT_GE(remembers_since_us(shard, 1), end_us[shard]) << shard;
    EXPECT_EQ(outcome(name_in(shard, 2)), WFStoreOutcome::kCancelled) << shard;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, StoreRules, testing::ValuesIn(store_test::rules_backend_kinds()),
                         store_test::backend_name);

}  // namespace
