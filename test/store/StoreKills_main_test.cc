#include <fcntl.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <semaphore>
#include <string>
#include <vector>

#include "store/KillLedger.h"
#include "store/SqliteChild.h"
#include "support/Eventually.h"
#include "support/RedisCluster.h"
#include "support/RedisServer.h"
#include "support/Sanitizers.h"
#include "support/TempDir.h"
#include "support/TestSeed.h"
#include "support/Text.h"
#include "util/UniqueFd.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// Processes that use one store are killed at random instants. Each writes down what it asks for,
// what it is told and what it runs: see KillLedger.h, whose checker judges all of it. The children
// are this program.

using namespace test_support;

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using store_test::KillLedger;

// The clock of the store: of the system, for a file as for a server on this machine.
int64_t now_us() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

// The file of a child. What was written is there however the process ends.
class Notes {
 public:
  Notes() : file_(::open(variable("KILLS_NOTES").c_str(), kFlags, 0600)) {}
  void write(const std::string& line) const {
    const std::string text = line + '\n';
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      ::_exit(3);
    }
  }

 private:
  static constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const workflow::UniqueFd file_;
};

const char* text_of(WFStoreVerdict verdict) {
  static const char* const texts[] = {"none",      "won",  "running", "after_run",
                                      "won_after", "done", "unknown", "doubt"};
  return texts[static_cast<size_t>(verdict)];
}

std::string text_of(const WFStoreResult& result) {
  if (result.verdict() == WFStoreVerdict::kInDoubt) return "doubt";
  if (!result.ok()) return "refused " + std::to_string(result.error);
  std::string text = "ok " + std::to_string(result.timer) + ' ';
  for (const WFStoreAnswer& answer : result.answers) {
    text += std::string(text_of(answer.verdict)) + ':' + std::to_string(answer.timer) + ':' +
            std::to_string(answer.attempts) + ',';
  }
  return text;
}

std::string text_of(const WFStoreRequestId& id) {
  return std::to_string(id.session) + ' ' + std::to_string(id.number);
}

std::unique_ptr<WFTimerStore> open_store() {
  WFStoreOptions options;
  options.lease = seconds(1);
  options.remembered = 100'000;
  std::string message;
  std::unique_ptr<WFTimerStore> store(WFTimerStore::open(variable("KILLS_URL"), options, &message));
  if (!store) {
    say("error " + message);
    ::_exit(2);
  }
  return store;
}

// Some runs take a while, and some ask for another one.
void handle(WFTimerStore& store, const Notes& notes) {
  WFStoreHandlerOptions options;
  options.max_attempts = 0;
  const auto run = [&notes](WFStoredTimer* timer) {
    // In this order: the lease ends later than their sum, or then.
    const int64_t now = now_us();
    const int64_t left = timer->lease_left().count();
    const bool retries = timer->attempt() == 1 && timer->timer() % 8 == 0;
    const int64_t due =
        std::chrono::duration_cast<microseconds>(timer->due().time_since_epoch()).count();
    notes.write("s " + timer->name() + ' ' + std::to_string(timer->timer()) + ' ' +
                std::to_string(due) + ' ' + std::to_string(now) + ' ' +
                std::to_string(timer->fence()) + ' ' + std::to_string(left) + ' ' +
                (retries ? "1" : "0"));
    if (retries) {
      timer->retry_after(milliseconds(5));
    } else if (timer->timer() % 4 == 1) {
      series_of(timer)->push_back(WFTaskFactory::create_timer_task(0, 5'000'000, nullptr));
    }
  };
  store.handle("kind", run, options);
}

// Asks a store for things, several at a time.
class Worker {
 public:
  Worker(WFTimerStore& store, const Notes& notes)
      : store_(store),
        notes_(notes),
        own_(variable("KILLS_NAME")),
        other_(variable("KILLS_OTHER")),
        random_(test_seed(), std::hash<std::string>()(own_)) {}

  void ask() {
    free_.acquire();
    const uint64_t kind = stored_ < 10 ? 0 : random_.below(5);
    const int64_t due =
        now_us() + static_cast<int64_t>(random_.below(kind == 0 ? 50'000 : 300'000));
    const std::chrono::system_clock::time_point date{microseconds(due)};
    auto answered = [this](WFStoreTask* task) {
      notes_.write("! " + text_of(task->request_id()) + ' ' + text_of(task->result()));
      free_.release();
    };
    WFStoreTask* task = nullptr;
    std::string text;
    if (kind == 3) {
      const std::string name = some_name();
      text = "cancel " + name;
      task = store_.create_cancel_task(name, answered);
    } else if (kind == 4) {
      const std::string name = some_name();
      text = "reschedule " + name + ' ' + std::to_string(due);
      task = store_.create_reschedule_task(name, date, answered);
    } else {
      const std::string name = own_ + std::to_string(stored_++);
      text = "schedule " + name + ' ' + std::to_string(due);
      task = store_.create_schedule_task({name, date, "kind"}, answered);
    }
    notes_.write("? " + text_of(task->request_id()) + ' ' + text);
    task->start();
  }

 private:
  static constexpr int kUnderWay = 16;

  // One of the last of this process, as a rule, or of another one that may be there.
  std::string some_name() {
    const uint64_t back = random_.below(std::min<uint64_t>(stored_, 100));
    return (random_.one_in(4) ? other_ : own_) + std::to_string(stored_ - 1 - back);
  }

  WFTimerStore& store_;
  const Notes& notes_;
  const std::string own_;
  const std::string other_;
  TestRandom random_;
  uint64_t stored_ = 0;
  std::counting_semaphore<> free_{kUnderWay};
};

// Parts of the children.

void work() {
  constexpr int kRequests = 1500;  // no child is to be alive for so long
  const Notes notes;
  const auto store = open_store();
  handle(*store, notes);
  say("begun");
  Worker worker(*store, notes);
  for (int i = 0; i < kRequests; i++) {
    worker.ask();
  }
  wait_for_exit();
}

// Runs whatever is left.
void finish() {
  const Notes notes;
  const auto store = open_store();
  handle(*store, notes);
  const bool is_empty = eventually([&store] {
    const WFStoreResult left = store->count("");
    return left.ok() && left.count == 0;
  });
  say(is_empty && store->close(kPatience) ? "empty" : "not empty");
}

// Asks for each request of the list.
void settle() {
  const Notes notes;
  const auto store = open_store();
  std::ifstream list(variable("KILLS_LIST"));
  for (WFStoreRequestId id; list >> id.session >> id.number;) {
    notes.write("a " + text_of(id) + ' ' + text_of(store->ask(id)));
  }
  say("settled");
}

// Where a store is.
struct Place {
  const char* name;
  bool is_owned;
  bool is_redis;
  bool is_cluster;

  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

class StoreKills : public testing::TestWithParam<Place> {
 protected:
  // So many rounds have one store.
  static constexpr int64_t kRoundsOfStore = 12;

  StoreKills() {
    if (GetParam().is_redis) {
      server_ = std::make_unique<redis_test::RedisServer>();
    } else if (GetParam().is_cluster) {
      cluster_ = std::make_unique<redis_test::RedisCluster>();
    }
  }

  // A new store.
  void begin_store(int64_t number) {
    directory_ = std::make_unique<FastDir>();
    notes_.clear();
    const std::string space = "namespace=kills" + std::to_string(number);
    url_ = GetParam().is_redis     ? server_->url() + "&" + space + "&shards=2"
           : GetParam().is_cluster ? cluster_->store_url(space + "&shards=6")
                                   : "sqlite:" + directory_->path("timers") +
                                         (GetParam().is_owned ? "?layout=owned" : "");
  }

  std::unique_ptr<SqliteChild> start(const std::string& part, const std::string& name = "",
                                     const std::string& other = "") {
    notes_.push_back(directory_->path("notes" + std::to_string(notes_.size())));
    return std::make_unique<SqliteChild>(std::vector<std::string>{
        "KILLS_PART=" + part, "KILLS_URL=" + url_, "KILLS_NAME=" + name, "KILLS_OTHER=" + other,
        "KILLS_NOTES=" + notes_.back(), "KILLS_LIST=" + directory_->path("list"),
        "WORKFLOW_TEST_SEED=" + std::to_string(test_seed())});
  }

  // Starts processes and kills each at a random instant, some of them before they have opened the
  // store.
  void play_round(int64_t round, TestRandom& random) {
    const std::string name = "r" + std::to_string(round);
    const std::string before = "r" + std::to_string(round - 1) + "a";
    std::vector<std::unique_ptr<SqliteChild>> children;
    children.push_back(start("work", name + 'a', GetParam().is_owned ? before : name + 'b'));
    if (!GetParam().is_owned) {
      children.push_back(start("work", name + 'b', random.one_in(2) ? before : name + 'a'));
    }
    for (const auto& child : children) {
      uint64_t life_us = random.below(20'000);
      if (!random.one_in(8)) {
        ASSERT_EQ(child->line(), "begun");
        life_us = random.below(kSanitized ? 200'000 : 80'000);
      }
      ::usleep(static_cast<useconds_t>(life_us));
      child->kill();
    }
  }

  // What is left of a store runs, and what is in doubt is settled: before that and after it.
  void end_store() {
    KillLedger ledger(GetParam().is_owned);
    read_into(ledger);
    {
      std::ofstream list(directory_->path("list"));
      for (const auto& ids : {ledger.in_doubt(), ledger.some_answered(50)}) {
        for (const auto& [session, number] : ids) {
          list << session << ' ' << number << '\n';
        }
      }
    }
    for (const char* const part : {"settle", "finish", "settle"}) {
      const auto child = start(part);
      ASSERT_EQ(child->line(), part == std::string("finish") ? "empty" : "settled");
      EXPECT_EQ(child->wait(), 0);
    }
    KillLedger all(GetParam().is_owned);
    read_into(all);
    EXPECT_EQ(all.check(), "") << "WORKFLOW_TEST_SEED=" << test_seed();
    requests_ += all.requests();
    in_doubt_ += ledger.in_doubt().size();
    starts_ += all.starts();
    repeated_ += all.repeated();
    won_ += all.answers("won");
    running_ += all.answers("running") + all.answers("after_run");
  }

  // A history in which little happened would show little.
  bool saw_enough() const { return in_doubt_ > 0 && starts_ > 20 && won_ > 0; }

  void read_into(KillLedger& ledger) const {
    for (const std::string& file : notes_) {
      ledger.read(test_support::text_of(file));
    }
  }

  std::unique_ptr<FastDir> directory_;
  std::unique_ptr<redis_test::RedisServer> server_;
  std::unique_ptr<redis_test::RedisCluster> cluster_;
  std::string url_;
  std::vector<std::string> notes_;
  size_t requests_ = 0, in_doubt_ = 0, starts_ = 0, repeated_ = 0, won_ = 0, running_ = 0;
};

// WORKFLOW_STORE_KILLS sets the number of rounds.
TEST_P(StoreKills, AnOutsideLedgerOfReceiptsAndStartsHoldsOverKills) {
  TestRandom random(test_seed());
  const bool are_few = kSanitized || GetParam().is_cluster;
  const int64_t rounds = env_number("WORKFLOW_STORE_KILLS", are_few ? 4 : kRoundsOfStore);
  bool has_store = false;
  // More rounds follow if too little has happened: how much does depends on what else the machine
  // has to do.
  for (int64_t round = 0; round < rounds || (!saw_enough() && round < 10 * rounds); round++) {
    if (!has_store) {
      begin_store(round);
    }
    play_round(round, random);
    if (HasFailure()) return;
    has_store = (round + 1) % kRoundsOfStore != 0 && round + 1 < rounds;
    if (!has_store) {
      end_store();
    }
    if (HasFailure()) return;
  }
  std::printf(
      "%lld rounds: %zu requests, %zu in doubt; %zu runs, %zu of them after a kill; %zu won, "
      "%zu while running\n",
      static_cast<long long>(rounds), requests_, in_doubt_, starts_, repeated_, won_, running_);
  EXPECT_TRUE(saw_enough());
}

std::string name_of(const testing::TestParamInfo<Place>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Places, StoreKills,
                         testing::Values(Place{"Shared", false, false, false},
                                         Place{"Owned", true, false, false},
                                         Place{"Redis", false, true, false},
                                         Place{"Cluster", false, false, true}),
                         name_of);

}  // namespace

int main(int argc, char** argv) {
  const std::string part = variable("KILLS_PART");
  if (part == "work") {
    work();
  } else if (part == "finish") {
    finish();
  } else if (part == "settle") {
    settle();
  }
  if (!part.empty()) return 0;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
