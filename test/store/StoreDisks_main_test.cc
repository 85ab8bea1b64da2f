#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "store/Dial.h"
#include "store/FaultVfs.h"
#include "store/LedgerOnDisk.h"
#include "store/LedgerPlay.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"

// Stores in files, of each layout, whose disks fail or lose what was not synced, or whose files are
// damaged. An outside ledger judges all of it, see KillLedger.h.

namespace {

using store_test::Dial;
using store_test::kLease;
using store_test::kRoundsOfStore;
using store_test::layout_of;
using store_test::LedgerOfLastingFaults;
using store_test::LedgerOnDisk;
using store_test::name_of_round;
using store_test::play;
using store_test::rounds;
using test_support::eventually;
using test_support::FaultVfs;
using test_support::kSanitized;
using test_support::test_seed;

class StoreFaultyDisks : public LedgerOnDisk {
 protected:
  // A store with one owner has not synced what a run has done when that is over.
  void expect_losses_of_power() {
    ledger_.set_rules({.leases_end_with_process = is_owned(),
                       .undoes_runs = is_owned(),
                       .lease_us = kLease.count()});
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
    use_directory(ledger_.path(next));
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

INSTANTIATE_TEST_SUITE_P(Layouts, StoreFaultyDisks, testing::Bool(), layout_of);

// Faults that last, while processes use the store, until the test ends them. Nothing is lost by
// them.
class StoreLastingFaults : public LedgerOfLastingFaults {
 protected:
  void begin_store() override {
    LedgerOfLastingFaults::begin_store();
    dial_ = std::make_unique<Dial>(ledger_.path("dial"));
    ledger_.set_variables({"LEDGER_DIAL=" + ledger_.path("dial")});
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
      use_directory(ledger_.path("other"));
      ASSERT_NO_FATAL_FAILURE(create_store());
      std::filesystem::copy_file(file(), ledger_.path("disk/timers.other"));
      use_directory(ledger_.path("disk"));
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
};

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

int main(int argc, char** argv) {
  return store_test::run_tests_or_part(argc, argv);
}
