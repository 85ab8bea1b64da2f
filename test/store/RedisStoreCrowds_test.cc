#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// Names with very many timers in a Redis. What a script does for each of them cannot be bounded by
// time in a test, but the commands can be counted that it needs: one looks at a thousand at most.

namespace {

using redis_test::calls_of;
using redis_test::RedisServer;
using redis_test::run;
using store_test::ask;
using store_test::cancel_request;
using store_test::carry_out;
using store_test::claim_request;
using store_test::kHourUs;
using store_test::kSecondUs;
using store_test::open_backend;
using store_test::timer;
using store_test::url_of;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::ExtendRequest;
using workflow::FailedRequest;
using workflow::FinishRequest;
using workflow::RescheduleRequest;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreFailure;
using workflow::StoreRequest;

constexpr size_t kMany = 20'000;

class RedisStoreCrowds : public testing::Test {
 protected:
  RedisStoreCrowds() : backend_(open_backend(url_of(server_, "&namespace=app&shards=1"))) {
    std::vector<StoreRequest> batch(kMany);
    for (StoreRequest& request : batch) {
      request.what = timer("a", backend_->now_us() + kHourUs);
    }
    execute_all(batch);
    for (const StoreRequest& request : batch) {
      timers_.push_back(std::get<ScheduleRequest>(request.what).timer);
    }
  }

  size_t size_of(const std::string& key) {
    return std::stoul(run(server_.url(), {"ZCARD", "{app:0}:" + key}).text);
  }
  size_t calls(const std::string& command) { return calls_of(server_.url(), command); }
  ClaimRequest claim_oldest_two() {
    RescheduleRequest moved;
    moved.name = "a";
    moved.max = 2;
    moved.due_us = backend_->now_us() - kSecondUs;
    ask(*backend_, moved);
    return ask(*backend_, claim_request(2));
  }
  // Claims so many new timers of the name "b".
  ClaimRequest claim_new(size_t count) {
    std::vector<StoreRequest> batch(count);
    for (StoreRequest& request : batch) {
      request.what = timer("b", backend_->now_us() - kSecondUs);
    }
    execute_all(batch);
    return ask(*backend_, claim_request(count));
  }
  void execute_all(std::vector<StoreRequest>& batch) {
    std::vector<StoreRequest*> requests;
    for (StoreRequest& request : batch) {
      requests.push_back(&request);
    }
    EXPECT_TRUE(backend_->execute(requests));
  }
  // Expects that these are timers of ours, won, in their order, without a gap.
  void expect_won(const std::vector<WFStoreAnswer>& answers, size_t first, size_t count) {
    ASSERT_EQ(answers.size(), count);
    for (size_t i = 0; i < count; i++) {
      ASSERT_EQ(answers[i].verdict, WFStoreVerdict::kWon);
      ASSERT_EQ(answers[i].timer, timers_[first + i]);
    }
  }

  RedisServer server_;
  const std::unique_ptr<StoreBackend> backend_;
  std::vector<uint64_t> timers_;  // their numbers, oldest first
};

TEST_F(RedisStoreCrowds, AFewAreTakenWithoutALookAtTheOthers) {
  const size_t ranges = calls("zrangebylex");
  const size_t reads = calls("hmget");
  CancelRequest few = cancel_request("a");
  few.max = 10;
  expect_won(ask(*backend_, few, 1).answers, 0, 10);
  RescheduleRequest moved;
  moved.name = "a";
  moved.max = 10;
  moved.due_us = backend_->now_us() + 2 * kHourUs;
  expect_won(ask(*backend_, moved, 2).answers, 10, 10);
  ScheduleRequest keep = timer("a", kSecondUs);
  keep.policy = WF_TIMER_KEEP;
  StoreFailure failure;
  EXPECT_TRUE(carry_out(*backend_, keep, &failure, 3));
  EXPECT_EQ(failure.error, EEXIST);
  // Each looks at the name before it begins, and then at one page. It reads the counters of the
  // shard and the timers of that page.
  EXPECT_LE(calls("zrangebylex") - ranges, 6U);
  EXPECT_LE(calls("hmget") - reads, 6U);
  EXPECT_EQ(size_of("names"), kMany - 10);
  EXPECT_EQ(size_of("queue"), kMany - 10);
}

TEST_F(RedisStoreCrowds, AllAreTakenAThousandAtATime) {
  const size_t ranges = calls("zrangebylex");
  RescheduleRequest moved;
  moved.name = "a";
  moved.due_us = backend_->now_us() - kSecondUs;
  expect_won(ask(*backend_, moved, 1).answers, 0, kMany);
  EXPECT_GE(calls("zrangebylex") - ranges, kMany / 1000);
  EXPECT_EQ(size_of("queue"), kMany);
  const ClaimRequest claim = ask(*backend_, claim_request(3));
  ASSERT_EQ(claim.claimed.size(), 3U);
  EXPECT_EQ(claim.claimed[0].due_us, moved.due_us);

  const CancelRequest cancel = ask(*backend_, cancel_request("a"), 2);
  ASSERT_EQ(cancel.answers.size(), kMany);
  size_t running = 0;
  for (const WFStoreAnswer& answer : cancel.answers) {
    running += answer.verdict == WFStoreVerdict::kRunning ? 1U : 0U;
  }
  EXPECT_EQ(running, 3U);
  EXPECT_EQ(size_of("names"), 3U);
  EXPECT_EQ(size_of("queue"), 3U);
  // The same answer again, when it is asked for.
  AskRequest question;
  question.asked = {1, 2};
  const AskRequest asked = ask(*backend_, question);
  ASSERT_EQ(asked.result.answers.size(), kMany);
  for (size_t i = 0; i < kMany; i++) {
    ASSERT_EQ(asked.result.answers[i].timer, timers_[i]);
    ASSERT_EQ(asked.result.answers[i].verdict, cancel.answers[i].verdict);
  }
}

TEST_F(RedisStoreCrowds, MoreThanARequestMayTakeAreRefusedAndNotChanged) {
  const ScheduleRequest another = ask(*backend_, timer("a", backend_->now_us() + kHourUs));
  timers_.push_back(another.timer);
  const auto expect_refused = [this](auto request, uint64_t id) {
    StoreFailure failure;
    EXPECT_TRUE(carry_out(*backend_, request, &failure, id));
    EXPECT_EQ(failure.error, E2BIG);
    EXPECT_FALSE(failure.in_doubt);
    EXPECT_TRUE(request.answers.empty());
    EXPECT_EQ(size_of("names"), kMany + 1);
  };
  CancelRequest cancel = cancel_request("a");
  expect_refused(cancel, 1);
  cancel.max = kMany + 1;
  expect_refused(cancel, 2);
  RescheduleRequest moved;
  moved.name = "a";
  moved.due_us = backend_->now_us() - kSecondUs;
  expect_refused(moved, 3);
  ScheduleRequest replace = timer("a", backend_->now_us() - kSecondUs);
  replace.policy = WF_TIMER_REPLACE;
  expect_refused(replace, 4);
  EXPECT_TRUE(ask(*backend_, claim_request(5)).claimed.empty());
  // As many as it may take.
  cancel.max = kMany;
  expect_won(ask(*backend_, cancel, 5).answers, 0, kMany);
  // The answer of before, although it could be carried out now.
  StoreFailure failure;
  CancelRequest again = cancel_request("a");
  EXPECT_TRUE(carry_out(*backend_, again, &failure, 1));
  EXPECT_EQ(failure.error, E2BIG);
  EXPECT_EQ(ask(*backend_, cancel_request("a"), 6).answers.at(0).timer, another.timer);
}

// Otherwise the requests of one script could keep the server for as long as all of them together.
TEST_F(RedisStoreCrowds, RequestsThatFollowManyTimersGoWithTheNextScript) {
  std::vector<StoreRequest> batch(5);
  CancelRequest cancel = cancel_request("a");
  cancel.max = 3000;
  batch[0].what = cancel;
  batch[1].what = cancel;
  batch[2].what = timer("b", backend_->now_us() + kHourUs);
  batch[3].what = cancel_request("b");
  batch[4].what = cancel;
  for (size_t i = 0; i < batch.size(); i++) {
    batch[i].id = {1, i + 1};
  }
  const size_t scripts = calls("evalsha");
  execute_all(batch);
  EXPECT_EQ(calls("evalsha") - scripts, 3U);
  expect_won(std::get<CancelRequest>(batch[0].what).answers, 0, 3000);
  expect_won(std::get<CancelRequest>(batch[1].what).answers, 3000, 3000);
  const uint64_t stored = std::get<ScheduleRequest>(batch[2].what).timer;
  EXPECT_EQ(std::get<CancelRequest>(batch[3].what).answers.at(0).timer, stored);
  expect_won(std::get<CancelRequest>(batch[4].what).answers, 6000, 3000);
  EXPECT_EQ(size_of("names"), kMany - 9000);
}

TEST_F(RedisStoreCrowds, FailedTimersArePassedOverWithoutBeingRead) {
  constexpr size_t kFailed = 2500;
  const ClaimRequest claim = claim_new(kFailed);
  ASSERT_EQ(claim.claimed.size(), kFailed);
  std::vector<StoreRequest> batch(kFailed);
  for (size_t i = 0; i < kFailed; i++) {
    FinishRequest finish;
    finish.run = claim.claimed[i].run;
    finish.how = FinishRequest::How::kFailed;
    batch[i].what = finish;
  }
  execute_all(batch);
  ASSERT_EQ(size_of("failed"), kFailed);
  const ScheduleRequest living = ask(*backend_, timer("b", backend_->now_us() + kHourUs));
  const size_t reads = calls("hmget");
  const CancelRequest cancel = ask(*backend_, cancel_request("b"));
  ASSERT_EQ(cancel.answers.size(), 1U);
  EXPECT_EQ(cancel.answers[0].timer, living.timer);
  // The counters of the shard, and the last page.
  EXPECT_EQ(calls("hmget") - reads, 2U);
  EXPECT_EQ(size_of("failed"), kFailed);
}

// When a process is gone whose runs were cancelled, somebody else's claims end them.
TEST_F(RedisStoreCrowds, CancelledRunsOfAProcessThatIsGoneEndAThousandAtATime) {
  constexpr size_t kRuns = 2500;
  const ClaimRequest claim = claim_new(kRuns);
  ASSERT_EQ(claim.claimed.size(), kRuns);
  EXPECT_EQ(ask(*backend_, cancel_request("b")).answers.size(), kRuns);
  ExtendRequest extend;
  extend.lease_us = 1;
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    extend.runs.push_back(one.run);
  }
  ask(*backend_, extend);
  EXPECT_EQ(size_of("marked"), kRuns);

  // A claim also ends those that it comes across, instead of claiming them.
  EXPECT_TRUE(ask(*backend_, claim_request(10)).claimed.empty());
  EXPECT_EQ(size_of("marked"), kRuns - 1010);
  const ClaimRequest second = ask(*backend_, claim_request(10));
  EXPECT_TRUE(second.claimed.empty());
  EXPECT_TRUE(second.more);
  EXPECT_TRUE(second.again);
  EXPECT_EQ(size_of("marked"), kRuns - 2020);
  EXPECT_TRUE(ask(*backend_, claim_request(10)).claimed.empty());
  EXPECT_EQ(size_of("marked"), 0U);
  EXPECT_EQ(size_of("names"), kMany);
  EXPECT_EQ(size_of("queue"), kMany);
  EXPECT_EQ(ask(*backend_, cancel_request("b")).answers.at(0).verdict, WFStoreVerdict::kDone);
}

// A process extends the leases of all its runs with one request.
TEST_F(RedisStoreCrowds, LeasesOfManyRunsAreExtendedTwoThousandAtATime) {
  constexpr size_t kRuns = 4500;
  const ClaimRequest claim = claim_new(kRuns);
  ASSERT_EQ(claim.claimed.size(), kRuns);
  const std::set<size_t> ended = {0, 1999, 2000, 3000, kRuns - 1};
  ExtendRequest extend;
  extend.lease_us = 2 * kHourUs;
  for (size_t i = 0; i < kRuns; i++) {
    extend.runs.push_back(claim.claimed[i].run);
    if (ended.contains(i)) {
      FinishRequest finish;
      finish.run = claim.claimed[i].run;
      EXPECT_TRUE(ask(*backend_, finish).accepted);
    }
  }
  const size_t scripts = calls("evalsha");
  extend = ask(*backend_, extend);
  EXPECT_EQ(calls("evalsha") - scripts, 3U);
  ASSERT_EQ(extend.extended.size(), kRuns);
  for (size_t i = 0; i < kRuns; i++) {
    ASSERT_EQ(extend.extended[i].live, !ended.contains(i)) << i;
    if (!ended.contains(i)) {
      ASSERT_GT(extend.extended[i].lease_end_us, claim.claimed[i].lease_end_us) << i;
    }
  }
}

// A request that has ended very many leaves it to those that follow to forget them.
TEST_F(RedisStoreCrowds, WhatHasEndedIsForgottenAThousandAtATime) {
  workflow::StoreBackendOptions options;
  options.session = 2;
  options.remembered = 10;
  std::string why;
  const auto forgetful =
      store_test::try_to_open(url_of(server_, store_test::kOneShard), options, &why);
  ASSERT_NE(forgetful, nullptr) << why;
  const auto asked = [this](const std::vector<std::string>& words) {
    return run(server_.url(), words).value;
  };
  const auto remembered = [&asked] {
    return std::stoul(asked({"HGET", "{app:0}:meta", "ends"}).string_value());
  };
  expect_won(ask(*forgetful, cancel_request("a")).answers, 0, kMany);
  for (size_t left = kMany - 1000; left >= 1000; left -= 1000) {
    EXPECT_LE(remembered(), left);
    EXPECT_GT(remembered(), left - 1000);
    ask(*forgetful, cancel_request("nobody"));
  }
  EXPECT_LE(remembered(), 10U);
  const auto ring = asked({"LRANGE", "{app:0}:ring", "0", "-1"});
  EXPECT_EQ(ring.arr_size(), 1U);
  EXPECT_LE(ring[0].string_value().size(), 50U);
  EXPECT_EQ(asked({"HLEN", "{app:0}:ended"}).int_value(), 1);
}

// Timers that have failed are no timers for a cancel, and are no obstacle to it.
TEST_F(RedisStoreCrowds, FailedTimersDoNotCount) {
  for (const ClaimRequest::Claimed& one : claim_oldest_two().claimed) {
    FinishRequest finish;
    finish.run = one.run;
    finish.how = FinishRequest::How::kFailed;
    EXPECT_TRUE(ask(*backend_, finish).accepted);
    ask(*backend_, timer("a", backend_->now_us() + kHourUs));
  }
  EXPECT_EQ(size_of("names"), kMany + 2);
  EXPECT_EQ(ask(*backend_, cancel_request("a")).answers.size(), kMany);
  FailedRequest retry;
  retry.name = "a";
  EXPECT_EQ(ask(*backend_, retry).count, 2U);
  EXPECT_EQ(ask(*backend_, claim_request(5)).claimed.size(), 2U);
}

TEST_F(RedisStoreCrowds, AReplaceEndsThemAndBlocksTheNewTimerBehindThoseThatRun) {
  const ClaimRequest claim = claim_oldest_two();
  ASSERT_EQ(claim.claimed.size(), 2U);
  ScheduleRequest replace = timer("a", backend_->now_us() - kSecondUs);
  replace.policy = WF_TIMER_REPLACE;
  const ScheduleRequest replaced = ask(*backend_, replace, 1);
  ASSERT_EQ(replaced.answers.size(), kMany);
  EXPECT_EQ(replaced.answers[0].verdict, WFStoreVerdict::kAfterRun);
  EXPECT_EQ(replaced.answers[1].verdict, WFStoreVerdict::kAfterRun);
  EXPECT_EQ(replaced.answers.back().verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(size_of("names"), 3U);
  EXPECT_TRUE(ask(*backend_, claim_request(5)).claimed.empty());
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    FinishRequest finish;
    finish.run = one.run;
    EXPECT_TRUE(ask(*backend_, finish).accepted);
  }
  const ClaimRequest successor = ask(*backend_, claim_request(5));
  ASSERT_EQ(successor.claimed.size(), 1U);
  EXPECT_EQ(successor.claimed[0].run.timer, replaced.timer);
}

}  // namespace
