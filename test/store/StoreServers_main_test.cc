#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/LedgerPlay.h"
#include "store/LedgerRounds.h"
#include "store/LostPower.h"
#include "store/Naming.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisCommands.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"
#include "support/TestSeed.h"

// Stores of several processes whose servers end, stop, forget or are replaced in mid-load. An
// outside ledger judges all of it, see KillLedger.h.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using redis_test::run;
using std::chrono::milliseconds;
using store_test::Children;
using store_test::KillLedger;
using store_test::kLease;
using store_test::LedgerRounds;
using store_test::name_of;
using store_test::name_of_round;
using store_test::play;
using store_test::rounds;
using test_support::eventually;
using test_support::test_seed;
using test_support::TestRandom;

// For a Redis that syncs all that it stores.
const std::vector<std::string> kDurable = {"--appendonly", "yes", "--appendfsync", "always"};

// What happens to servers.
class StoreFaultyServers;

struct ServerFault {
  enum class Sentinels { kNone, kPlayed, kReal };

  const char* name;
  void (*strike)(StoreFaultyServers& test);
  bool is_of_a_cluster = false;
  bool replaces_masters = false;  // and so may undo what no replica has
  Sentinels sentinels = Sentinels::kNone;
};

std::ostream& operator<<(std::ostream& out, const ServerFault& fault) {
  return out << fault.name;
}

class StoreFaultyServers : public testing::TestWithParam<ServerFault> {
 public:
  StoreFaultyServers();

  RedisServer& server() { return *server_; }
  RedisCluster& cluster() { return *cluster_; }
  // Two servers, of which Sentinels name one: a Sentinel that the test plays, or real ones.
  struct Named {
    RedisServer first{{.on = RedisServer::On::kTcp, .arguments = kDurable}};
    RedisServer second{{.on = RedisServer::On::kTcp, .arguments = kDurable}};
    bool is_second = false;
    std::unique_ptr<store_test::Naming> played = {};
    std::unique_ptr<redis_test::Sentinels> real = {};

    RedisServer& master() { return is_second ? second : first; }
    RedisServer& replica() { return is_second ? first : second; }
    std::string addresses() const { return played ? played->address() : real->addresses(); }
    void make_replica() {
      EXPECT_EQ(
          run(replica().url(), {"REPLICAOF", "127.0.0.1", std::to_string(master().port())}).text,
          "OK");
      EXPECT_TRUE(redis_test::is_in_sync(replica()));
    }
  };
  Named& named() { return *named_; }
  TestRandom& random() { return random_; }
  LedgerRounds& ledger() { return ledger_; }
  const std::string& space() const { return space_; }
  int64_t strikes() const { return strikes_; }
  // Which node of the cluster is a master, and its replica.
  std::pair<size_t, size_t>& some_pair() { return pairs_[random_.below(pairs_.size())]; }

  void begin_store(int64_t number);
  void play_round(int64_t round);

 protected:
  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisCluster> cluster_;
  std::unique_ptr<Named> named_;
  std::string space_;
  int64_t strikes_ = 0;
  std::vector<std::pair<size_t, size_t>> pairs_ = {{0, 2}, {1, 3}};
};

KillLedger::Rules rules_of(const ServerFault& fault) {
  return {.receipt = fault.replaces_masters ? "replicas(1)" : "fsync",
          .has_unknown_receipts = fault.is_of_a_cluster,
          .undoes_runs = fault.replaces_masters,
          .undoes_other_receipts = fault.replaces_masters,
          .lease_us = kLease.count()};
}

StoreFaultyServers::StoreFaultyServers() : ledger_(rules_of(GetParam())) {
  if (GetParam().sentinels != ServerFault::Sentinels::kNone) {
    named_ = std::make_unique<Named>();
    named_->make_replica();
    if (GetParam().sentinels == ServerFault::Sentinels::kReal) {
      named_->real = std::make_unique<redis_test::Sentinels>(named_->master());
      EXPECT_NE(named_->real->settle(named_->first, named_->second), nullptr);
    } else {
      named_->played = std::make_unique<store_test::Naming>();
      named_->played->name(named_->master());
    }
  } else if (!GetParam().is_of_a_cluster) {
    server_ = std::make_unique<RedisServer>(
        RedisServer::Options{.arguments = kDurable, .environment = store_test::with_sync_notes()});
  } else if (GetParam().replaces_masters) {
    cluster_ = std::make_unique<RedisCluster>(
        RedisCluster::Options{.masters = 2, .replicas = 2, .arguments = kDurable});
  } else {
    cluster_ = std::make_unique<RedisCluster>(
        RedisCluster::Options{.arguments = kDurable,
                              .environment_of_first = store_test::with_sync_notes(),
                              .environment_of_others = store_test::with_sync_notes()});
  }
}

void StoreFaultyServers::begin_store(int64_t number) {
  space_ = "servers" + std::to_string(number);
  const std::string space = "namespace=" + space_;
  if (named_) {
    ledger_.begin_store("redis+sentinel://" + named_->addresses() + "/main?" + space +
                        "&shards=2&replicas=1");
    return;
  }
  ledger_.begin_store(
      server_ ? server_->url() + "&" + space + "&shards=2"
              : cluster_->store_url(space + "&shards=6" +
                                    (GetParam().replaces_masters ? "&replicas=1" : "")));
}

// Two processes use the store while there are faults.
void StoreFaultyServers::play_round(int64_t round) {
  const std::string name = name_of_round(round);
  std::vector<std::string> pace;
  if (GetParam().sentinels == ServerFault::Sentinels::kReal) {
    pace = {"LEDGER_PAUSE_US=2000"};  // a strike takes seconds
  }
  Children children;
  children.push_back(ledger_.start_worker(name + 'a', name + 'b', pace));
  children.push_back(ledger_.start_worker(name + 'b', name + 'a', pace));
  for (const auto& child : children) {
    ASSERT_EQ(child->line(), "begun");
  }
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(200)));
    GetParam().strike(*this);
    strikes_++;
    ASSERT_TRUE(ledger_.wait_for_answers(20));
  }
}

TEST_P(StoreFaultyServers, AnOutsideLedgerOfReceiptsAndStartsHolds) {
  const bool is_real = GetParam().sentinels == ServerFault::Sentinels::kReal;
  if (is_real && test_support::env_number("WORKFLOW_STORE_ALL_FAULTS", 0) == 0) {
    GTEST_SKIP() << "the played ones show the same code, and need a third of the time";
  }
  play(
      ledger_, rounds(is_real ? 1 : 2), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { play_round(round); }, [this] { return ledger_.saw_enough(); });
}

// The first of these tests would notice a server, or a disk, that does not sync what it says.
TEST(StoreLyingServers, AreNoticed) {
  RedisServer server(
      {.arguments = kDurable, .environment = store_test::with_sync_notes("SYNCS_NOTED=20")});
  LedgerRounds ledger({.receipt = "fsync"});
  ledger.begin_store(server.url() + "&namespace=lies&shards=2");
  {
    const auto child = ledger.start_worker("a", "b");
    ASSERT_EQ(child->line(), "begun");
    ASSERT_TRUE(eventually([&ledger] { return ledger.answers("ok ") >= 500; }));
    store_test::lose_power(server);
  }
  const std::string wrong = ledger.end_store();
  EXPECT_NE(wrong, "");
  EXPECT_EQ(wrong.find(" says "), std::string::npos) << wrong;
}

void lose_power(StoreFaultyServers& test) {
  store_test::lose_power(test.server());
}
void stop_beyond_leases(StoreFaultyServers& test) {
  test.server().signal(SIGSTOP);
  std::this_thread::sleep_for(kLease + milliseconds(100));  // until they have ended
  test.server().signal(SIGCONT);
}
void forget_scripts(StoreFaultyServers& test) {
  EXPECT_EQ(run(test.server().url(), {"SCRIPT", "FLUSH"}).text, "OK");
}
void kill_connections(StoreFaultyServers& test) {
  for (int i = 0; i < 5; i++) {
    run(test.server().url(), {"CLIENT", "KILL", "TYPE", "normal"});
  }
}
// Until a schedule was refused.
void fill_memory(StoreFaultyServers& test) {
  const std::string refused = "refused " + std::to_string(ENOSPC);
  const size_t enough = test.ledger().answers(refused) + 1;
  const auto set_limit = [&test](const char* bytes) {
    EXPECT_EQ(run(test.server().url(), {"CONFIG", "SET", "maxmemory", bytes}).text, "OK");
  };
  set_limit("1");
  EXPECT_TRUE(eventually([&] { return test.ledger().answers(refused) >= enough; }));
  set_limit("0");
}
void lose_power_of_masters(StoreFaultyServers& test) {
  RedisCluster& cluster = test.cluster();
  const size_t first = test.random().below(cluster.masters());
  const size_t count = 1 + test.random().below(cluster.masters());
  for (size_t i = first; i < first + count; i++) {
    cluster.node(i % cluster.masters()).signal(SIGKILL);
  }
  for (size_t i = first; i < first + count; i++) {
    store_test::lose_power(cluster.node(i % cluster.masters()));
  }
}
void move_slots(StoreFaultyServers& test) {
  RedisCluster& cluster = test.cluster();
  for (uint64_t shard = 0; shard < 6; shard++) {
    const size_t slot = cluster.slot_of("{" + test.space() + ':' + std::to_string(shard) + '}');
    cluster.move(slot, test.random().below(cluster.masters()));
  }
}
// A master is stopped, its replica takes its place, and the old one goes on.
void replace_master(StoreFaultyServers& test) {
  RedisCluster& cluster = test.cluster();
  auto& [master, replica] = test.some_pair();
  cluster.node(master).signal(SIGSTOP);
  cluster.promote(replica);
  cluster.node(master).signal(SIGCONT);
  std::swap(master, replica);
  EXPECT_TRUE(cluster.is_in_sync(replica));
}
// The same, as Sentinels do it: they name the new master before the old one goes on, and make that
// one a replica after it.
void replace_named_master(StoreFaultyServers& test) {
  auto& named = test.named();
  named.master().signal(SIGSTOP);
  EXPECT_EQ(run(named.replica().url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
  named.is_second = !named.is_second;
  named.played->epoch++;
  named.played->name(named.master());
  named.replica().signal(SIGCONT);
  named.make_replica();
}
// Sentinels replace a master that was killed or stopped. It comes back as the master that it was,
// at times together with a Sentinel that has not heard of the change, until the others tell it to
// be a replica.
void let_sentinels_replace_master(StoreFaultyServers& test) {
  auto& named = test.named();
  RedisServer& former = named.master();
  named.real->miss_master_after(milliseconds(1000));
  const uint64_t epoch = named.real->epoch();
  if (test.random().one_in(2)) {
    named.real->stop_one(test.random().below(3));
  }
  if (test.strikes() % 2 == 0) {
    former.signal(SIGKILL);
    former.stop();
    EXPECT_TRUE(named.real->wait_for_epoch_after(epoch));
    former.start();
  } else {
    former.signal(SIGSTOP);
    EXPECT_TRUE(named.real->wait_for_epoch_after(epoch));
    former.signal(SIGCONT);
  }
  named.real->go_on();
  RedisServer* const master = named.real->settle(named.first, named.second);
  EXPECT_NE(master, nullptr);
  named.is_second = master == &named.second;
}

INSTANTIATE_TEST_SUITE_P(Faults, StoreFaultyServers,
                         testing::Values(ServerFault{"LossOfPower", lose_power},
                                         ServerFault{"StoppedBeyondLeases", stop_beyond_leases},
                                         ServerFault{"ScriptsForgotten", forget_scripts},
                                         ServerFault{"ConnectionsKilled", kill_connections},
                                         ServerFault{"MemoryFull", fill_memory},
                                         ServerFault{"LossOfPowerInACluster", lose_power_of_masters,
                                                     true},
                                         ServerFault{"MovedSlots", move_slots, true},
                                         ServerFault{"ReplacedMasters", replace_master, true, true},
                                         ServerFault{.name = "ReplacedBySentinels",
                                                     .strike = replace_named_master,
                                                     .replaces_masters = true,
                                                     .sentinels = ServerFault::Sentinels::kPlayed},
                                         ServerFault{.name = "ReplacedByRealSentinels",
                                                     .strike = let_sentinels_replace_master,
                                                     .replaces_masters = true,
                                                     .sentinels = ServerFault::Sentinels::kReal}),
                         name_of<ServerFault>);

// A server that loses what it has said to be synced: all of it, or the end of its log. Whoever has
// the store open notices. Nobody is told what has not happened, and what was stored before is not
// lost.
struct ServerLoss {
  const char* name;
  bool is_of_everything = false;

  friend std::ostream& operator<<(std::ostream& out, const ServerLoss& loss) {
    return out << loss.name;
  }
};

class StoreForgettingServers : public testing::TestWithParam<ServerLoss> {
 protected:
  // Two processes use the store while that happens.
  void play_round(int64_t round) {
    const std::string name = name_of_round(round);
    const std::vector<std::string> paced = {"LEDGER_PAUSE_US=300"};
    const size_t first = ledger_.processes();
    Children children;
    children.push_back(ledger_.start_worker(name + 'a', name + 'b', paced));
    children.push_back(ledger_.start_worker(name + 'b', name + 'a', paced));
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    for (size_t process = first; process < ledger_.processes(); process++) {
      ASSERT_TRUE(ledger_.wait_for_answers(20 + random_.below(100), process));
    }
    if (GetParam().is_of_everything) {
      EXPECT_EQ(run(server_.url(), {"FLUSHALL"}).text, "OK");
      ledger_.note_loss(0, first);
    } else {
      ASSERT_NO_FATAL_FAILURE(cut_log(first));
    }
    // What is answered after the loss was noted is what was asked for after it.
    for (int i = 0; i < 3; i++) {
      ASSERT_TRUE(ledger_.wait_for_answer_of_each("refused " + std::to_string(EILSEQ), first));
    }
  }

  // Each process was told of things that the log loses.
  void cut_log(size_t first) {
    const int64_t kept_us = store_test::now_us();
    const uintmax_t kept = std::filesystem::file_size(server_.log_path());
    for (size_t process = first; process < ledger_.processes(); process++) {
      ASSERT_TRUE(ledger_.wait_for_answers(20, process));
    }
    server_.signal(SIGKILL);
    server_.stop();
    std::filesystem::resize_file(server_.log_path(), kept);
    server_.start();
    ledger_.note_loss(kept_us, first);
  }

  LedgerRounds ledger_{{.receipt = "fsync"}};
  TestRandom random_{test_seed()};
  RedisServer server_{{.arguments = {"--appendonly", "yes", "--appendfsync", "always",
                                     "--auto-aof-rewrite-percentage", "0"}}};
};

TEST_P(StoreForgettingServers, AnOutsideLedgerOfReceiptsAndStartsHoldsButForTheLoss) {
  play(
      ledger_, rounds(2),
      [this](int64_t round) {
        ledger_.begin_store(server_.url() + "&shards=2&namespace=loss" + std::to_string(round));
      },
      [this](int64_t round) { play_round(round); }, [this] { return ledger_.saw_much(); });
}

INSTANTIATE_TEST_SUITE_P(Losses, StoreForgettingServers,
                         testing::Values(ServerLoss{"OfEverything", true},
                                         ServerLoss{"OfTheEndOfTheLog"}),
                         name_of<ServerLoss>);

}  // namespace

int main(int argc, char** argv) {
  return store_test::run_tests_or_part(argc, argv);
}
