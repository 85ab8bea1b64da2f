#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/Eventually.h"
#include "support/Program.h"
#include "support/RedisServer.h"
#include "support/TempDir.h"
#include "support/Text.h"
#include "support/TutorialProgram.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTimerStore.h"

using test_support::count_of;
using test_support::eventually;
using test_support::FastDir;
using test_support::run_program;
using test_support::text_of;
using tutorial_test::Program;

namespace {

// The store that programs of a test share, in a folder of its own.
struct StoreUrl {
  FastDir folder;
  std::string file = folder.path("timers.db");
  std::string url = "sqlite:" + file;

  std::unique_ptr<WFTimerStore> open() const {
    std::string message;
    std::unique_ptr<WFTimerStore> store(WFTimerStore::open(url, &message));
    EXPECT_TRUE(store) << message;
    return store;
  }
};

// The tutorials that share a store do so in a file and in a Redis.
class SharedStore : public testing::TestWithParam<const char*> {
 protected:
  SharedStore() {
    if (GetParam() == std::string("redis")) {
      server_ = std::make_unique<redis_test::RedisServer>();
      store_.url = server_->url() + "&namespace=shared";
    }
  }

  std::unique_ptr<redis_test::RedisServer> server_;
  StoreUrl store_;
};
using Tutorial23 = SharedStore;
using Tutorial24 = SharedStore;

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

size_t files_in(const std::string& folder) {
  size_t n = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder)) {
    n++;
  }
  return n;
}

std::vector<std::string> matches_of(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator each(text.begin(), text.end(), regex), end; each != end; ++each) {
    found.push_back((*each)[1]);
  }
  return found;
}

// The commands that docs/store.md shows for looking into a server, as words.
std::vector<std::vector<std::string>> shown_redis_commands() {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& line : matches_of(text_of(std::string(SOURCE_TREE) + "/docs/store.md"),
                                            R"((?:^|\n)redis-cli ([^\n]*))")) {
    std::string plain = line;
    plain.erase(std::remove(plain.begin(), plain.end(), '\''), plain.end());
    commands.push_back(matches_of(plain, R"(([^ ]+))"));
  }
  return commands;
}

}  // namespace

TEST(Tutorial22, RemindsAfterTheProgramWasKilled) {
  StoreUrl store;
  // Long enough for the program to be killed before its time.
  Program killed("tutorial-22-reminder", {store.url, "5", "the tea is ready"});
  ASSERT_TRUE(killed.prints("stored: file\n"));
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.exit_code(), -SIGKILL);
  EXPECT_EQ(killed.output(), "stored: file\n");

  Program program("tutorial-22-reminder", {store.url});
  EXPECT_TRUE(program.prints("reminder: the tea is ready ("));
  program.close_stdin();
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_EQ(count_of(program.output(), "\n"), 1U) << program.output();
  EXPECT_EQ(store.open()->count("").count, 0U);
}

TEST(Tutorial22, SaysWhyAStoreCannotBeOpened) {
  Program program("tutorial-22-reminder", {"nonsense:x"});
  EXPECT_EQ(program.exit_code(), 1);
}

TEST_P(Tutorial23, WorkersFinishWhatAKilledOneHasBegun) {
  FastDir expired;
  // This worker takes an hour for each order, so it is at work when it is killed.
  Program killed("tutorial-23-order_expiry", {store_.url, "work", expired.path(""), "3600000"});
  ASSERT_TRUE(killed.prints("working\n"));
  Program shop("tutorial-23-order_expiry", {store_.url, "place", "40", "0"});
  ASSERT_TRUE(killed.prints(": begins, attempt 1\n"));
  std::vector<std::unique_ptr<Program>> workers;
  for (int i = 0; i < 2; i++) {
    workers.push_back(std::make_unique<Program>(
        "tutorial-23-order_expiry",
        std::vector<std::string>{store_.url, "work", expired.path(""), "0"}));
    ASSERT_TRUE(workers.back()->prints("working\n"));
  }
  EXPECT_EQ(shop.exit_code(), 0);
  EXPECT_EQ(shop.output(), "40 orders\n");
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.exit_code(), -SIGKILL);

  EXPECT_TRUE(eventually([&] { return files_in(expired.path("")) == 40; }));
  std::string output;
  for (const auto& worker : workers) {
    worker->close_stdin();
    EXPECT_EQ(worker->exit_code(), 0);
    output += worker->output();
  }
  // Each order expired once, and those that the killed worker had begun did so in a second attempt.
  EXPECT_EQ(count_of(output, ": expired, attempt "), 40U) << output;
  const auto begun = matches_of(killed.output(), R"((order-\d+): begins)");
  EXPECT_GE(begun.size(), 1U);
  for (const std::string& order : begun) {
    EXPECT_EQ(count_of(output, order + ": expired, attempt 2\n"), 1U) << order << "\n" << output;
  }
  EXPECT_EQ(count_of(killed.output(), "expired"), 0U) << killed.output();
  Program pay("tutorial-23-order_expiry", {store_.url, "pay", begun.at(0)});
  EXPECT_EQ(pay.exit_code(), 1);
  EXPECT_EQ(pay.output(), begun.at(0) + ": too late: it has expired\n");
}

TEST_P(Tutorial23, OrdersThatArePaidDoNotExpire) {
  Program shop("tutorial-23-order_expiry", {store_.url, "place", "2", "3600"});
  EXPECT_EQ(shop.exit_code(), 0);
  const std::vector<std::pair<std::string, std::string>> asked = {
      {"order-1", "paid in time"}, {"order-1", "paid before"}, {"order-3", "no such order"}};
  for (const auto& [order, answer] : asked) {
    Program pay("tutorial-23-order_expiry", {store_.url, "pay", order});
    EXPECT_EQ(pay.exit_code(), answer == "paid in time" ? 0 : 1);
    EXPECT_EQ(pay.output(), order + ": " + answer + "\n");
  }
  EXPECT_EQ(store_.open()->count("").count, 1U);
}

INSTANTIATE_TEST_SUITE_P(Stores, Tutorial23, testing::Values("sqlite", "redis"), name_of);

TEST_P(Tutorial24, OneOfAllProcessesRunsEachDate) {
  constexpr size_t kProcesses = 10;
  std::vector<std::unique_ptr<Program>> programs;
  for (size_t i = 0; i < kProcesses; i++) {
    programs.push_back(std::make_unique<Program>(
        "tutorial-24-nightly_job", std::vector<std::string>{store_.url, "* * * * * *"}));
    EXPECT_TRUE(programs.back()->prints(i == 0 ? "stored it\n" : "it is there\n"));
  }
  // The timer moves to its next date when a date was run.
  std::set<std::chrono::system_clock::time_point> dates;
  {
    const auto store = store_.open();
    EXPECT_TRUE(eventually([&] {
      const WFStoreResult listed = store->list("the nightly job");
      if (listed.timers.size() == 1) {
        dates.insert(listed.timers[0].due);
      }
      return dates.size() >= 4;
    }));
  }
  std::string output;
  for (const auto& program : programs) {
    program->close_stdin();
    EXPECT_EQ(program->exit_code(), 0);
    output += program->output();
  }
  const auto nights = matches_of(output, R"(the night of ([^,]*), attempt 1\n)");
  EXPECT_GE(nights.size(), 3U) << output;
  EXPECT_EQ(std::set<std::string>(nights.begin(), nights.end()).size(), nights.size()) << output;
  EXPECT_EQ(count_of(output, "\n"), nights.size() + kProcesses) << output;
}
INSTANTIATE_TEST_SUITE_P(Stores, Tutorial24, testing::Values("sqlite", "redis"), name_of);

TEST(StorePage, ShowsTheCodeThatIsTested) {
  const std::string root = SOURCE_TREE;
  std::string tested;
  for (const char* file : {"/tutorial/tutorial-22-reminder.cc", "/test/store/StoreExamples_test.cc",
                           "/test/store/StoreExamplesClock_own_test.cc"}) {
    tested += text_of(root + file);
  }
  const auto shown = matches_of(text_of(root + "/docs/store.md"), R"(```cpp\n([^`]*)```)");
  EXPECT_EQ(shown.size(), 7U);
  for (const std::string& code : shown) {
    EXPECT_NE(tested.find(code), std::string::npos) << code;
  }
}

// What docs/store.md says about looking into the file of a store and about copying it.
TEST(StorePage, TheSqliteProgramReadsAndCopiesAStore) {
  StoreUrl store;
  const std::string copy = store.folder.path("copy.db");
  Program worker("tutorial-23-order_expiry",
                 {store.url, "work", store.folder.path("expired"), "0"});
  ASSERT_TRUE(worker.prints("working\n"));
  Program shop("tutorial-23-order_expiry", {store.url, "place", "20", "3600"});
  ASSERT_EQ(shop.exit_code(), 0);
  const std::string page = text_of(std::string(SOURCE_TREE) + "/docs/store.md");
  const auto commands = matches_of(page, R"(\n(sqlite3 -readonly FILE "BEGIN"[^\n]*)\n)");
  ASSERT_EQ(commands.size(), 1U);
  std::string command = std::regex_replace(commands[0], std::regex(R"(\bFILE\b)"), store.file);
  command = std::regex_replace(command, std::regex(R"(\bCOPY\b)"), copy);
  EXPECT_EQ(run_program("bash", {"-c", command}).exit_code, 0);
  worker.signal(SIGKILL);
  EXPECT_EQ(worker.exit_code(), -SIGKILL);
  const auto read = run_program(
      "sqlite3", {"-readonly", store.file, "SELECT name FROM timers WHERE state = 0 LIMIT 1"});
  EXPECT_EQ(read.output, "order-1\n");

  EXPECT_EQ(store.open()->cancel("order-1").verdict(), WFStoreVerdict::kWon);
  EXPECT_EQ(store.open()->count("").count, 19U);
  store.url = "sqlite:" + copy;
  EXPECT_EQ(store.open()->count("").count, 20U);
}

// What docs/store.md says about the tables, and its query.
TEST(StorePage, TheTablesHaveWhatThePageExplains) {
  StoreUrl place;
  WFFacilities::WaitGroup end(1);
  std::atomic<uint64_t> fence_of_calm{0};
  const auto store = place.open();
  store->handle("run", [&](WFStoredTimer* timer) {
    if (timer->name() == "calm") {
      fence_of_calm = timer->fence();
    }
    end.wait();
  });
  store->handle("end", [](WFStoredTimer*) {});
  store->handle("fail", [](WFStoredTimer* timer) { timer->give_up("no"); });
  const auto sql = [&place](const std::string& query) {
    const auto read = run_program("sqlite3", {"-readonly", place.file, query});
    EXPECT_EQ(read.exit_code, 0) << query;
    return read.output;
  };
  // A column of the timers of that name.
  const auto column = [&sql](const std::string& what, const std::string& name,
                             const std::string& table = "timers") {
    return sql("SELECT " + what + " FROM " + table + " WHERE CAST(name AS TEXT) = '" + name +
               "' ORDER BY id");
  };
  const auto schedule = [&store](const std::string& name, const WFStoreDue& due,
                                 const std::string& kind, WFTimerPolicy policy = WF_TIMER_APPEND) {
    WFStoreTimer timer{name, due, kind};
    timer.payload = "for " + name;
    timer.policy = policy;
    timer.skip_if_later = std::chrono::minutes(30);
    EXPECT_TRUE(store->schedule(timer).ok()) << name;
  };
  const std::chrono::system_clock::time_point date(std::chrono::seconds(2'208'988'800));
  schedule("tea", date, "end");
  schedule("bread", date - std::chrono::hours(1), "end");
  const auto shown = matches_of(text_of(std::string(SOURCE_TREE) + "/docs/store.md"),
                                R"re(\nsqlite3 -readonly FILE "(SELECT [^"]*)"\n)re");
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(sql(shown[0]), "bread|2039-12-31 23:00:00|0\ntea|2040-01-01 00:00:00|0\n");
  EXPECT_EQ(column("state, wake = due, marked", "tea"), "0|1|0\n");
  EXPECT_EQ(column("CAST(payload AS TEXT), owner IS NULL", "tea"), "for tea|1\n");

  for (const char* const name : {"calm", "busy", "cancelled"}) {
    schedule(name, std::chrono::seconds(0), "run");
  }
  ASSERT_TRUE(eventually([&] { return store->stats().begun == 3 && fence_of_calm != 0; }));
  const std::string owner = store->list("calm").timers.at(0).owner;
  schedule("busy", std::chrono::hours(1), "run", WF_TIMER_REPLACE);
  EXPECT_EQ(store->cancel("cancelled").verdict(), WFStoreVerdict::kRunning);
  EXPECT_EQ(column("state, attempts, marked", "calm"), "1|1|0\n");
  EXPECT_EQ(column("CAST(owner AS TEXT), fence", "calm"),
            owner + '|' + std::to_string(fence_of_calm) + '\n');
  EXPECT_EQ(column("state", "busy"), "1\n2\n");
  EXPECT_EQ(column("state, marked", "cancelled"), "1|1\n");
  EXPECT_EQ(column("(SELECT name FROM kinds WHERE id = kind)", "calm"), "run\n");
  // The end of the lease, which may have been extended.
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::chrono::microseconds wake(std::atoll(column("wake", "calm").c_str()));
  EXPECT_GT(wake, now);
  EXPECT_LE(wake, now + std::chrono::seconds(30) + std::chrono::seconds(60));

  schedule("done", std::chrono::seconds(0), "end");
  schedule("missed", std::chrono::system_clock::now() - std::chrono::hours(1), "end");
  schedule("failed", std::chrono::seconds(0), "fail");
  EXPECT_EQ(store->cancel("tea").verdict(), WFStoreVerdict::kWon);
  for (const auto& [name, outcome] : std::vector<std::pair<std::string, std::string>>{
           {"done", "1\n"}, {"tea", "2\n"}, {"missed", "3\n"}, {"failed", "4\n"}}) {
    EXPECT_TRUE(eventually([&, name = name, outcome = outcome] {
      return column("outcome", name, "done") == outcome;
    })) << name;
  }
  EXPECT_EQ(column("state", "failed"), "3\n");
  end.done();
  EXPECT_TRUE(store->close(test_support::kPatience));  // the handlers use `end`
}

// What docs/store.md says about looking into a server.
TEST(StorePage, TheRedisProgramReadsAStore) {
  redis_test::RedisServer server;
  const auto ask = [&server](std::vector<std::string> words) {
    words.insert(words.begin(), {"-s", server.socket_path()});
    const auto asked = run_program(redis_test::redis_program("cli"), words);
    EXPECT_EQ(asked.exit_code, 0);
    return asked.output;
  };
  std::string message;
  const std::unique_ptr<WFTimerStore> store(
      WFTimerStore::open(server.url() + "&namespace=app&shards=1", &message));
  ASSERT_TRUE(store) << message;
  ASSERT_TRUE(store->schedule({"tea", std::chrono::hours(1), "remind"}).ok());
  ASSERT_TRUE(store->schedule({"bread", std::chrono::hours(2), "remind"}).ok());
  const auto shown = shown_redis_commands();
  ASSERT_EQ(shown.size(), 4U);

  const std::string meta = ask(shown[0]);
  EXPECT_NE(meta.find("layout\n3\n"), std::string::npos) << meta;
  EXPECT_NE(meta.find("shards\n1\n"), std::string::npos) << meta;
  EXPECT_EQ(ask(shown[1]), "2\n");
  // Kind, time and number, the earliest one first.
  const std::string queue = ask(shown[2]);
  EXPECT_EQ(count_of(queue, "remind"), 2U) << queue;
  const auto entries = matches_of(queue, R"(([^\n]*)\n)");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_LT(entries[0], entries[1]);

  std::vector<std::string> listen = {"-s", server.socket_path()};
  listen.insert(listen.end(), shown[3].begin(), shown[3].end());
  test_support::Program listener(redis_test::redis_program("cli"), listen);
  ASSERT_TRUE(listener.prints("subscribe"));
  ASSERT_TRUE(store->schedule({"now", std::chrono::seconds(0), "remind"}).ok());
  EXPECT_TRUE(listener.prints("message"));
}
