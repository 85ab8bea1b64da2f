#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/FaultVfs.h"
#include "store/LedgerRounds.h"
#include "store/LostPower.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/ShiftedClocks.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"

// Stores of several processes with faults in mid-load: processes are killed, disks fail or lose
// what was not synced, servers end, stop, forget or are replaced. An outside ledger judges all of
// it, see KillLedger.h.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using redis_test::run;
using std::chrono::milliseconds;
using store_test::KillLedger;
using store_test::kLease;
using store_test::LedgerRounds;
using test_support::env_number;
using test_support::eventually;
using test_support::FaultVfs;
using test_support::kSanitized;
using test_support::SqliteChild;
using test_support::test_seed;
using test_support::TestRandom;

using Children = std::vector<std::unique_ptr<SqliteChild>>;

// So many rounds have one store.
constexpr int64_t kRoundsOfStore = 12;

// WORKFLOW_STORE_KILLS sets the number of rounds.
int64_t rounds(int64_t usual) {
  return env_number("WORKFLOW_STORE_KILLS", usual);
}

// Plays rounds, for each of which `begin_store` is called if there is no store, until there were
// enough and enough has happened: how much does depends on what else the machine has to do.
void play(LedgerRounds& ledger, int64_t rounds, const std::function<void(int64_t)>& begin_store,
          const std::function<void(int64_t)>& play_round, const std::function<bool()>& saw_enough) {
  bool has_store = false;
  for (int64_t round = 0; round < rounds || (!saw_enough() && round < 10 * rounds); round++) {
    if (!has_store) {
      begin_store(round);
    }
    play_round(round);
    if (testing::Test::HasFatalFailure()) return;
    has_store = (round + 1) % kRoundsOfStore != 0 && round + 1 < rounds;
    if (!has_store) {
      ASSERT_EQ(ledger.end_store(), "") << "WORKFLOW_TEST_SEED=" << test_seed();
    }
  }
  ledger.print(rounds);
  EXPECT_TRUE(saw_enough());
}

std::string name_of_round(int64_t round) {
  return "r" + std::to_string(round);
}

// Where a store is.
struct Place {
  const char* name;
  const char* receipt;
  bool is_owned = false;
  bool is_redis = false;
  bool is_cluster = false;
  bool has_wrong_clocks = false;  // those of its processes

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

KillLedger::Rules rules_of(const Place& place) {
  return {.leases_end_with_process = place.is_owned, .receipt = place.receipt};
}

class StoreKills : public testing::TestWithParam<Place> {
 protected:
  StoreKills() : ledger_(rules_of(GetParam())) {
    if (GetParam().is_redis) {
      server_ = std::make_unique<RedisServer>();
    } else if (GetParam().is_cluster) {
      cluster_ = std::make_unique<RedisCluster>();
    }
  }

  void begin_store(int64_t number) {
    ledger_.begin_store();
    const std::string space = "namespace=kills" + std::to_string(number);
    ledger_.set_url(GetParam().is_redis     ? server_->url() + "&" + space + "&shards=2"
                    : GetParam().is_cluster ? cluster_->store_url(space + "&shards=6")
                                            : "sqlite:" + ledger_.path("timers") +
                                                  (GetParam().is_owned ? "?layout=owned" : ""));
  }

  // One process, or two where that is possible.
  Children start_workers(int64_t round) {
    const std::string name = name_of_round(round);
    const std::string before = name_of_round(round - 1) + 'a';
    const auto shifted_by = [](const char* seconds) {
      return std::vector<std::string>{std::string("LEDGER_SHIFT_S=") +
                                      (GetParam().has_wrong_clocks ? seconds : "0")};
    };
    Children children;
    children.push_back(ledger_.start_worker(name + 'a', GetParam().is_owned ? before : name + 'b',
                                            shifted_by("600")));
    if (!GetParam().is_owned) {
      children.push_back(ledger_.start_worker(name + 'b', random_.one_in(2) ? before : name + 'a',
                                              shifted_by("-600")));
    }
    return children;
  }

  // Kills each process at a random instant, some of them before they have opened the store.
  void kill_workers(int64_t round) {
    for (const auto& child : start_workers(round)) {
      uint64_t life_us = random_.below(20'000);
      if (!random_.one_in(8)) {
        ASSERT_EQ(child->line(), "begun");
        life_us = random_.below(kSanitized ? 200'000 : 80'000);
      }
      ::usleep(static_cast<useconds_t>(life_us));
      child->kill();
    }
  }

  // Stops the first process until its leases have ended. Then it goes on for a while.
  void stop_worker(int64_t round) {
    const size_t stopped = ledger_.processes();
    const Children children = start_workers(round);
    for (const auto& child : children) {
      ASSERT_EQ(child->line(), "begun");
    }
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(200)));
    children[0]->send(SIGSTOP);
    std::this_thread::sleep_for(kLease + milliseconds(100));
    children[0]->send(SIGCONT);
    ASSERT_TRUE(ledger_.wait_for_answers(20, stopped));
  }

  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisCluster> cluster_;
};

TEST_P(StoreKills, AnOutsideLedgerOfReceiptsAndStartsHoldsOverKills) {
  const bool are_few = kSanitized || GetParam().is_cluster;
  play(
      ledger_, rounds(are_few ? 4 : kRoundsOfStore), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { kill_workers(round); }, [this] { return ledger_.saw_enough(); });
}

TEST_P(StoreKills, AnOutsideLedgerOfReceiptsAndStartsHoldsOverStopsBeyondLeases) {
  play(
      ledger_, rounds(2), [this](int64_t round) { begin_store(round); },
      [this](int64_t round) { stop_worker(round); }, [this] { return ledger_.saw_enough(); });
}

template <class PARAM>
std::string name_of(const testing::TestParamInfo<PARAM>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(
    Places, StoreKills,
    testing::Values(Place{"Shared", "file"},
                    Place{.name = "Owned", .receipt = "file", .is_owned = true},
                    Place{.name = "Redis", .receipt = "memory", .is_redis = true},
                    Place{.name = "RedisOfWrongClocks",
                          .receipt = "memory",
                          .is_redis = true,
                          .has_wrong_clocks = true},
                    Place{.name = "Cluster", .receipt = "memory", .is_cluster = true}),
    name_of<Place>);

// Disks, for both layouts.
class StoreFaultyDisks : public testing::TestWithParam<bool> {
 protected:
  StoreFaultyDisks() : ledger_({.leases_end_with_process = is_owned()}) {}

  // A store with one owner has not synced what a run has done when that is over.
  void expect_losses_of_power() {
    ledger_.set_rules({.leases_end_with_process = is_owned(),
                       .undoes_runs = is_owned(),
                       .lease_us = kLease.count()});
  }

  static bool is_owned() { return GetParam(); }
  void use_directory(const std::string& directory) {
    directory_ = directory;
    ledger_.set_url("sqlite:" + file() + (is_owned() ? "?layout=owned" : ""));
  }
  std::string file() const { return ledger_.path(directory_ + "/timers"); }
  void begin_store() {
    ledger_.begin_store();
    std::filesystem::create_directory(ledger_.path("disk"));
    use_directory("disk");
  }

  // A process uses the store until the power is lost, and what is left is on another disk, some of
  // the time with the file for the queue, which is never synced.
  void lose_power(int64_t round, bool lies = false) {
    const std::string before = file();
    const std::string next = "disk" + std::to_string(round);
    std::filesystem::create_directory(ledger_.path(next));
    const auto child = ledger_.start_worker(
        name_of_round(round), name_of_round(round - 1),
        {"LEDGER_DISK=loss " + std::to_string(random_.below(1500)) + ' ' + ledger_.path(next) +
             (lies ? " lies" : ""),
         "LEDGER_FILES=" +
             (std::filesystem::exists(before) ? before + ' ' + before + "-wal" : "")});
    ASSERT_EQ(child->wait(), -SIGKILL) << child->line().value_or("nothing");
    if (random_.one_in(2) && std::filesystem::exists(before + "-queue")) {
      std::filesystem::copy_file(before + "-queue", ledger_.path(next + "/timers-queue"));
    }
    use_directory(next);
  }

  // A process uses the store, and an operation of its disk fails. It goes on until it is killed.
  void fail_operation(int64_t round) {
    struct Failure {
      FaultVfs::Operation operation;
      int code;
    };
    static constexpr Failure failures[] = {
        {FaultVfs::kWrite, SQLITE_IOERR_WRITE},       {FaultVfs::kWrite, SQLITE_FULL},
        {FaultVfs::kSync, SQLITE_IOERR_FSYNC},        {FaultVfs::kRead, SQLITE_IOERR_READ},
        {FaultVfs::kTruncate, SQLITE_IOERR_TRUNCATE}, {FaultVfs::kShared, SQLITE_IOERR_SHMMAP}};
    const Failure& failure = failures[random_.below(std::size(failures))];
    const auto child = ledger_.start_worker(
        name_of_round(round), name_of_round(round - 1),
        {"LEDGER_DISK=fail " + std::to_string(failure.operation) + ' ' +
         std::to_string(random_.below(200)) + ' ' + std::to_string(failure.code)});
    const std::string line = child->line().value_or("nothing");
    // The store may not have been opened because of the fault.
    EXPECT_TRUE(line == "begun" || line.find("error ") == 0) << line;
    ::usleep(static_cast<useconds_t>(random_.below(kSanitized ? 200'000 : 80'000)));
    child->kill();
  }

  void damage(const std::string& name) {
    const uintmax_t size = std::filesystem::file_size(name);
    ASSERT_GT(size, 0U);
    const auto place = static_cast<std::streamoff>(random_.below(size));
    if (random_.one_in(4)) {
      std::filesystem::resize_file(name, static_cast<uintmax_t>(place));
      return;
    }
    std::fstream bytes(name, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(place);
    const auto byte = static_cast<char>(bytes.get() ^ (1 << random_.below(8)));
    bytes.seekp(place);
    bytes.put(byte);
  }

  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  std::string directory_;
};

TEST_P(StoreFaultyDisks, AnOutsideLedgerOfReceiptsAndStartsHoldsOverLossesOfPower) {
  expect_losses_of_power();
  play(
      ledger_, rounds(kSanitized ? 4 : kRoundsOfStore), [this](int64_t) { begin_store(); },
      [this](int64_t round) { lose_power(round); }, [this] { return ledger_.saw_enough(); });
}

TEST_P(StoreFaultyDisks, TheLedgerNoticesSyncsThatAreLies) {
  expect_losses_of_power();
  std::string wrong;
  // The store itself may notice some.
  for (int64_t round = 0;
       round < 50 && (wrong.empty() || wrong.find(" says ") != std::string::npos); round++) {
    begin_store();
    {
      const auto child = ledger_.start("finish");  // a store without timers
      ASSERT_EQ(child->line(), "empty");
      ASSERT_EQ(child->wait(), 0);
    }
    lose_power(round, true);
    if (HasFatalFailure()) return;
    wrong = ledger_.end_store();
  }
  EXPECT_NE(wrong, "");
  EXPECT_EQ(wrong.find(" says "), std::string::npos) << wrong;
}

TEST_P(StoreFaultyDisks, AnOutsideLedgerOfReceiptsAndStartsHoldsOverFailures) {
  play(
      ledger_, rounds(kSanitized ? 4 : kRoundsOfStore), [this](int64_t) { begin_store(); },
      [this](int64_t round) { fail_operation(round); },
      [this] { return ledger_.saw_enough() && ledger_.faults() > 0; });
}

// A bit of a file changes, or the end of one is missing.
TEST_P(StoreFaultyDisks, DamageIsNoticedOrTheLedgerHolds) {
  size_t noticed = 0;
  const int64_t count = rounds(kSanitized ? 4 : 10);
  for (int64_t round = 0; round < count || (noticed == 0 && round < 10 * count); round++) {
    begin_store();
    const auto child = ledger_.start_worker(name_of_round(round), name_of_round(round - 1));
    ASSERT_EQ(child->line(), "begun");
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(300)));
    child->kill();
    damage(round % 2 == 0 ? file() + "-wal" : file());
    const std::string wrong = ledger_.end_store();
    const std::string error = " says error " + std::to_string(EILSEQ) + ' ';
    const bool was_noticed = wrong.find(error) != std::string::npos;
    noticed += was_noticed ? 1 : 0;
    ASSERT_TRUE(wrong.empty() || was_noticed) << wrong << ", WORKFLOW_TEST_SEED=" << test_seed();
  }
  EXPECT_GT(noticed, 0U);
}

std::string layout_of(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Owned" : "Shared";
}
INSTANTIATE_TEST_SUITE_P(Layouts, StoreFaultyDisks, testing::Bool(), layout_of);

// For a Redis that syncs all that it stores.
const std::vector<std::string> kDurable = {"--appendonly", "yes", "--appendfsync", "always"};

// What happens to servers.
class StoreFaultyServers;

struct ServerFault {
  const char* name;
  void (*strike)(StoreFaultyServers& test);
  bool is_of_a_cluster = false;
  bool replaces_masters = false;  // and so may undo what no replica has
};

std::ostream& operator<<(std::ostream& out, const ServerFault& fault) {
  return out << fault.name;
}

class StoreFaultyServers : public testing::TestWithParam<ServerFault> {
 public:
  StoreFaultyServers();

  RedisServer& server() { return *server_; }
  RedisCluster& cluster() { return *cluster_; }
  TestRandom& random() { return random_; }
  LedgerRounds& ledger() { return ledger_; }
  const std::string& space() const { return space_; }
  // Which node of the cluster is a master, and its replica.
  std::pair<size_t, size_t>& some_pair() { return pairs_[random_.below(pairs_.size())]; }

  void begin_store(int64_t number);
  void play_round(int64_t round);

 protected:
  LedgerRounds ledger_;
  TestRandom random_{test_seed()};
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisCluster> cluster_;
  std::string space_;
  std::vector<std::pair<size_t, size_t>> pairs_ = {{0, 2}, {1, 3}};
};

KillLedger::Rules rules_of(const ServerFault& fault) {
  return {.receipt = fault.replaces_masters ? "replicas(1)" : "fsync",
          .undoes_runs = fault.replaces_masters,
          .undoes_other_receipts = fault.replaces_masters,
          .lease_us = kLease.count()};
}

StoreFaultyServers::StoreFaultyServers() : ledger_(rules_of(GetParam())) {
  if (!GetParam().is_of_a_cluster) {
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
  ledger_.begin_store(
      server_ ? server_->url() + "&" + space + "&shards=2"
              : cluster_->store_url(space + "&shards=6" +
                                    (GetParam().replaces_masters ? "&replicas=1" : "")));
}

// Two processes use the store while there are faults.
void StoreFaultyServers::play_round(int64_t round) {
  const std::string name = name_of_round(round);
  Children children;
  children.push_back(ledger_.start_worker(name + 'a', name + 'b'));
  children.push_back(ledger_.start_worker(name + 'b', name + 'a'));
  for (const auto& child : children) {
    ASSERT_EQ(child->line(), "begun");
  }
  for (int i = 0; i < 2; i++) {
    ASSERT_TRUE(ledger_.wait_for_answers(1 + random_.below(200)));
    GetParam().strike(*this);
    ASSERT_TRUE(ledger_.wait_for_answers(20));
  }
}

TEST_P(StoreFaultyServers, AnOutsideLedgerOfReceiptsAndStartsHolds) {
  play(
      ledger_, rounds(2), [this](int64_t round) { begin_store(round); },
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

INSTANTIATE_TEST_SUITE_P(
    Faults, StoreFaultyServers,
    testing::Values(ServerFault{"LossOfPower", lose_power},
                    ServerFault{"StoppedBeyondLeases", stop_beyond_leases},
                    ServerFault{"ScriptsForgotten", forget_scripts},
                    ServerFault{"ConnectionsKilled", kill_connections},
                    ServerFault{"MemoryFull", fill_memory},
                    ServerFault{"LossOfPowerInACluster", lose_power_of_masters, true},
                    ServerFault{"MovedSlots", move_slots, true},
                    ServerFault{"ReplacedMasters", replace_master, true, true}),
    name_of<ServerFault>);

}  // namespace

int main(int argc, char** argv) {
  shifted_clocks::wall_shift_ns = env_number("LEDGER_SHIFT_S", 0) * 1'000'000'000;
  if (store_test::is_a_ledger_process()) return 0;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
