#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/FaultVfs.h"
#include "store/SqliteChild.h"
#include "store/SqliteReported.h"
#include "store/SqliteSeals.h"
#include "support/Background.h"
#include "support/Eventually.h"
#include "support/SqliteKit.h"
#include "support/Text.h"
#include "util/Thread.h"

// Files that are deleted or replaced while several processes use the store. The children run this
// program, and play a part.

using namespace test_support;

namespace {

namespace fs = std::filesystem;

// Stores and cancels. After a failure it opens the store again, as often as that takes. Says "!
// ERRNO MESSAGE" for each failure, once in a row, and "@" when the store is open again.
void write() {
  std::string message;
  int error = 0;
  const auto options = options_of(workflow::system_clock(), static_cast<uint64_t>(::getpid()));
  const auto backend = open_backend(variable("STORE_PATH"), options, {}, &message, &error);
  const auto say_failure = [](int code, const std::string& text) {
    say("! " + std::to_string(code) + " " + text);
  };
  if (!backend) {
    say_failure(error, message);
    return;
  }
  report_for_ever(*backend, variable("STORE_NAME"), [&](const workflow::StoreFailure& failure) {
    say_failure(failure.error, failure.message);
    std::string said;
    while ((error = backend->reopen(&message)) != 0) {
      if (message != said) {
        say_failure(error, message);
        said = message;
      }
      workflow::pause_ns(1'000'000);  // others are to get on, too
    }
    say("@");
  });
}

// Reads an old state until it is killed.
void read_for_long() {
  workflow::SqliteConnection connection;
  connection.open(variable("STORE_PATH"), SQLITE_OPEN_READWRITE,
                  workflow::SqliteSeals::over(nullptr));
  connection.set_copies_on_close(false);
  if (connection.run("BEGIN") && connection.number("SELECT commits FROM meta") > 0) {
    say("reads");
  }
  wait_for_exit();
}

// Copies the log until it is killed, before it has copied anything.
void copy_for_long() {
  FaultVfs vfs;
  workflow::SqliteConnection connection;
  connection.open(variable("STORE_PATH"), SQLITE_OPEN_READWRITE,
                  workflow::SqliteSeals::over(vfs.name()));
  connection.set_copies_on_close(false);
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    if (operation == FaultVfs::kWrite) {
      say("copies");
      wait_for_exit();
    }
    return SQLITE_OK;
  });
  connection.run("PRAGMA wal_checkpoint(PASSIVE)");
}

int play(const std::string& part) {
  const std::map<std::string, void (*)()> parts = {
      {"write", write}, {"read", read_for_long}, {"copy", copy_for_long}};
  parts.at(part)();
  return 0;
}

class SqliteRemovedProcesses : public ::testing::Test {
 protected:
  static constexpr int kWriters = 3;

  struct Writer {
    std::string name;
    std::unique_ptr<SqliteChild> child;
    Reported reported;
    std::string line;  // the last one

    // Whether there is another line.
    bool read() {
      const std::optional<std::string> next = child->line();
      line = next.value_or("");
      if (next && line[0] != '!' && line[0] != '@') {
        reported.note(line);
      }
      return next.has_value();
    }
    // Reads until it has said that so many steps were carried out, without a failure.
    void expect_steps(int steps) {
      while (steps > 0) {
        ASSERT_TRUE(read()) << name;
        ASSERT_NE(line[0], '!') << name << line;
        steps -= line[0] == '+' || line[0] == '-' ? 1 : 0;
      }
    }
    // Reads until it has said that the store has failed for this reason. It does not use a store
    // before that.
    void expect_failure(int error, const std::string& text) {
      const std::string beginning = "! " + std::to_string(error) + " ";
      bool has_failed = false;
      int left = 20'000;  // more lines than wait in the pipe
      do {
        ASSERT_TRUE(read()) << name;
        ASSERT_GT(left--, 0) << name << "goes on";
        has_failed = has_failed || line[0] == '!';
        ASSERT_TRUE(!has_failed || line[0] == '!') << name << line;
      } while (line.find(beginning) != 0 || line.find(text) == std::string::npos);
    }
    // Reads until the store is open again.
    void expect_open() {
      do {
        ASSERT_TRUE(read()) << name;
        ASSERT_TRUE(line[0] == '!' || line[0] == '@') << name << line;
      } while (line != "@");
    }
  };

  std::unique_ptr<SqliteChild> start(const std::string& part, const std::string& name = "") const {
    return std::make_unique<SqliteChild>(std::vector<std::string>{
        "STORE_PART=" + part, "STORE_NAME=" + name, "STORE_PATH=" + path_});
  }

  void start_writers() {
    for (int i = 0; i < kWriters; i++) {
      writers_.push_back({std::string(1, static_cast<char>('a' + i)) + " ", nullptr, {}, ""});
      writers_.back().child = start("write", writers_.back().name);
    }
    expect_steps();
  }

  // All of them use the store.
  void expect_steps() {
    for (Writer& writer : writers_) {
      ASSERT_NO_FATAL_FAILURE(writer.expect_steps(30));
    }
  }
  void expect_failures(int error, const std::string& text) {
    for (Writer& writer : writers_) {
      ASSERT_NO_FATAL_FAILURE(writer.expect_failure(error, text));
    }
  }
  // The right file is there again.
  void expect_all_go_on() {
    for (Writer& writer : writers_) {
      ASSERT_NO_FATAL_FAILURE(writer.expect_open());
    }
    ASSERT_NO_FATAL_FAILURE(expect_steps());
    expect_nothing_lost();
  }
  // Ends the writers.
  void expect_nothing_lost() {
    for (Writer& writer : writers_) {
      writer.child->kill();
      while (writer.read()) {
      }
      writer.reported.end();
    }
    const auto backend = open();
    ASSERT_TRUE(backend);
    for (const Writer& writer : writers_) {
      writer.reported.expect_in(*backend, writer.name);
      EXPECT_GT(writer.reported.stored(), 10U);
    }
  }

  std::unique_ptr<workflow::SqliteBackend> open(const workflow::SqliteSettings& settings = {}) {
    std::string message;
    auto backend = open_backend(path_, options_of(workflow::system_clock()), settings, &message);
    EXPECT_TRUE(backend) << message;
    return backend;
  }

  // Creates the store and makes a copy of its file beside it. Returns what is in the copy.
  std::string copy_beginning() {
    const auto backend = open();
    if (!backend) return "";
    carry_out(*backend, schedule("tea", 0));
    backend->close();
    fs::copy_file(path_, path_ + ".copy");
    return text_of(path_ + ".copy");
  }

  // The file is the first one that goes and the last one that comes back: without it nobody uses
  // the others. Whoever opens the store makes the index of its log anew.
  void put_away(const std::vector<std::string>& suffixes) const {
    for (const std::string& suffix : suffixes) {
      fs::rename(path_ + suffix, path_ + suffix + ".away");
    }
    if (suffixes.size() > 1) {
      fs::remove(path_ + "-shm");
    }
  }
  void put_back(const std::vector<std::string>& suffixes) const {
    fs::remove(path_);
    if (suffixes.size() > 1) {
      fs::remove(path_ + "-shm");
    }
    for (auto suffix = suffixes.rbegin(); suffix != suffixes.rend(); suffix++) {
      fs::rename(path_ + *suffix + ".away", path_ + *suffix);
    }
  }

  FastDir directory_;
  const std::string path_ = directory_.path("timers");
  std::vector<Writer> writers_;
};

TEST_F(SqliteRemovedProcesses, AFileThatIsDeletedFailsAllUntilItComesBack) {
  ASSERT_NO_FATAL_FAILURE(start_writers());
  put_away({""});
  ASSERT_NO_FATAL_FAILURE(expect_failures(ENOENT, "deleted"));
  ASSERT_NO_FATAL_FAILURE(expect_failures(ENOENT, "there is no store"));
  EXPECT_FALSE(fs::exists(path_));
  put_back({""});
  expect_all_go_on();
}

// The log is still there, with all that was stored. But whatever of it was copied to the file since
// the copy was made is not looked for in the log.
TEST_F(SqliteRemovedProcesses, ACopyBesideTheLogIsTakenForTheStoreByNobody) {
  const std::string copy = copy_beginning();
  ASSERT_NO_FATAL_FAILURE(start_writers());
  while (fs::file_size(path_) == copy.size()) {
    ASSERT_NO_FATAL_FAILURE(expect_steps());
  }
  put_away({""});
  fs::rename(path_ + ".copy", path_);
  ASSERT_NO_FATAL_FAILURE(expect_failures(EILSEQ, "a copy of the store"));
  EXPECT_TRUE(text_of(path_) == copy);
  put_back({""});
  expect_all_go_on();
}

TEST_F(SqliteRemovedProcesses, AnOlderCopyIsTakenForTheStoreByNobody) {
  const std::string copy = copy_beginning();
  ASSERT_NO_FATAL_FAILURE(start_writers());
  put_away({"", "-wal"});
  fs::rename(path_ + ".copy", path_);
  ASSERT_NO_FATAL_FAILURE(expect_failures(EILSEQ, "has lost transactions"));
  EXPECT_TRUE(text_of(path_) == copy);
  put_back({"", "-wal"});
  expect_all_go_on();
}

TEST_F(SqliteRemovedProcesses, AnotherStoreInItsPlaceIsTakenForItByNobody) {
  const FastDir directory;
  const std::string other = directory.path("timers");
  const auto backend = open_backend(other, options_of(workflow::system_clock()));
  ASSERT_TRUE(backend);
  carry_out(*backend, schedule("tea", 0));
  backend->close();
  ASSERT_NO_FATAL_FAILURE(start_writers());
  const std::vector<std::string> all = {"", "-wal", "-queue", "-reserve"};
  put_away(all);
  fs::copy_file(other + "-queue", path_ + "-queue");
  fs::copy_file(other, path_);
  ASSERT_NO_FATAL_FAILURE(expect_failures(EILSEQ, "another store"));
  EXPECT_TRUE(text_of(path_) == text_of(other));
  put_back(all);
  expect_all_go_on();
}

// The log is deleted while a child, which has said that it plays its part, keeps others from
// copying all of it. Whoever notices the loss waits until the child has ended.
class SqliteLostLog : public SqliteRemovedProcesses {
 protected:
  static constexpr uint64_t kTimers = 10;

  void lose_log(const std::string& part, const std::string& word, int busy_ms) {
    settings_.base_vfs = vfs_.name();
    settings_.busy_ms = busy_ms;
    backend_ = open(settings_);
    ASSERT_TRUE(backend_);
    ASSERT_NO_FATAL_FAILURE(store(kTimers / 2));
    child_ = start(part);
    ASSERT_EQ(child_->line(), word);
    ASSERT_NO_FATAL_FAILURE(store(kTimers / 2));  // not seen by whoever reads an old state
    fs::remove(path_ + "-wal");
    workflow::StoreFailure failure;
    carry_out(*backend_, schedule("tea", 0), 0, 1, &failure);
    EXPECT_EQ(failure.error, ESTALE) << failure.message;
  }
  void store(uint64_t timers) {
    for (uint64_t i = 0; i < timers; i++) {
      workflow::StoreFailure failure;
      carry_out(*backend_, schedule("tea", 0), 0, 1, &failure);
      ASSERT_EQ(failure.error, 0) << failure.message;
    }
  }

  void expect_saved_when_child_has_ended() {
    std::string message;
    std::atomic<bool> is_open{false};
    const int64_t busy = vfs_.busy_locks();
    {
      const Background reopening([&] {
        EXPECT_EQ(backend_->reopen(&message), 0) << message;
        is_open = true;
      });
      // It has tried again.
      EXPECT_TRUE(eventually([&] { return vfs_.busy_locks() > busy + 2 || is_open; }));
      EXPECT_FALSE(is_open);
      child_->kill();
    }
    EXPECT_EQ(carry_out(*backend_, workflow::CountRequest{}).count, kTimers);
    ASSERT_NO_FATAL_FAILURE(store(1));
    backend_.reset();
    const auto again = open();
    ASSERT_TRUE(again);
    EXPECT_EQ(carry_out(*again, workflow::CountRequest{}).count, kTimers + 1);
  }

  // What cannot be saved is not passed over in silence.
  void expect_reported_as_lost() {
    std::string message;
    EXPECT_EQ(backend_->reopen(&message), EILSEQ) << message;
    child_->kill();
    EXPECT_EQ(backend_->reopen(&message), EILSEQ) << message;
    EXPECT_NE(message.find("has lost transactions"), std::string::npos) << message;
  }

  FaultVfs vfs_;
  workflow::SqliteSettings settings_;
  std::unique_ptr<workflow::SqliteBackend> backend_;
  std::unique_ptr<SqliteChild> child_;
};

constexpr int kLongMs = 600'000;

TEST_F(SqliteLostLog, IsSavedWhenAnotherProcessHasStoppedCopying) {
  ASSERT_NO_FATAL_FAILURE(lose_log("copy", "copies", kLongMs));
  expect_saved_when_child_has_ended();
}

TEST_F(SqliteLostLog, IsSavedWhenAnotherProcessHasStoppedReading) {
  ASSERT_NO_FATAL_FAILURE(lose_log("read", "reads", kLongMs));
  expect_saved_when_child_has_ended();
}

TEST_F(SqliteLostLog, IsReportedAsLostWhenAnotherProcessCopiesForTooLong) {
  ASSERT_NO_FATAL_FAILURE(lose_log("copy", "copies", 50));
  expect_reported_as_lost();
}

TEST_F(SqliteLostLog, IsReportedAsLostWhenAnotherProcessReadsForTooLong) {
  ASSERT_NO_FATAL_FAILURE(lose_log("read", "reads", 50));
  expect_reported_as_lost();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = variable("STORE_PART");
  if (!part.empty()) return play(part);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
