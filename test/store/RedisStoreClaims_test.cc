#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// Which requests a claim goes with. One script is one round trip, and most of what a request that
// comes alone costs the server.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using store_test::ask;
using store_test::claim_request;
using store_test::kOneShard;
using store_test::kSecondUs;
using store_test::open_backend;
using store_test::timer;
using store_test::url_of;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::StoreBackend;
using workflow::StoreRequest;

class RedisStoreClaims : public testing::Test {
 protected:
  // What became of a request of a user, of the end of a run, and of a claim that came after these.
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

  // Stores a timer that is due. Returns its number.
  uint64_t store(const std::string& name) {
    return ask(*backend_, timer(name, backend_->now_us() - kSecondUs)).timer;
  }
  // Claims a timer that is due. Returns the request that ends its run.
  StoreRequest end_of_a_run() {
    const ClaimRequest claim = ask(*backend_, claim_request(1));
    EXPECT_EQ(claim.claimed.size(), 1u);
    FinishRequest finish;
    finish.run = claim.claimed.at(0).run;
    StoreRequest request;
    request.what = finish;
    return request;
  }
  static bool is_accepted(const StoreRequest& request) {
    return request.failure.error == 0 && std::get<FinishRequest>(request.what).accepted;
  }

  RedisServer server_;
  const std::unique_ptr<StoreBackend> backend_ = open_backend(url_of(server_, kOneShard));

 private:
  size_t scripts() {
    const std::string all = run(server_.url(), {"INFO", "commandstats"}).value.string_value();
    const std::string begin = "cmdstat_evalsha:calls=";
    const size_t place = all.find(begin);
    return place == std::string::npos ? 0 : std::stoul(all.substr(place + begin.size()));
  }
};

}  // namespace

TEST_F(RedisStoreClaims, EndsOfRunsGoWithTheNextClaim) {
  store("first");
  const StoreRequest end = end_of_a_run();
  store("second");
  const Group group = carry_out_with_claim({end});
  EXPECT_TRUE(group.works);
  EXPECT_EQ(group.scripts, 1u);
  EXPECT_TRUE(is_accepted(group.requests[0]));
  EXPECT_EQ(group.claimed(), 1u);
}

// It may have to wait for replicas, and a lease should not.
TEST_F(RedisStoreClaims, WhatAUserAsksForIsConfirmedBeforeTheClaim) {
  StoreRequest schedule;
  schedule.what = timer("first", backend_->now_us() - kSecondUs);
  schedule.id = {1, 1};
  const Group group = carry_out_with_claim({schedule});
  EXPECT_TRUE(group.works);
  EXPECT_EQ(group.scripts, 2u);
  EXPECT_EQ(group.claimed(), 1u);
}

TEST_F(RedisStoreClaims, DamageThatAClaimMeetsDoesNotHoldUpTheEndsOfRuns) {
  store("first");
  const StoreRequest end = end_of_a_run();
  const std::string number = std::to_string(store("damaged"));
  const std::string timers = "{app:0}:timers";
  const std::string field = std::string(19 - number.size(), '0') + number;
  const std::string record = run(server_.url(), {"HGET", timers, field}).value.string_value();
  ASSERT_EQ(run(server_.url(), {"HDEL", timers, field}).text, "1");

  Group group = carry_out_with_claim({end});
  EXPECT_FALSE(group.works);
  EXPECT_EQ(group.claim().failure.error, EILSEQ) << group.claim().failure.message;
  EXPECT_FALSE(is_accepted(group.requests[0]));
  EXPECT_TRUE(group.requests[0].failure.in_doubt);

  group = carry_out_with_claim({end});
  EXPECT_FALSE(group.works);
  EXPECT_TRUE(is_accepted(group.requests[0])) << group.requests[0].failure.message;
  EXPECT_EQ(group.claim().failure.error, EILSEQ);

  // They go together again after a claim that works.
  ASSERT_EQ(run(server_.url(), {"HSET", timers, field, record}).text, "1");
  const StoreRequest next_end = end_of_a_run();
  group = carry_out_with_claim({next_end});
  EXPECT_TRUE(group.works);
  EXPECT_EQ(group.scripts, 1u);
  EXPECT_TRUE(is_accepted(group.requests[0]));
}
