#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "store/LostPower.h"
#include "store/Naming.h"
#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisCommands.h"
#include "support/RedisSentinel.h"
#include "support/RedisServer.h"
#include "support/TestSeed.h"

// Servers that are killed while they are at work. What the receipts say is compared with what is
// left. WORKFLOW_STORE_KILLS sets how often that happens. Where a receipt is about what was synced,
// the server loses its power with that (LostPower.h): a kill alone would take nothing away, whether
// it was synced or not. That syncs which are lies would be noticed is a test, too.

namespace {

using redis_test::RedisCluster;
using redis_test::RedisServer;
using redis_test::run;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using store_test::ask;
using store_test::claim_request;
using store_test::lose_power;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::url_of;
using store_test::with_sync_notes;
using test_support::eventually;
using test_support::TestRandom;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::ClaimRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::ListRequest;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreRequest;

// Between these two times a server was killed.
struct KillTime {
  steady_clock::time_point before;
  steady_clock::time_point after;
};

// What a user knows about a timer.
struct Known {
  enum class Fate {
    kNever,    // refused, or asked for and not found
    kStored,   // a request has succeeded that stored it
    kEnded,    // a cancel or an acknowledgement has succeeded
    kUnclear,  // an acknowledgement was under way
  };
  Fate fate = Fate::kNever;
  // When the request was sent that decided it, and when its answer was there.
  steady_clock::time_point asked;
  steady_clock::time_point answered;
  std::string receipt;  // that of the answer

  // If the server syncs each second.
  bool may_be_lost_by(const KillTime& kill) const {
    return asked <= kill.after && kill.before <= answered + std::chrono::seconds(2);
  }
};

// How many answers users have got.
struct Answers {
  std::atomic<size_t> as_hoped{0};  // with the receipt that they hope for
  std::atomic<size_t> with_less{0};
};

// Asks one store for one thing after the other, whatever becomes of the server, and notes what it
// is told.
class User {
 public:
  // `receipt`: that of all answers, unless it names replicas. These may be missing for a while.
  User(std::string url, uint64_t session, std::string receipt)
      : session_(session),
        receipt_(std::move(receipt)),
        may_be_less_(receipt_.find("replicas") == 0),
        random_(test_support::test_seed(), session),
        backend_(open_backend(url, session)) {}

  void work(const std::atomic<bool>& stop, Answers& answers) {
    while (!stop) {
      std::vector<StoreRequest> batch = next_batch();
      std::vector<StoreRequest*> pointers;
      for (StoreRequest& request : batch) {
        pointers.push_back(&request);
      }
      asked_ = steady_clock::now();
      const bool works = backend_->execute(pointers);
      said_ = backend_->receipt().to_string();
      if (works) {
        EXPECT_TRUE(said_ == receipt_ || may_be_less_) << said_;
      } else if (!reopens(*backend_)) {
        ADD_FAILURE() << "the store does not open again";
        return;
      }
      for (StoreRequest& request : batch) {
        take(request);
      }
      if (works) {
        (said_ == receipt_ ? answers.as_hoped : answers.with_less) += batch.size();
      }
    }
  }

  const std::map<std::string, Known>& timers() const { return timers_; }
  // All numbers of timers and all fences that it was told.
  const std::vector<uint64_t>& numbers() const { return numbers_; }
  const std::vector<std::string>& started() const { return started_; }
  // How the runs of this store have ended, whichever store has stored their timers.
  const std::vector<std::pair<std::string, Known>>& ended() const { return ended_; }

 private:
  std::vector<StoreRequest> next_batch() {
    std::vector<StoreRequest> batch(1 + random_.below(20));
    for (StoreRequest& request : batch) {
      const bool cancels = !waiting_.empty() && random_.one_in(3);
      if (cancels) {
        const size_t chosen = random_.below(waiting_.size());
        request.what = store_test::cancel_request(waiting_[chosen]);
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
      } else {
        const bool is_due = random_.one_in(3);
        const std::string name = (is_due ? "due/" : "never/") + std::to_string(session_) + "/" +
                                 std::to_string(++names_);
        request.what = timer(name, is_due ? 1 : kNeverUs);
      }
      request.id = {session_, ++requests_};
    }
    for (const workflow::RunId& run : std::exchange(runs_, {})) {
      FinishRequest finish;
      finish.run = run;
      batch.emplace_back().what = finish;
    }
    batch.emplace_back().what = claim_request(5);
    return batch;
  }

  bool is_synced() const { return receipt_ == "fsync"; }
  Known known(Known::Fate fate, const std::string& receipt) const {
    return {fate, asked_, steady_clock::now(), receipt};
  }

  // A request that is in doubt is asked for, until there is an answer. Gets the receipt of what is
  // known.
  bool was_done(const StoreRequest& request, std::string* receipt) {
    *receipt = said_;
    if (request.failure.error == 0) return true;
    if (!request.failure.in_doubt) return false;
    AskRequest question;
    question.asked = request.id;
    workflow::StoreFailure failure;
    while (!store_test::carry_out(*backend_, question, &failure)) {
      if (!reopens(*backend_)) {
        ADD_FAILURE() << "the store does not open again";
        return false;
      }
    }
    EXPECT_EQ(failure.error, 0) << failure.message;
    *receipt = backend_->receipt().to_string();
    return question.found;
  }

  void take(StoreRequest& request) {
    std::string receipt;
    if (auto* schedule = std::get_if<ScheduleRequest>(&request.what)) {
      const bool stored = was_done(request, &receipt);
      timers_[schedule->spec.name] =
          known(stored ? Known::Fate::kStored : Known::Fate::kNever, receipt);
      if (stored && schedule->due_us == kNeverUs) {
        waiting_.push_back(schedule->spec.name);
      }
      if (request.failure.error == 0) {
        numbers_.push_back(schedule->timer);
      }
    } else if (auto* cancel = std::get_if<CancelRequest>(&request.what)) {
      if (is_synced() && request.failure.error == 0) {
        EXPECT_EQ(cancel->answers.at(0).verdict, WFStoreVerdict::kWon) << cancel->name;
      }
      if (was_done(request, &receipt)) {
        timers_[cancel->name] = known(Known::Fate::kEnded, receipt);
      } else {
        waiting_.push_back(cancel->name);
      }
    } else if (auto* finish = std::get_if<FinishRequest>(&request.what)) {
      // A finish has no id that could be asked for. It is not accepted if the claim was lost.
      const bool is_sure = request.failure.error == 0 && finish->accepted;
      if (is_synced() && request.failure.error == 0) {
        EXPECT_TRUE(finish->accepted);
      }
      ended_.emplace_back(running_.at(finish->run.fence),
                          known(is_sure ? Known::Fate::kEnded : Known::Fate::kUnclear, said_));
    } else if (auto* claim = std::get_if<ClaimRequest>(&request.what)) {
      if (request.failure.error != 0) return;
      for (const ClaimRequest::Claimed& claimed : claim->claimed) {
        numbers_.push_back(claimed.run.fence);
        started_.push_back(claimed.spec.name);
        running_[claimed.run.fence] = claimed.spec.name;
        runs_.push_back(claimed.run);
      }
    }
  }

  const uint64_t session_;
  const std::string receipt_;
  const bool may_be_less_;
  TestRandom random_;
  const std::unique_ptr<StoreBackend> backend_;
  steady_clock::time_point asked_;  // the present batch
  std::string said_;                // the receipt of its answers
  uint64_t requests_ = 0;
  uint64_t names_ = 0;
  std::map<std::string, Known> timers_;
  std::vector<std::string> waiting_;  // those that are never due, and stored
  std::vector<workflow::RunId> runs_;
  std::map<uint64_t, std::string> running_;  // fence to name
  std::vector<uint64_t> numbers_;
  std::vector<std::string> started_;
  std::vector<std::pair<std::string, Known>> ended_;
};

std::set<std::string> all_names(StoreBackend& backend) {
  std::set<std::string> names;
  ListRequest list;
  list.max = 10'000;
  do {
    list.timers.clear();
    list = ask(backend, list);
    for (const WFStoreInfo& info : list.timers) {
      names.insert(info.name);
      list.after_name = info.name;
      list.after_timer = info.timer;
    }
  } while (list.more);
  return names;
}

using Kills = std::vector<KillTime>;

using Kill = std::function<void(TestRandom&, const Answers&)>;

// Kills servers `rounds` times while all users are at work, by `kill`, which starts them again. A
// kill waits for answers, and until it `may` be.
Kills kill_in_mid_load(
    int64_t rounds, std::vector<std::unique_ptr<User>>& users, const Kill& kill,
    const std::function<bool()>& may = [] { return true; }) {
  TestRandom random(test_support::test_seed(), 0);
  std::atomic<bool> stop{false};
  Answers answers;
  const std::atomic<size_t>& answered = answers.as_hoped;
  std::vector<std::thread> threads;
  for (const auto& user : users) {
    threads.emplace_back([&stop, &answers, &user] { user->work(stop, answers); });
  }
  Kills kills;
  for (int64_t round = 0; round < rounds && !testing::Test::HasFailure(); round++) {
    const size_t enough = answered + 1 + random.below(500);
    steady_clock::time_point before;
    EXPECT_TRUE(eventually([&] {
      before = steady_clock::now();
      return answered >= enough && may();
    }));
    kill(random, answers);
    kills.push_back({before, steady_clock::now()});
  }
  const size_t enough = answered + 1;
  EXPECT_TRUE(eventually([&] { return answered >= enough; }));
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  return kills;
}

int64_t rounds(int64_t usual) {
  return test_support::env_number("WORKFLOW_STORE_KILLS", usual);
}

RedisServer::Options durable_with_sync_notes(const std::string& more = "") {
  RedisServer::Options options = store_test::durable();
  options.environment = with_sync_notes(more);
  return options;
}

// What everybody knows together.
std::map<std::string, Known> known_to_all(const std::vector<std::unique_ptr<User>>& users) {
  std::map<std::string, Known> timers;
  for (const auto& user : users) {
    timers.insert(user->timers().begin(), user->timers().end());
  }
  for (const auto& user : users) {
    for (const auto& [name, known] : user->ended()) {
      timers.at(name) = known;
    }
  }
  return timers;
}

void expect_all_different(const std::vector<std::unique_ptr<User>>& users) {
  std::vector<uint64_t> numbers;
  for (const auto& user : users) {
    numbers.insert(numbers.end(), user->numbers().begin(), user->numbers().end());
  }
  std::sort(numbers.begin(), numbers.end());
  const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
  EXPECT_EQ(twice, numbers.end()) << *twice << " was given out twice";
}

std::vector<std::unique_ptr<User>> two_users(const std::string& url, const char* receipt) {
  std::vector<std::unique_ptr<User>> users;
  for (uint64_t session = 1; session <= 2; session++) {
    users.push_back(std::make_unique<User>(url, session, receipt));
  }
  return users;
}

// The timers that are stored, or are not, against what users were told.
std::vector<std::string> contradictions(const std::string& url,
                                        const std::vector<std::unique_ptr<User>>& users) {
  const std::set<std::string> stored = all_names(*open_backend(url, 3));
  std::vector<std::string> names;
  for (const auto& [name, known] : known_to_all(users)) {
    if (known.fate == Known::Fate::kUnclear) continue;
    if (stored.contains(name) != (known.fate == Known::Fate::kStored)) {
      names.push_back(name);
    }
  }
  return names;
}

// What was synced is all there, although servers were killed.
void expect_nothing_lost(const std::string& url, const std::vector<std::unique_ptr<User>>& users) {
  EXPECT_THAT(contradictions(url, users), testing::IsEmpty());
  expect_all_different(users);
  // No lease has ended, so nothing has started twice.
  std::vector<std::string> started;
  for (const auto& user : users) {
    started.insert(started.end(), user->started().begin(), user->started().end());
  }
  EXPECT_FALSE(started.empty());
  std::sort(started.begin(), started.end());
  EXPECT_EQ(std::adjacent_find(started.begin(), started.end()), started.end());
}

// What a receipt names a replica for is there, although masters were killed and replicas took over.
void expect_replicas_lost_nothing(const std::string& url,
                                  const std::vector<std::unique_ptr<User>>& users,
                                  steady_clock::time_point last_kill) {
  const std::set<std::string> stored = all_names(*open_backend(url, 3));
  size_t certain = 0;
  for (const auto& [name, known] : known_to_all(users)) {
    // An acknowledgement does not wait for replicas.
    const bool is_run = known.fate == Known::Fate::kEnded && name.find("due/") == 0;
    if (known.fate == Known::Fate::kUnclear || is_run || known.receipt != "replicas(1)") continue;
    certain += known.answered < last_kill ? 1 : 0;
    EXPECT_EQ(stored.contains(name), known.fate == Known::Fate::kStored) << name;
  }
  EXPECT_GT(certain, 0U);
  expect_all_different(users);
}

// How many timers are missing that were stored, and whose receipts name no replica.
size_t stored_and_lost(const std::string& url, const std::vector<std::unique_ptr<User>>& users) {
  const std::set<std::string> stored = all_names(*open_backend(url, 3));
  size_t lost = 0;
  for (const auto& [name, known] : known_to_all(users)) {
    const bool names_none = known.receipt != "replicas(1)";
    lost += known.fate == Known::Fate::kStored && names_none && !stored.contains(name) ? 1 : 0;
  }
  return lost;
}

TEST(RedisStoreReceipts, WhatWasSyncedSurvivesKillsInMidLoad) {
  RedisServer server(durable_with_sync_notes());
  const std::string url = url_of(server, "&namespace=app&shards=2");
  auto users = two_users(url, "fsync");
  kill_in_mid_load(rounds(8), users,
                   [&server](TestRandom&, const Answers&) { lose_power(server); });
  expect_nothing_lost(url, users);
}

// The test before this one would notice a server, or a disk, that does not sync what it says.
TEST(RedisStoreReceipts, SyncsThatAreLiesAreNoticed) {
  constexpr int64_t kTrue = 20;
  for (const bool lies : {false, true}) {
    RedisServer server(durable_with_sync_notes(lies ? "SYNCS_NOTED=" + std::to_string(kTrue) : ""));
    const std::string url = url_of(server, "&namespace=app&shards=2");
    auto users = two_users(url, "fsync");
    std::atomic<bool> stop{false};
    Answers answers;
    std::thread thread([&] { users[0]->work(stop, answers); });
    EXPECT_TRUE(
        eventually([&] { return store_test::read_note(server.log_path()).syncs > 2 * kTrue; }));
    stop = true;
    thread.join();
    lose_power(server);
    EXPECT_EQ(contradictions(url, users).empty(), !lies) << lies;
  }
}

// Each time one or more of its masters. A master of a Cluster that has begun waits for 2 s before
// it answers.
TEST(RedisStoreReceipts, WhatWasSyncedSurvivesKillsOfMastersOfACluster) {
  RedisCluster cluster({.arguments = store_test::durable().arguments,
                        .environment_of_first = with_sync_notes(),
                        .environment_of_others = with_sync_notes()});
  const std::string url = cluster.store_url("namespace=app&shards=6");
  auto users = two_users(url, "fsync");
  kill_in_mid_load(rounds(3), users, [&cluster](TestRandom& random, const Answers&) {
    const size_t first = random.below(cluster.masters());
    const size_t count = 1 + random.below(cluster.masters());
    for (size_t i = first; i < first + count; i++) {
      cluster.node(i % cluster.masters()).signal(SIGKILL);
    }
    for (size_t i = first; i < first + count; i++) {
      lose_power(cluster.node(i % cluster.masters()));
    }
  });
  expect_nothing_lost(url, users);
}

TEST(RedisStoreReceipts, WhatAReplicaHasSurvivesKillsOfMastersThatASentinelNames) {
  RedisServer one({.on = RedisServer::On::kTcp});
  RedisServer other({.on = RedisServer::On::kTcp});
  const auto replicate = [](const RedisServer& replica, const RedisServer& master) {
    EXPECT_TRUE(eventually([&] {
      return run(replica.url(), {"REPLICAOF", "127.0.0.1", std::to_string(master.port())}).text ==
             "OK";
    }));
    EXPECT_TRUE(redis_test::is_in_sync(replica));
  };
  replicate(other, one);
  store_test::Naming sentinel;
  sentinel.name(one);
  const std::string url = store_test::url_of_sentinels(sentinel.address(), "&replicas=1");
  auto users = two_users(url, "replicas(1)");
  RedisServer* master = &one;
  RedisServer* replica = &other;
  const Kills kills = kill_in_mid_load(rounds(4), users, [&](TestRandom&, const Answers& answers) {
    // The replica is cut off for a while, and what is answered then is lost.
    EXPECT_EQ(run(replica->url(), {"REPLICAOF", "NO", "ONE"}).text, "OK");
    const size_t enough = answers.with_less + 50;
    EXPECT_TRUE(eventually([&] { return answers.with_less >= enough; }));
    master->signal(SIGKILL);
    master->stop();
    std::swap(master, replica);
    ++sentinel.epoch;
    sentinel.name(*master);
    replica->start();
    replicate(*replica, *master);
  });
  EXPECT_GT(stored_and_lost(url, users), 0U);
  ASSERT_FALSE(kills.empty());
  expect_replicas_lost_nothing(url, users, kills.back().before);
}

TEST(RedisStoreReceipts, WhatAReplicaHasSurvivesKillsOfAMasterOfACluster) {
  RedisCluster cluster({.masters = 2, .replicas = 2, .arguments = store_test::durable().arguments});
  const std::string url = cluster.store_url("namespace=app&shards=4&replicas=1");
  auto users = two_users(url, "replicas(1)");
  // The first master and its replica, or the second ones.
  std::vector<std::pair<size_t, size_t>> pairs = {{0, 2}, {1, 3}};
  const Kills kills =
      kill_in_mid_load(rounds(2), users, [&](TestRandom& random, const Answers& answers) {
        auto& [master, replica] = pairs[random.below(pairs.size())];
        // The replica is away for a while, and what is answered then is lost.
        cluster.node(replica).signal(SIGKILL);
        cluster.node(replica).stop();
        const size_t enough = answers.with_less + 50;
        EXPECT_TRUE(eventually([&] { return answers.with_less >= enough; }));
        cluster.node(master).signal(SIGKILL);
        cluster.node(master).stop();
        cluster.node(replica).start();
        cluster.promote(replica);
        std::swap(master, replica);
        cluster.node(replica).start();
        EXPECT_TRUE(cluster.is_in_sync(replica));
        EXPECT_TRUE(cluster.may_be_killed());
      });
  EXPECT_GT(stored_and_lost(url, users), 0U);
  ASSERT_FALSE(kills.empty());
  expect_replicas_lost_nothing(url, users, kills.back().before);
}

// The first kill waits until 2.5 s after the first answers, so that some are old enough. Each kill
// waits until the server has come to sync in time, which a busy machine may keep it from.
TEST(RedisStoreReceipts, OnlyTheLastTwoSecondsAreLostWhenSyncedEverySecond) {
  RedisServer server({.arguments = {"--appendonly", "yes", "--appendfsync", "everysec"},
                      .environment = with_sync_notes()});
  const std::string url = url_of(server, "&namespace=app&shards=2");
  auto users = two_users(url, "everysec");
  std::optional<steady_clock::time_point> answered;
  const Kills kills = kill_in_mid_load(
      rounds(8), users, [&server](TestRandom&, const Answers&) { lose_power(server); },
      [&server, &answered] {
        answered = answered.value_or(steady_clock::now());
        return steady_clock::now() - *answered > milliseconds(2500) &&
               store_test::is_synced_each_second(server);
      });
  const std::set<std::string> stored = all_names(*open_backend(url, 3));
  size_t certain = 0;
  size_t lost = 0;
  for (const auto& [name, known] : known_to_all(users)) {
    if (known.fate == Known::Fate::kUnclear) continue;
    const bool is_as_told = stored.contains(name) == (known.fate == Known::Fate::kStored);
    const auto loses_it = [&known = known](const KillTime& kill) {
      return known.may_be_lost_by(kill);
    };
    if (known.fate != Known::Fate::kNever && std::any_of(kills.begin(), kills.end(), loses_it)) {
      lost += is_as_told ? 0 : 1;
      continue;
    }
    EXPECT_TRUE(is_as_told) << name;
    certain += known.fate != Known::Fate::kNever && known.answered < kills[0].before ? 1 : 0;
  }
  EXPECT_GT(certain, 0U);
  EXPECT_GT(lost, 0U);
  expect_all_different(users);
}

}  // namespace
