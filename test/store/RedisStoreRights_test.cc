#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// What a user of a Redis must be allowed to do, and that a store is not left half changed when that
// is not so.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using std::chrono::milliseconds;
using store_test::carry_out;
using store_test::claim_request;
using store_test::durable;
using store_test::open_backend;
using store_test::timer;
using store_test::why_not;
using testing::HasSubstr;
using workflow::ClaimRequest;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

class RedisStoreRights : public testing::Test {
 protected:
  void set_user(const std::string& name, const std::vector<std::string>& rights) {
    std::vector<std::string> command = {"ACL", "SETUSER", name, "on", ">pw"};
    command.insert(command.end(), rights.begin(), rights.end());
    ASSERT_EQ(run(server_.url(), command).text, "OK");
  }
  std::string url_of(const std::string& user) const {
    return server_.url(user + ":pw@") + "&namespace=app";
  }

  // Those that docs/store.md names.
  const std::vector<std::string> rights_ = {
      "-@all",  "+eval",  "+evalsha",    "+script", "+info", "+time",     "+publish", "+subscribe",
      "+@hash", "+@list", "+@sortedset", "+exists", "+type", "&app:news", "~{app:*"};
  RedisServer server_{durable()};
};

TEST_F(RedisStoreRights, NoOthersAreNeededThanTheDocumentedOnes) {
  set_user("worker", rights_);
  store_test::SeenRuns seen;
  const store_test::StorePtr store = store_test::open_store(url_of("worker") + "&shards=2");
  ASSERT_TRUE(store);
  ASSERT_EQ(store->handle("kind", seen.handler(*store)), 0);
  const WFStoreResult stored = store->schedule({"now", milliseconds(0), "kind"});
  EXPECT_TRUE(stored.ok()) << stored.message;
  EXPECT_EQ(stored.receipt.to_string(), "unknown");  // without CONFIG
  ASSERT_TRUE(seen.wait_for(1));
  EXPECT_TRUE(store->list("").ok());
  EXPECT_TRUE(store->cancel("now").ok());
}

TEST_F(RedisStoreRights, AStoreIsNotOpenedWithoutThem) {
  set_user("worker", rights_);
  const std::string refused = std::to_string(EACCES) + " " + server_.in_messages() + "NOPERM";
  EXPECT_THAT(why_not(server_.url("worker:pw@") + "&namespace=other"), HasSubstr(refused));
  set_user("nobody", {"-@all", "+info"});
  EXPECT_THAT(why_not(url_of("nobody")), HasSubstr(refused));
  for (const std::string missing : {"hset", "hdel", "zadd", "zrem", "lpop", "zlexcount"}) {
    set_user("worker", rights_);
    set_user("worker", {"-" + missing});
    EXPECT_THAT(why_not(url_of("worker")), HasSubstr(refused)) << missing;
  }
}

// Only a part of what a script writes would be there if the server stopped it in the middle.
TEST_F(RedisStoreRights, ARightThatIsTakenAwayForAWhileLosesNothing) {
  uint64_t number = 0;
  for (const std::string missing : {"hset", "hdel", "zadd", "zrem"}) {
    SCOPED_TRACE(missing);
    set_user("worker", rights_);
    const auto backend = open_backend(url_of("worker"));
    ASSERT_TRUE(backend);
    const auto schedule = [&](const std::string& name) {
      StoreFailure failure;
      ScheduleRequest request = timer(name, backend->now_us() - store_test::kSecondUs);
      carry_out(*backend, request, &failure, ++number);
      return failure;
    };
    const auto claim = [&backend](StoreFailure* failure) {
      ClaimRequest request = claim_request(10);
      carry_out(*backend, request, failure);
      return request.claimed.size();
    };
    EXPECT_EQ(schedule("first").error, 0);
    EXPECT_EQ(schedule("second").error, 0);

    set_user("worker", {"-" + missing});
    const StoreFailure refused = schedule("third");
    EXPECT_EQ(refused.error, EACCES) << refused.message;
    EXPECT_FALSE(refused.in_doubt);
    StoreFailure failure;
    EXPECT_EQ(claim(&failure), 0U);
    EXPECT_EQ(failure.error, EACCES) << failure.message;

    set_user("worker", {"+" + missing});
    std::string message;
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    failure = {};
    EXPECT_EQ(claim(&failure), 2U);
    EXPECT_EQ(failure.error, 0) << failure.message;
  }
}

// A command that has another name counts as one that the user may not run.
TEST(RedisStoreRenamed, ACommandThatWasRenamedIsMissed) {
  for (const std::string command : {"ZREM", "HMGET"}) {
    auto options = durable();
    options.arguments.insert(options.arguments.end(), {"--rename-command", command, "renamed"});
    const RedisServer server(options);
    EXPECT_THAT(why_not(server.url() + "&namespace=app"),
                HasSubstr(std::to_string(EACCES) + " " + server.in_messages()))
        << command;
  }
}

}  // namespace
