#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/RedisStoreBackend.h"
#include "store/RedisStoreKit.h"
#include "store/RedisStorePlace.h"
#include "store/StoreBackend.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "util/Clock.h"

// Which requests a claim goes with. One script is one round trip, and most of what a request that
// comes alone costs the server.

namespace {

using protocol::RedisValue;
using redis_test::calls_of;
using redis_test::RedisServer;
using redis_test::run;
using store_test::ask;
using store_test::cancel_request;
using store_test::carry_out;
using store_test::claim_request;
using store_test::kHourUs;
using store_test::kOneShard;
using store_test::kSecondUs;
using store_test::open_backend;
using store_test::timer;
using store_test::url_of;
using workflow::ClaimRequest;
using workflow::ExtendRequest;
using workflow::FinishRequest;
using workflow::ListRequest;
using workflow::RunId;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreFailure;
using workflow::StoreRequest;

class RedisStoreClaims : public testing::Test {
 protected:
  // What became of requests, of which the last one was a claim.
  struct Group {
    std::vector<StoreRequest> requests;
    bool works = false;
    size_t scripts = 0;

    const StoreRequest& claim() const { return requests.back(); }
    size_t claimed() const { return std::get<ClaimRequest>(claim().what).claimed.size(); }
  };

  // Carries out what is given, and a claim of one timer.
  Group carry_out_with_claim(std::vector<StoreRequest> requests) {
    Group group;
    group.requests = std::move(requests);
    group.requests.emplace_back().what = claim_request(1);
    std::vector<StoreRequest*> pointers;
    for (StoreRequest& request : group.requests) {
      pointers.push_back(&request);
    }
    const size_t before = scripts();
    group.works = backend_->execute(pointers);
    group.scripts = scripts() - before;
    return group;
  }

  // Stores a timer that is overdue. Returns its number.
  uint64_t store(const std::string& name) {
    return ask(*backend_, timer(name, backend_->now_us() - 2 * kSecondUs)).timer;
  }
  // Claims a timer that is due.
  RunId claim_one() {
    const ClaimRequest claim = ask(*backend_, claim_request(1));
    EXPECT_EQ(claim.claimed.size(), 1u);
    return claim.claimed.at(0).run;
  }
  static StoreRequest end_of(const RunId& run, FinishRequest how = {}) {
    how.run = run;
    StoreRequest request;
    request.what = how;
    return request;
  }
  std::string queue() {
    const RedisValue all = command({"ZRANGE", "{app:0}:queue", "0", "-1"});
    std::string text;
    for (size_t i = 0; i < all.arr_size(); i++) {
      text += all[i].string_value() + "\n";
    }
    return text;
  }
  // How many timers of the name "first" wait or run.
  void expect_queued(size_t count) {
    const RedisValue all = command({"ZRANGE", "{app:0}:queue", "0", "-1"});
    const RedisValue numbers = command({"HKEYS", "{app:0}:timers"});
    size_t queued = 0;
    for (size_t i = 0; i < all.arr_size(); i++) {
      const std::string member = all[i].string_value();
      for (size_t j = 0; j < numbers.arr_size(); j++) {
        queued += member.ends_with(numbers[j].string_value()) ? 1 : 0;
      }
    }
    // A damaged one is in the queue alone.
    EXPECT_EQ(all.arr_size(), count + damaged_);
    EXPECT_EQ(queued, count);
  }
  static bool is_accepted(const StoreRequest& request) {
    return request.failure.error == 0 && std::get<FinishRequest>(request.what).accepted;
  }

  // A timer that is due and that a claim finds missing, while this lives.
  class Damage {
   public:
    explicit Damage(RedisStoreClaims& test) : test_(test) {
      const std::string number = std::to_string(test.store("damaged"));
      field_ = std::string(19 - number.size(), '0') + number;
      record_ = test_.command({"HGET", "{app:0}:timers", field_}).string_value();
      EXPECT_EQ(test_.command({"HDEL", "{app:0}:timers", field_}).int_value(), 1);
      test_.damaged_ = 1;
    }
    ~Damage() {
      EXPECT_EQ(test_.command({"HSET", "{app:0}:timers", field_, record_}).int_value(), 1);
      ask(*test_.backend_, cancel_request("damaged"));
      test_.damaged_ = 0;
    }
    Damage(const Damage&) = delete;
    Damage& operator=(const Damage&) = delete;

   private:
    RedisStoreClaims& test_;
    std::string field_;
    std::string record_;
  };

  RedisValue command(const std::vector<std::string>& words) {
    return run(server_.url(), words).value;
  }

  RedisServer server_;
  size_t damaged_ = 0;
  const std::unique_ptr<StoreBackend> backend_ = open_backend(url_of(server_, kOneShard));

 private:
  size_t scripts() { return calls_of(server_.url(), "evalsha"); }
};

}  // namespace

TEST_F(RedisStoreClaims, EndsOfRunsGoWithTheNextClaim) {
  store("first");
  const StoreRequest end = end_of(claim_one());
  store("second");
  const Group group = carry_out_with_claim({end});
  EXPECT_TRUE(group.works);
  EXPECT_EQ(group.scripts, 1u);
  EXPECT_TRUE(is_accepted(group.requests[0]));
  EXPECT_EQ(group.claimed(), 1u);
}

// It may have to wait for replicas, and a lease should not.
TEST_F(RedisStoreClaims, WhatAUserAsksForIsNotInTheScriptOfTheClaim) {
  StoreRequest schedule;
  schedule.what = timer("first", backend_->now_us() - kSecondUs);
  schedule.id = {1, 1};
  StoreRequest list;
  list.what = ListRequest{};
  for (const StoreRequest& request : {schedule, list}) {
    const Group group = carry_out_with_claim({request});
    EXPECT_TRUE(group.works);
    EXPECT_EQ(group.scripts, 2u);
  }
}

TEST_F(RedisStoreClaims, DamageThatAClaimMeetsDoesNotHoldUpTheEndsOfRuns) {
  FinishRequest done;
  FinishRequest retry;
  retry.how = FinishRequest::How::kRetry;
  retry.next_us = backend_->now_us() + kHourUs;
  FinishRequest failed;
  failed.how = FinishRequest::How::kFailed;
  for (const FinishRequest& how : {done, retry, failed}) {
    store("first");
    const StoreRequest end = end_of(claim_one(), how);
    const Damage damage(*this);
    Group group = carry_out_with_claim({end});
    EXPECT_FALSE(group.works);
    EXPECT_EQ(group.claim().failure.error, EILSEQ) << group.claim().failure.message;
    EXPECT_FALSE(is_accepted(group.requests[0]));
    EXPECT_TRUE(group.requests[0].failure.in_doubt);
    expect_queued(how.how == FinishRequest::How::kRetry ? 1 : 0);

    // What was done in the first script is not done again in the second.
    group = carry_out_with_claim({end});
    EXPECT_FALSE(group.works);
    EXPECT_EQ(group.requests[0].failure.error, 0) << group.requests[0].failure.message;
    EXPECT_EQ(group.claim().failure.error, EILSEQ);
    expect_queued(how.how == FinishRequest::How::kRetry ? 1 : 0);
    ask(*backend_, cancel_request("first"));
  }
}

TEST_F(RedisStoreClaims, DamageThatAClaimMeetsDoesNotHoldUpAnExtension) {
  store("first");
  ExtendRequest extend;
  extend.runs = {claim_one()};
  extend.lease_us = 2 * kHourUs;
  StoreRequest request;
  request.what = extend;
  {
    const Damage damage(*this);
    for (int time = 1; time <= 2; time++) {
      EXPECT_FALSE(carry_out_with_claim({request}).works);
      expect_queued(1);
    }
  }
  EXPECT_TRUE(carry_out_with_claim({request}).works);  // apart, for the last time
  const Group group = carry_out_with_claim({end_of(extend.runs[0])});
  EXPECT_TRUE(group.works);
  EXPECT_EQ(group.scripts, 1u);
  EXPECT_TRUE(is_accepted(group.requests[0]));
  expect_queued(0);
}

// It has found a timer that is all right before it finds the other one missing.
TEST_F(RedisStoreClaims, AClaimThatMeetsDamageChangesNothing) {
  ask(*backend_, timer("first", backend_->now_us() - kSecondUs / 2));  // due, and fresh
  const Damage damage(*this);                                          // overdue: it comes later
  const std::string before = queue();
  StoreFailure failure;
  ClaimRequest claim = claim_request(2);
  EXPECT_FALSE(carry_out(*backend_, claim, &failure));
  EXPECT_EQ(failure.error, EILSEQ) << failure.message;
  EXPECT_EQ(queue(), before);
  expect_queued(1);
}

// A claim of several shards first looks at all of them, and then takes from those where timers are
// due for longest.
TEST(RedisStore, AClaimThatCameTooLateInOneShardIsToBeRepeated) {
  // What a store asks, it asks at a time of this clock.
  class Clock final : public workflow::Clock {
   public:
    int64_t now_ns() override { return 0; }
    int64_t now_ns_on(workflow::ClockId) override {
      if (calls_left_ > 0 && --calls_left_ == 0) {
        then_();
      }
      return kHourUs * 1000;
    }
    // Calls `then` when the time is asked for the n-th time from now.
    void call_at(int n, std::function<void()> then) {
      then_ = std::move(then);
      calls_left_ = n;
    }

   private:
    std::function<void()> then_;
    int calls_left_ = 0;
  };
  RedisServer server;
  const std::string url = url_of(server, "&namespace=app&shards=2");
  Clock clock;
  const auto open = [&](uint64_t session) {
    workflow::StoreBackendOptions options;
    options.session = session;
    int error = 0;
    std::string message;
    auto backend = workflow::RedisStoreBackend::open(url, options, &clock, &error, &message);
    EXPECT_TRUE(backend) << message;
    return backend;
  };
  const auto ours = open(1);
  const auto others = open(2);
  ASSERT_NE(workflow::redis_store_shard("a", 2), workflow::redis_store_shard("b", 2));
  ask(*ours, timer("a", kHourUs - 2));
  ask(*ours, timer("b", kHourUs - 1));

  // Two shards are looked at, and then one is asked. By then the others have what it had.
  ClaimRequest theirs;
  clock.call_at(3, [&] { theirs = ask(*others, claim_request(1)); });
  ClaimRequest claim = ask(*ours, claim_request(1));
  ASSERT_EQ(theirs.claimed.size(), 1U);
  EXPECT_EQ(theirs.claimed[0].spec.name, "a");
  EXPECT_FALSE(theirs.again);
  EXPECT_TRUE(claim.claimed.empty());
  EXPECT_TRUE(claim.again);

  claim = ask(*ours, claim_request(1));
  ASSERT_EQ(claim.claimed.size(), 1U);
  EXPECT_EQ(claim.claimed[0].spec.name, "b");
  EXPECT_FALSE(claim.again);
}

TEST_F(RedisStoreClaims, AClaimThatLargePayloadsEndIsToBeRepeated) {
  constexpr size_t kTimers = 20;
  for (size_t i = 0; i < kTimers; i++) {
    ScheduleRequest large = timer(std::to_string(i), backend_->now_us() - kSecondUs);
    large.spec.payload = std::string(1'000'000, 'x');
    ask(*backend_, large);
  }
  // That the limit leaves some is no reason.
  ClaimRequest claim = ask(*backend_, claim_request(1));
  EXPECT_EQ(claim.claimed.size(), 1U);
  EXPECT_TRUE(claim.more);
  EXPECT_FALSE(claim.again);

  claim = ask(*backend_, claim_request(kTimers));
  const size_t first = claim.claimed.size();
  EXPECT_GT(first, 1U);
  EXPECT_LT(first, kTimers - 1);
  EXPECT_TRUE(claim.again);

  claim = ask(*backend_, claim_request(kTimers));
  EXPECT_EQ(claim.claimed.size(), kTimers - 1 - first);
  EXPECT_FALSE(claim.more);
  EXPECT_FALSE(claim.again);
}
