#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/RedisStoreKit.h"
#include "store/RedisStoreServer.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"

// What the receipts of a store in a Redis are worth: replicas, and servers that lose the end of
// their log.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using store_test::ask;
using store_test::ask_until;
using store_test::carry_out;
using store_test::claim_request;
using store_test::durable;
using store_test::kSecondUs;
using store_test::names;
using store_test::open_backend;
using store_test::timer;
using store_test::url_of;
using test_support::eventually;
using testing::HasSubstr;
using workflow::AskRequest;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

TEST(RedisStoreReceipts, NameReplicasOnlyThatHaveIt) {
  RedisServer master({.on = RedisServer::On::kTcp, .arguments = {"--appendonly", "yes"}});
  RedisServer replica(redis_test::replica_of(master));
  ASSERT_TRUE(redis_test::is_in_sync(replica));
  const std::string url = master.url() + "?namespace=app&shards=1";
  const auto plain = open_backend(url, 1);
  ask(*plain, timer("plain", kNeverUs), 1);
  EXPECT_EQ(plain->receipt().to_string(), "everysec");
  const auto one = open_backend(url + "&replicas=1", 1);
  ask_until(*one, timer("one", kNeverUs), 2, "replicas(1)");

  replica.signal(SIGSTOP);
  ask(*one, timer("alone", kNeverUs), 4);
  EXPECT_EQ(one->receipt().to_string(), "everysec");
  // Asking writes nothing. Still it is not confirmed before the replica has what is asked about.
  AskRequest question;
  question.asked = {1, 4};
  const auto later = open_backend(url + "&replicas=1", 5);
  EXPECT_TRUE(ask(*later, question).found);
  EXPECT_EQ(later->receipt().to_string(), "everysec");
  replica.signal(SIGCONT);
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(ask(*later, question).found);
    return later->receipt().to_string() == "replicas(1)";
  }));
}

// Whoever wants two has nothing that is worth a mention while one of them is away.
TEST(RedisStoreReceipts, NameAsManyReplicasAsTheUrlAsksFor) {
  RedisServer master({.on = RedisServer::On::kTcp, .arguments = {"--appendonly", "yes"}});
  RedisServer first(redis_test::replica_of(master));
  RedisServer second(redis_test::replica_of(master));
  ASSERT_TRUE(redis_test::is_in_sync(first) && redis_test::is_in_sync(second));
  const auto stored_in = [](const RedisServer& server) {
    return run(server.url(), {"ZCARD", "{app:0}:names"}).text;
  };
  const auto backend = open_backend(master.url() + "?namespace=app&shards=1&replicas=2");
  ask_until(*backend, timer("for both", kNeverUs), 1, "replicas(2)");
  EXPECT_EQ(stored_in(first), "1");
  EXPECT_EQ(stored_in(second), "1");

  second.signal(SIGKILL);
  second.stop();
  ask(*backend, timer("for one", kNeverUs), 2);
  EXPECT_EQ(backend->receipt().to_string(), "everysec");
  EXPECT_EQ(stored_in(master), "2");

  second.start();
  ask_until(*backend, timer("for both again", kNeverUs), 3, "replicas(2)");
  EXPECT_EQ(stored_in(first), "3");
  EXPECT_EQ(stored_in(second), "3");
}

// A server that loses the end of its data without a restart, so that connections to it live on: it
// becomes a replica of one that has less, and a master again.
class RedisStoreReplicaMeanwhile : public testing::Test {
 protected:
  // Claims a timer, which is what the server loses.
  void lose_claim(workflow::StoreBackend& backend, ClaimRequest* lost) {
    ASSERT_TRUE(redis_test::is_in_sync(other_));
    ask(backend, timer("kept", backend.now_us() - kSecondUs));
    ASSERT_TRUE(eventually([&] {
      return run(other_.url(), {"ZCARD", "{app:0}:names"}).text == "1";
    }));
    ASSERT_EQ(run(other_.url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
    *lost = ask(backend, claim_request(1));
    ASSERT_EQ(lost->claimed.size(), 1U);

    const std::string port = std::to_string(other_.port());
    ASSERT_EQ(run(server_.url(), {"REPLICAOF", "127.0.0.1", port}).text, "OK");
    ASSERT_TRUE(redis_test::is_in_sync(server_));
    ASSERT_EQ(run(server_.url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
  }

  RedisServer server_{{.on = RedisServer::On::kTcp}};
  RedisServer other_{redis_test::replica_of(server_)};
  const std::string url_ = server_.url() + "?namespace=app&shards=1";
};

// This process knows the fence that was lost.
TEST_F(RedisStoreReplicaMeanwhile, AServerGivesNoFenceTwice) {
  const auto backend = open_backend(url_);
  ClaimRequest lost;
  ASSERT_NO_FATAL_FAILURE(lose_claim(*backend, &lost));

  ClaimRequest request = claim_request(1);
  StoreFailure failure;
  // If this has taken long, the store connects anew first.
  if (!carry_out(*backend, request, &failure)) {
    ASSERT_TRUE(store_test::reopens(*backend));
    request = ask(*backend, claim_request(1));
  }
  ASSERT_EQ(request.claimed.size(), 1U);
  EXPECT_GT(request.claimed[0].run.fence, lost.claimed[0].run.fence);
  FinishRequest late;
  late.run = lost.claimed[0].run;
  EXPECT_FALSE(ask(*backend, late).accepted);
  EXPECT_EQ(names(*backend), std::vector<std::string>{"kept"});
}

// Nobody knows it any more. The server is the same process as before, but its data have another
// history: another replication id.
TEST_F(RedisStoreReplicaMeanwhile, TheEpochRisesByTheReplicationId) {
  auto backend = open_backend(url_);
  ClaimRequest lost;
  const auto run_id = [this] {
    return workflow::redis_info_field(redis_test::info(server_.url(), "server"), "run_id");
  };
  const std::string before = run_id();
  ASSERT_NO_FATAL_FAILURE(lose_claim(*backend, &lost));
  backend->close();
  backend = open_backend(url_, 2);
  const ClaimRequest request = ask(*backend, claim_request(1));
  ASSERT_EQ(request.claimed.size(), 1U);
  EXPECT_GT(request.claimed[0].run.fence, lost.claimed[0].run.fence);
  EXPECT_NE(before, "");
  EXPECT_EQ(run_id(), before);
}

// The file to which the server appends.
std::filesystem::path log_of(const RedisServer& server) {
  std::filesystem::path log;
  for (const auto& entry :
       std::filesystem::directory_iterator(server.folder() + "/appendonlydir")) {
    if (entry.path().string().ends_with(".incr.aof")) {
      log = entry.path();
    }
  }
  return log;
}
void cut(const std::filesystem::path& file, size_t bytes) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - bytes);
}

TEST(RedisStoreReceipts, ALogThatLostWhatWasSyncedIsNoticed) {
  RedisServer server(durable());
  const auto backend = open_backend(url_of(server));
  for (uint64_t i = 1; i <= 10; i++) {
    ask(*backend, timer(std::to_string(i), kNeverUs), i);
    EXPECT_EQ(backend->receipt().to_string(), "fsync");
  }
  server.signal(SIGKILL);
  server.stop();
  server.start();
  ASSERT_TRUE(store_test::reopens(*backend));
  EXPECT_EQ(names(*backend).size(), 10U);

  ask(*backend, timer("the last", kNeverUs), 11);
  server.signal(SIGKILL);
  server.stop();
  cut(log_of(server), 1);
  server.start();
  std::string message;
  ASSERT_TRUE(eventually([&] { return backend->reopen(&message) == EILSEQ; }));
  EXPECT_THAT(message, HasSubstr("lost requests that it had synced"));
  ScheduleRequest request = timer("more", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, request, &failure, 12));
  EXPECT_EQ(failure.error, EILSEQ);
  EXPECT_FALSE(failure.in_doubt);
  // Whoever opens it anew accepts what is there.
  EXPECT_EQ(names(*open_backend(url_of(server), 2)).size(), 10U);
}

// A kill may end the log within a transaction. Redis 7.0 would go on behind that part by itself,
// and carry it out after the next start. With aof-load-truncated set to "no" it is removed before.
TEST(RedisStoreReceipts, HalfATransactionAtTheEndOfTheLogIsNeverCarriedOut) {
  RedisServer server(durable());
  const auto backend = open_backend(url_of(server, "&namespace=app&shards=1"));
  const std::string timers = "{app:0}:timers";
  const uint64_t first = ask(*backend, timer("first", kNeverUs), 1).timer;
  std::string number = std::to_string(first);
  number.insert(0, 19 - number.size(), '0');
  ASSERT_EQ(run(server.url(), {"HEXISTS", timers, number}).text, "1");
  server.signal(SIGKILL);
  server.stop();
  const auto bulk = [](const std::string& text) { return redis_test::bulk(text); };
  std::ofstream(log_of(server), std::ios::app)
      << "*1\r\n"
      << bulk("MULTI") << "*3\r\n"
      << bulk("HDEL") << bulk(timers) << bulk(number) << "*1\r\n$4\r\nEX";
  for (uint64_t i = 2; i <= 3; i++) {
    server.start();
    ASSERT_TRUE(store_test::reopens(*backend));
    ask(*backend, timer("more", kNeverUs), i);
    EXPECT_EQ(run(server.url(), {"HEXISTS", timers, number}).text, "1");
    EXPECT_EQ(names(*backend).size(), i);
    server.signal(SIGKILL);
    server.stop();
  }
}

TEST(RedisStoreReceipts, ALogThatIsSyncedEverySecondMayLoseItsEnd) {
  RedisServer server({.arguments = {"--appendonly", "yes", "--appendfsync", "everysec"}});
  const auto backend = open_backend(url_of(server));
  ask(*backend, timer("a", kNeverUs), 1);
  EXPECT_EQ(backend->receipt().to_string(), "everysec");
  const uint64_t last = ask(*backend, timer("a", kNeverUs), 2).timer;
  ASSERT_TRUE(eventually([&] { return std::filesystem::file_size(log_of(server)) > 0; }));
  server.signal(SIGTERM);  // writes what it has
  ASSERT_TRUE(eventually([&] { return run(server.url(), {"PING"}).text != "PONG"; }));
  server.stop();
  cut(log_of(server), 1);
  server.start();
  ASSERT_TRUE(store_test::reopens(*backend));
  EXPECT_EQ(names(*backend), std::vector<std::string>{"a"});
  AskRequest question;
  question.asked = {1, 2};
  EXPECT_FALSE(ask(*backend, question).found);
  // The number of what was lost is not given out again.
  EXPECT_GT(ask(*backend, timer("a", kNeverUs), 3).timer, last);
}

// With this setting nothing is synced while a child process saves.
TEST(RedisStoreReceipts, ALogThatIsNotSyncedDuringASaveIsMemory) {
  for (const char* fsync : {"always", "everysec"}) {
    RedisServer server({.arguments = {"--appendonly", "yes", "--appendfsync", fsync,
                                      "--no-appendfsync-on-rewrite", "yes"}});
    EXPECT_EQ(open_backend(url_of(server))->receipt().to_string(), "memory") << fsync;
  }
}

class RedisStoreSettings : public testing::Test {
 protected:
  void set(const std::string& name, const std::string& value) {
    ASSERT_EQ(run(server_.url(), {"CONFIG", "SET", name, value}).text, "OK");
  }
  // What the receipt of a request says that is asked now.
  std::string receipt() {
    ask(*backend_, timer("a", kNeverUs), ++requests_);
    return backend_->receipt().to_string();
  }
  // The child that writes a log takes 20 s for each key, until it is ended.
  void let_rewrites_last() { set("rdb-key-save-delay", "20000000"); }
  bool is_rewriting() { return info("persistence", "aof_rewrite_in_progress") == "1"; }
  // What INFO says, for questions of this test alone.
  std::string info(const std::string& section, const std::string& name) {
    infos_asked_++;
    return workflow::redis_info_field(redis_test::info(server_.url(), section), name);
  }
  // How many questions of the store about its settings the server has answered.
  size_t looks() {
    const size_t asked_here = infos_asked_;
    const std::string calls = info("commandstats", "cmdstat_info");  // calls=n,...
    EXPECT_THAT(calls, testing::StartsWith("calls="));
    return std::strtoul(calls.c_str() + std::string("calls=").size(), nullptr, 10) - asked_here;
  }
  // Sends requests until the store has looked again.
  bool looks_again() {
    const size_t before = looks();
    return eventually([&] {
      receipt();
      return looks() > before;
    });
  }
  // Whether receipts say so by and by.
  bool says(const std::string& level) {
    return eventually([&] { return receipt() == level; });
  }

  RedisServer server_{durable()};
  const std::unique_ptr<workflow::StoreBackend> backend_ = open_backend(url_of(server_));
  uint64_t requests_ = 0;
  size_t infos_asked_ = 0;
};

TEST_F(RedisStoreSettings, AStoreThatIsOpenNoticesHowTheServerSyncs) {
  EXPECT_EQ(receipt(), "fsync");
  struct Step {
    const char* name;
    const char* value;
    const char* level;
  };
  for (const Step& step : {
           Step{"appendfsync", "everysec", "everysec"},
           Step{"appendfsync", "no", "memory"},
           Step{"appendfsync", "always", "fsync"},
           Step{"no-appendfsync-on-rewrite", "yes", "memory"},
           Step{"no-appendfsync-on-rewrite", "no", "fsync"},
           Step{"appendonly", "no", "memory"},
           Step{"appendonly", "yes", "fsync"},
       }) {
    set(step.name, step.value);
    EXPECT_TRUE(says(step.level)) << step.name << " " << step.value;
  }
}

// The old log is synced until the new one is whole.
TEST_F(RedisStoreSettings, ALogThatIsRewrittenGoesOnCounting) {
  EXPECT_EQ(receipt(), "fsync");
  let_rewrites_last();
  EXPECT_TRUE(looks_again());
  ASSERT_FALSE(run(server_.url(), {"BGREWRITEAOF"}).value.is_error());
  EXPECT_TRUE(looks_again());
  EXPECT_EQ(receipt(), "fsync");
  EXPECT_TRUE(looks_again());
  EXPECT_EQ(receipt(), "fsync");
  EXPECT_TRUE(is_rewriting());
  set("appendonly", "no");  // ends the child
}

// Nobody has seen that there was no log in between, but the server has counted the changes. It may
// even be told to forget what it has counted.
TEST_F(RedisStoreSettings, ALogThatIsSwitchedOffAndOnAgainIsTheFirstOne) {
  for (const bool forgets : {false, true}) {
    EXPECT_TRUE(says("fsync"));
    let_rewrites_last();
    EXPECT_TRUE(looks_again());
    set("appendonly", "no");
    set("appendonly", "yes");
    if (forgets) {
      ASSERT_EQ(run(server_.url(), {"CONFIG", "RESETSTAT"}).text, "OK");
      infos_asked_ = 0;
    }
    EXPECT_TRUE(says("memory"));
    EXPECT_TRUE(looks_again());
    EXPECT_EQ(receipt(), "memory");
    EXPECT_TRUE(is_rewriting());
    set("appendonly", "no");  // ends the child
    set("rdb-key-save-delay", "0");
    set("appendonly", "yes");
  }
}

TEST_F(RedisStoreSettings, APolicyThatMayDropTimersIsRefused) {
  set("maxmemory-policy", "allkeys-lru");
  StoreFailure failure;
  size_t stored = 0;
  std::string last_receipt;
  EXPECT_TRUE(eventually([&] {
    ScheduleRequest request = timer("a", kNeverUs);
    if (!carry_out(*backend_, request, &failure, ++requests_)) return true;
    stored++;
    last_receipt = backend_->receipt().to_string();
    return false;
  }));
  EXPECT_EQ(last_receipt, "unknown");  // the server has said then that it may drop the timer
  EXPECT_EQ(failure.error, EINVAL);
  EXPECT_FALSE(failure.in_doubt);
  EXPECT_THAT(failure.message, HasSubstr("the maxmemory-policy of the server is allkeys-lru"));
  std::string message;
  EXPECT_EQ(backend_->reopen(&message), EINVAL);

  set("maxmemory-policy", "noeviction");
  EXPECT_EQ(backend_->reopen(&message), 0) << message;
  EXPECT_EQ(names(*backend_).size(), stored);
  EXPECT_EQ(receipt(), "fsync");
}

// It is asked no more for what it has refused.
TEST_F(RedisStoreSettings, ThatAServerHidesAreNotAskedForAgain) {
  ASSERT_EQ(run(server_.url(), {"ACL", "SETUSER", "default", "-config|get"}).text, "OK");
  std::string message;
  ASSERT_EQ(backend_->reopen(&message), 0) << message;
  EXPECT_EQ(receipt(), "unknown");
  const std::string refused = info("commandstats", "cmdstat_config|get");
  EXPECT_THAT(refused, HasSubstr("rejected_calls=1,"));
  EXPECT_TRUE(looks_again());
  EXPECT_EQ(receipt(), "unknown");
  EXPECT_EQ(info("commandstats", "cmdstat_config|get"), refused);
}

// As when the store is opened: nobody would know any more whether timers are dropped.
TEST_F(RedisStoreSettings, AServerThatBeginsToHideWhatItIsIsRefused) {
  EXPECT_EQ(receipt(), "fsync");
  ASSERT_EQ(run(server_.url(), {"ACL", "SETUSER", "default", "-info"}).text, "OK");
  StoreFailure failure;
  EXPECT_TRUE(eventually([&] {
    ScheduleRequest request = timer("a", kNeverUs);
    return !carry_out(*backend_, request, &failure, ++requests_);
  }));
  EXPECT_EQ(failure.error, EACCES);
  EXPECT_FALSE(failure.in_doubt);
  ASSERT_EQ(run(server_.url(), {"ACL", "SETUSER", "default", "+info"}).text, "OK");
  std::string message;
  EXPECT_EQ(backend_->reopen(&message), 0) << message;
}

// A server that gets its first replica is another one for the scripts.
TEST(RedisStoreReceipts, FollowTheSettingsAlsoAfterTheServerHasGotAReplica) {
  RedisServer server({.on = RedisServer::On::kTcp, .arguments = {"--appendonly", "yes"}});
  const auto backend = open_backend(server.url());
  RedisServer replica(redis_test::replica_of(server));
  ASSERT_TRUE(redis_test::is_in_sync(replica));
  uint64_t number = 0;
  for (const auto& [fsync, level] :
       {std::pair("always", "fsync"), {"everysec", "everysec"}, {"no", "memory"}}) {
    ASSERT_EQ(run(server.url(), {"CONFIG", "SET", "appendfsync", fsync}).text, "OK");
    EXPECT_TRUE(eventually([&, level = level] {
      ask(*backend, timer("a", kNeverUs), ++number);
      return backend->receipt().to_string() == level;
    })) << level;
  }
}

TEST(RedisStoreReceipts, TheFirstLogCountsOnlyWhenItIsWhole) {
  RedisServer server({.arguments = {"--appendfsync", "always"}});
  const auto set = [&server](const std::string& name, const std::string& value) {
    return run(server.url(), {"CONFIG", "SET", name, value}).text;
  };
  const auto backend = open_backend(url_of(server));
  ask(*backend, timer("a", kNeverUs), 1);
  EXPECT_EQ(backend->receipt().to_string(), "memory");
  // The child that writes it takes 20 s for each key, until it is ended.
  ASSERT_EQ(set("rdb-key-save-delay", "20000000"), "OK");
  ASSERT_EQ(set("appendonly", "yes"), "OK");
  EXPECT_THAT(run(server.url(), {"INFO"}).value.string_value(), HasSubstr("aof_enabled:1"));
  const auto other = open_backend(url_of(server), 2);
  ask(*other, timer("b", kNeverUs), 1);
  EXPECT_EQ(other->receipt().to_string(), "memory");
  // Then the log is whole. A store that is open finds out.
  ASSERT_EQ(set("appendonly", "no"), "OK");
  ASSERT_EQ(set("rdb-key-save-delay", "0"), "OK");
  ASSERT_EQ(set("appendonly", "yes"), "OK");
  uint64_t number = 2;
  EXPECT_TRUE(eventually([&] {
    ask(*other, timer("c", kNeverUs), number++);
    return other->receipt().to_string() == "fsync";
  }));
}

}  // namespace
