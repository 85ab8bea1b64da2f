#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "store/Dial.h"
#include "store/FaultVfs.h"
#include "store/LedgerDisk.h"
#include "store/LedgerPlay.h"
#include "store/LedgerRounds.h"
#include "support/Eventually.h"
#include "support/RealFunction.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"

// Stores in files, of each layout, whose disks fail or lose what was not synced, or whose files are
// damaged. An outside ledger judges all of it, see KillLedger.h.

namespace {

using store_test::Children;
using store_test::Dial;
using store_test::kLease;
using store_test::kRoundsOfStore;
using store_test::LedgerRounds;
using store_test::name_of_round;
using store_test::play;
using store_test::rounds;
using test_support::eventually;
using test_support::FaultVfs;
using test_support::kSanitized;
using test_support::test_seed;
using test_support::TestRandom;

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
    ::usleep(static_cast<useconds_t>(random_.below(kSanitized ? 600'000 : 80'000)));
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

// Faults that last, while processes use the store, until the test ends them. Nothing is lost by
// them.
class StoreLastingFaults : public StoreFaultyDisks {
 protected:
  static constexpr int64_t kMiB = 1024 * 1024;

  void begin_store() {
    StoreFaultyDisks::begin_store();
    dial_ = std::make_unique<Dial>(ledger_.path("dial"));
    is_full_ = false;
    ledger_.set_variables({"LEDGER_DIAL=" + ledger_.path("dial")});
    refused_.clear();
    struck_ = 0;
  }

  // One process, or two where that is possible, with these variables.
  void start_workers(int64_t round, std::vector<std::string> fault = {}) {
    first_ = ledger_.processes();
    children_.clear();
    const std::string name = name_of_round(round);
    const std::string before = name_of_round(round - 1) + 'a';
    fault.push_back("LEDGER_PAUSE_US=" + std::to_string(kPauseUs));
    for (const char process : std::string(is_owned() ? "a" : "ab")) {
      children_.push_back(
          ledger_.start_worker(name + process, process == 'b' ? name + 'a' : before, fault));
    }
  }
  void expect_begun() {
    for (const auto& child : children_) {
      ASSERT_EQ(child->line(), "begun");
    }
    ASSERT_TRUE(go_on(1 + random_.below(50)));
  }

  // Waits until so many more requests of each process were carried out.
  bool go_on(size_t more = 20) {
    for (size_t process = first_; process < ledger_.processes(); process++) {
      if (!ledger_.wait_for_answers(more, process)) return false;
    }
    return true;
  }
  // Waits until another request of each process was answered in one of these ways.
  bool are_refused(const std::vector<std::string>& ways) {
    for (size_t process = first_; process < ledger_.processes(); process++) {
      const auto count = [&] {
        size_t found = 0;
        for (const std::string& way : ways) {
          found += ledger_.answers(way, process);
        }
        return found;
      };
      if (!eventually([&] { return count() > refused_[process]; })) return false;
      refused_[process] = count();
    }
    struck_++;
    return true;
  }
  static std::string refused(int error) { return "refused " + std::to_string(error); }
  // Kills them, half of the time.
  bool may_kill() {
    if (random_.one_in(2)) return false;
    children_.clear();
    return true;
  }

  void play_rounds(const std::function<void(int64_t)>& play_round) {
    play(
        ledger_, rounds(2), [this](int64_t) { begin_store(); },
        [&](int64_t round) {
          play_round(round);
          children_.clear();
        },
        [this] { return ledger_.saw_much() && struck_ > 0; });
  }

  // What the files of the store take.
  int64_t used_bytes() const {
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ledger_.path("disk"))) {
      std::error_code gone;
      const uintmax_t size = entry.file_size(gone);
      bytes += gone ? 0 : static_cast<int64_t>(size);
    }
    return bytes;
  }
  // How many timers were stored.
  size_t stored() const { return ledger_.answers("ok ") - ledger_.answers("ok 0 "); }

  void fill_disk(int64_t round) {
    if (!is_full_) {
      dial_->set(64 * kMiB);
    }
    start_workers(round, {"LEDGER_DISK=small " + ledger_.path("disk")});
    if (is_full_) {
      // They may need more room to open the store than there is.
      for (const auto& child : children_) {
        const std::string line = child->line().value_or("nothing");
        ASSERT_TRUE(line == "begun" || line.find("error " + std::to_string(ENOSPC)) == 0) << line;
      }
      dial_->set(64 * kMiB);
      is_full_ = false;
      children_.clear();
      start_workers(round + kOther, {"LEDGER_DISK=small " + ledger_.path("disk")});
    }
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    dial_->set(used_bytes() + static_cast<int64_t>(random_.below(200'000)));
    ASSERT_TRUE(are_refused({refused(ENOSPC)}));
    if (random_.one_in(2)) {
      // Another program takes what the reserve has left.
      dial_->set(used_bytes());
      ASSERT_TRUE(are_refused({refused(ENOSPC)}));
    } else {
      ASSERT_TRUE(go_on());  // in the room of the reserve
    }
    if (may_kill()) {
      is_full_ = true;
      return;
    }
    dial_->set(64 * kMiB);
    const size_t enough = stored() + 20;
    ASSERT_TRUE(eventually([&] { return stored() >= enough; }));
  }

  void make_read_only(int64_t round) {
    dial_->set(0);
    start_workers(round, {"LEDGER_DISK=readonly"});
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    dial_->set(1);
    ASSERT_TRUE(are_refused({refused(EROFS), "doubt"}));
    if (may_kill()) return;
    dial_->set(0);
    ASSERT_TRUE(go_on());
  }

  // Each process fails to write, and has no descriptors to open the store again but those that it
  // had.
  void take_descriptors(int64_t round) {
    dial_->set(0);
    start_workers(round, {"LEDGER_FAULT=descriptors", "LEDGER_DISK=good"});
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    dial_->set(1);
    for (size_t process = first_; process < ledger_.processes(); process++) {
      ASSERT_TRUE(eventually([&] { return ledger_.faults(process) > 0; }));
      // It goes on, or says that it cannot.
      const size_t enough = ledger_.answers("", process) + 20;
      ASSERT_TRUE(eventually([&] { return ledger_.answers("", process) >= enough; }));
      struck_++;
    }
    if (may_kill()) return;
    dial_->set(0);
    ASSERT_TRUE(go_on());
  }

  // The file of the store is away or another one is in its place, until it is put back.
  void remove_file(int64_t round) {
    if (!std::filesystem::exists(file())) {
      // A copy of the store as it was in the beginning, and another store.
      ASSERT_NO_FATAL_FAILURE(create_store());
      std::filesystem::copy_file(file(), file() + ".copy");
      std::filesystem::create_directory(ledger_.path("other"));
      use_directory("other");
      ASSERT_NO_FATAL_FAILURE(create_store());
      std::filesystem::copy_file(file(), ledger_.path("disk/timers.other"));
      use_directory("disk");
    }
    start_workers(round);
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    const std::string placed = std::vector<std::string>{"", ".copy", ".other"}[random_.below(3)];
    std::filesystem::rename(file(), file() + ".away");
    if (!placed.empty()) {
      std::filesystem::copy_file(file() + placed, file());
    }
    ASSERT_TRUE(are_refused({refused(placed.empty() ? ENOENT : EILSEQ)}));
    const bool were_killed = may_kill();
    std::filesystem::rename(file() + ".away", file());
    ASSERT_TRUE(were_killed || go_on());
  }
  void create_store() {
    const auto child = ledger_.start("finish");
    ASSERT_EQ(child->line(), "empty");
    ASSERT_EQ(child->wait(), 0);
  }

  // The log or the file for the queue is removed. What is in the log is lost only if nobody has it
  // open any more, so one of two processes may be killed at once.
  void remove_side_file(int64_t round) {
    start_workers(round);
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    const bool is_log = round % 2 == 0;
    const std::string name = file() + (is_log ? "-wal" : "-queue");
    ASSERT_TRUE(std::filesystem::remove(name));
    const bool is_one_killed = children_.size() > 1 && may_kill_last();
    // A shared store needs the queue for fairness only.
    if (is_log || is_owned()) {
      ASSERT_TRUE(eventually([&name] { return std::filesystem::exists(name); }));
    }
    ASSERT_TRUE(is_one_killed ? ledger_.wait_for_answers(20, first_) : go_on());
    struck_++;
  }
  bool may_kill_last() {
    if (random_.one_in(2)) return false;
    children_.pop_back();
    return true;
  }

  std::unique_ptr<Dial> dial_;
  Children children_;
  size_t first_ = 0;                  // of the processes of this round
  std::map<size_t, size_t> refused_;  // how many answers of a process were found to be that
  size_t struck_ = 0;

 private:
  static constexpr int kPauseUs = 300;
  static constexpr int64_t kOther = 1'000'000;

  bool is_full_ = false;
};

TEST_P(StoreLastingFaults, AnOutsideLedgerOfReceiptsAndStartsHoldsOverAFullDisk) {
  play_rounds([this](int64_t round) { fill_disk(round); });
}

TEST_P(StoreLastingFaults, AnOutsideLedgerOfReceiptsAndStartsHoldsOverAReadOnlyDisk) {
  play_rounds([this](int64_t round) { make_read_only(round); });
}

TEST_P(StoreLastingFaults, AnOutsideLedgerOfReceiptsAndStartsHoldsWithoutDescriptors) {
  play_rounds([this](int64_t round) { take_descriptors(round); });
}

TEST_P(StoreLastingFaults, AnOutsideLedgerOfReceiptsAndStartsHoldsOverRemovedFiles) {
  play_rounds([this](int64_t round) { remove_file(round); });
}

TEST_P(StoreLastingFaults, AnOutsideLedgerOfReceiptsAndStartsHoldsOverRemovedSideFiles) {
  play_rounds([this](int64_t round) { remove_side_file(round); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoreLastingFaults, testing::Bool(), layout_of);

}  // namespace

// What the system says of the room on a disk that a process of the test has made small.
extern "C" int statvfs(const char* path, struct statvfs* room) noexcept {
  static const auto call =
      test_support::real_function<int(const char*, struct statvfs*)>("statvfs");
  const int result = call(path, room);
  if (result == 0) {
    store_test::Disk::tell_room(room);
  }
  return result;
}

int main(int argc, char** argv) {
  return store_test::run_tests_or_part(argc, argv);
}
