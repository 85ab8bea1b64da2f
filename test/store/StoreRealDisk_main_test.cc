#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/LedgerOnDisk.h"
#include "store/LedgerProcess.h"
#include "store/RealDisk.h"
#include "support/Eventually.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// Stores in files, of each layout, on disks that are full or read-only for the system, too: nothing
// is simulated, so this holds for all files of a store and for what the system says about them.

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using store_test::BreakableDisk;
using store_test::layout_of;
using store_test::LedgerOfLastingFaults;
using store_test::SmallDisk;
using test_support::eventually;

constexpr int64_t kMiB = 1024 * 1024;
constexpr int64_t kReserveBytes = 8 * kMiB;
constexpr int64_t kDiskBytes = 32 * kMiB;

// Why this program has no mounts of its own; empty: it has.
std::string& why_no_mounts() {
  static std::string why;
  return why;
}

class StoreFullDisks : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!why_no_mounts().empty()) GTEST_SKIP() << why_no_mounts();
    disk_ = std::make_unique<SmallDisk>(kDiskBytes);
    ASSERT_EQ(disk_->error(), "");
  }

  std::unique_ptr<WFTimerStore> try_open(const std::string& name = "timers") {
    const std::string url = "sqlite:" + disk_->path(name) + (GetParam() ? "?layout=owned" : "");
    return std::unique_ptr<WFTimerStore>(WFTimerStore::open(url, &message_));
  }
  void open() {
    store_ = try_open();
    ASSERT_TRUE(store_) << message_;
  }
  // Stores timers that wait for an hour.
  void store_some(int count) {
    for (int i = 0; i < count; i++) {
      const std::string name = "wait " + std::to_string(i);
      ASSERT_TRUE(store_->schedule({name, hours(1), "kind"}).ok());
      names_.insert(name);
    }
  }
  // What was written for the timers before may have left room in a page.
  void store_until_refused() {
    for (int i = 0;; i++) {
      ASSERT_LT(i, 10'000);
      WFStoreTimer timer{"more " + std::to_string(i), hours(1), "kind"};
      timer.payload.assign(1000, 'p');
      const WFStoreResult result = store_->schedule(timer);
      if (!result.ok()) {
        expect_refused(result);
        return;
      }
      names_.insert(timer.name);
    }
  }
  void expect_refused(const WFStoreResult& result) const {
    EXPECT_EQ(result.error, ENOSPC) << result.message;
    EXPECT_NE(result.verdict(), WFStoreVerdict::kInDoubt);
    EXPECT_EQ(result.timer, 0U);
    EXPECT_NE(result.message.find("the disk is full"), std::string::npos) << result.message;
  }
  void cancel(const std::string& name) {
    const WFStoreResult result = store_->cancel(name);
    EXPECT_TRUE(result.ok()) << result.message;
    EXPECT_EQ(result.verdict(), WFStoreVerdict::kWon) << name;
    names_.erase(name);
  }

  void expect_exact() const {
    const WFStoreResult listed = store_->list("");
    EXPECT_TRUE(listed.ok()) << listed.message;
    std::multiset<std::string> found;
    for (const WFStoreInfo& info : listed.timers) {
      found.insert(info.name);
    }
    EXPECT_TRUE(found == names_) << found.size() << " and not " << names_.size();
  }
  uintmax_t reserve() const { return std::filesystem::file_size(disk_->path("timers-reserve")); }
  // There is room again, which the store notices by itself.
  void expect_to_go_on() {
    disk_->make_room();
    EXPECT_TRUE(eventually([this] { return store_->schedule({"new", hours(1), "kind"}).ok(); }));
    names_.insert("new");
    EXPECT_EQ(reserve(), static_cast<uintmax_t>(kReserveBytes));
    expect_exact();
  }

  std::unique_ptr<SmallDisk> disk_;
  std::multiset<std::string> names_;  // of the timers that must be there
  std::string message_;
  std::unique_ptr<WFTimerStore> store_;
};

TEST_P(StoreFullDisks, RunsAndCancelsGoOnInTheRoomOfTheReserveAndSchedulesAreRefused) {
  constexpr unsigned int kRuns = 20;
  const std::string end = "the end of the runs on a full disk";
  open();
  store_->handle("run", [&end](WFStoredTimer* timer) {
    series_of(timer)->push_back(WFTaskFactory::create_counter_task(end, 1, nullptr));
  });
  ASSERT_NO_FATAL_FAILURE(store_some(100));
  for (unsigned int i = 0; i < kRuns; i++) {
    ASSERT_TRUE(store_->schedule({"run " + std::to_string(i), seconds(0), "run"}).ok());
  }
  ASSERT_TRUE(store_->schedule({"later", hours(1), "run"}).ok());
  const auto begun = [this](uint64_t count) {
    return eventually([&] { return store_->stats().begun == count; });
  };
  ASSERT_TRUE(begun(kRuns));

  disk_->fill();
  ASSERT_EQ(disk_->free_bytes(), 0);
  ASSERT_NO_FATAL_FAILURE(store_until_refused());
  EXPECT_EQ(reserve(), 0U);
  // Another one begins, and all of them end.
  EXPECT_EQ(store_->reschedule("later", seconds(0)).verdict(), WFStoreVerdict::kWon);
  EXPECT_TRUE(begun(kRuns + 1));
  EXPECT_TRUE(eventually([&] {
    WFTaskFactory::count_by_name(end, kRuns + 1);  // their tasks may not be there yet
    return store_->stats().acknowledged == kRuns + 1;
  }));
  for (int i = 0; i < 50; i++) {
    cancel("wait " + std::to_string(i));
  }
  expect_refused(store_->schedule({"new", hours(1), "kind"}));
  expect_exact();
  EXPECT_EQ(store_->stats().errors, 0U);

  expect_to_go_on();
  EXPECT_TRUE(store_->close(test_support::kPatience));
  open();
  expect_exact();
}

TEST_P(StoreFullDisks, AStoreIsOpenedInTheRoomOfItsReserveAndOtherwiseNotAtAll) {
  open();
  ASSERT_NO_FATAL_FAILURE(store_some(20));
  store_.reset();
  disk_->fill();
  ASSERT_EQ(disk_->free_bytes(), 0);
  // Whoever opens it next finds that the reserve is in use.
  for (const char* const name : {"wait 0", "wait 1"}) {
    store_.reset();
    ASSERT_NO_FATAL_FAILURE(open());
    EXPECT_EQ(reserve(), 0U);
    expect_refused(store_->schedule({"new", hours(1), "kind"}));
    cancel(name);
    expect_exact();
  }

  // Another program takes what the reserve has given back.
  store_.reset();
  disk_->fill();
  ASSERT_EQ(disk_->free_bytes(), 0);
  for (const char* const name : {"timers", "new"}) {
    EXPECT_FALSE(try_open(name));
    EXPECT_EQ(errno, ENOSPC) << message_;
    EXPECT_NE(message_.find(disk_->path(name)), std::string::npos) << message_;
  }
  disk_->make_room();
  EXPECT_TRUE(try_open("new")) << message_;
  open();
  expect_to_go_on();
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoreFullDisks, testing::Bool(), layout_of);

// The same while processes use the store and are killed. An outside ledger judges all of it, see
// KillLedger.h.
class LedgerOnRealDisk : public LedgerOfLastingFaults {
 protected:
  void SetUp() override {
    if (!why_no_mounts().empty()) GTEST_SKIP() << why_no_mounts();
  }

  // Starts processes that use the store. If the round before has left the disk full or broken,
  // starts some on that disk first, which may fail to open the store with one of these errors; then
  // makes the disk good, and starts others.
  void start_on(int64_t round, const std::vector<int>& reasons) {
    start_workers(round);
    if (is_good_) return;
    for (const auto& child : children_) {
      const std::string line = child->line().value_or("nothing");
      const auto is_reason = [&line](int error) {
        return line.find("error " + std::to_string(error) + ' ') == 0;
      };
      ASSERT_TRUE(line == "begun" || std::any_of(reasons.begin(), reasons.end(), is_reason))
          << line;
    }
    children_.clear();
    ASSERT_TRUE(make_good());
    start_workers(round + kOther);
  }
  virtual bool make_good() = 0;
  // The next round begins on the disk as it is, half of the time and if there is one.
  bool may_leave(int64_t round) {
    is_good_ = !has_next(round) || random_.one_in(2);
    return !is_good_;
  }

  bool is_good_ = true;

 private:
  static constexpr int64_t kOther = 1'000'000;
};

class StoreFullDisksLedger : public LedgerOnRealDisk {
 protected:
  void begin_store() override {
    LedgerOnRealDisk::begin_store();
    disk_ = std::make_unique<SmallDisk>(2 * kDiskBytes);
    use_directory(disk_->directory());
  }
  bool make_good() override {
    disk_->make_room();
    return true;
  }
  // How many requests have stored or retried a timer. The files grow while they are read: this is
  // too many rather than too few.
  int64_t stored() const {
    const auto others = static_cast<int64_t>(ledger_.answers("ok 0 "));
    return static_cast<int64_t>(ledger_.answers("ok ")) - others;
  }

  void fill_disk(int64_t round) {
    ASSERT_EQ(disk_->error(), "");
    ASSERT_NO_FATAL_FAILURE(start_on(round, {ENOSPC}));
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    disk_->fill(static_cast<int64_t>(random_.below(200'000)));
    ASSERT_TRUE(are_refused({refused(ENOSPC)}));
    if (random_.one_in(2)) {
      // Another program takes what the reserve has left.
      disk_->fill();
      ASSERT_TRUE(are_answered(20));
      ASSERT_TRUE(are_refused({refused(ENOSPC)}));
    } else {
      ASSERT_TRUE(go_on());  // in the room of the reserve
    }
    if (may_leave(round)) return;
    disk_->make_room();
    const int64_t enough = stored() + 20;
    ASSERT_TRUE(eventually([&] { return stored() >= enough; }));
  }

 private:
  std::unique_ptr<SmallDisk> disk_;
};

TEST_P(StoreFullDisksLedger, HoldsWhenADiskIsFull) {
  play_rounds([this](int64_t round) { fill_disk(round); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoreFullDisksLedger, testing::Bool(), layout_of);

// The disk stays read-only until nobody uses it any more.
class StoreBrokenDisksLedger : public LedgerOnRealDisk {
 protected:
  void SetUp() override {
    LedgerOnRealDisk::SetUp();
    if (IsSkipped()) return;
    const BreakableDisk disk;
    if (!disk.error().empty()) GTEST_SKIP() << disk.error();
    if (!disk.break_it()) GTEST_SKIP() << "the system finds no error of ext4 on demand here";
    // What the system had in its memory is gone, as with a loss of power.
    ledger_.set_rules({.leases_end_with_process = is_owned(),
                       .undoes_runs = is_owned(),
                       .lease_us = store_test::kLease.count()});
  }
  void begin_store() override {
    LedgerOnRealDisk::begin_store();
    disk_ = std::make_unique<BreakableDisk>();
    use_directory(disk_->directory());
  }
  bool make_good() override { return disk_->repair(); }

  void break_disk(int64_t round) {
    ASSERT_EQ(disk_->error(), "");
    ASSERT_NO_FATAL_FAILURE(start_on(round, {EIO, EROFS}));
    ASSERT_NO_FATAL_FAILURE(expect_begun());
    // Mostly so many that runs of every kind have ended.
    ASSERT_TRUE(random_.one_in(4) || are_answered(random_.below(200)));
    ASSERT_TRUE(disk_->break_it());
    ASSERT_TRUE(are_refused({refused(EIO), refused(EROFS), "doubt"}));
    children_.clear();
    ASSERT_TRUE(may_leave(round) || make_good()) << disk_->error();
  }

 private:
  std::unique_ptr<BreakableDisk> disk_;
};

TEST_P(StoreBrokenDisksLedger, HoldsWhenADiskBecomesReadOnly) {
  play_rounds([this](int64_t round) { break_disk(round); });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StoreBrokenDisksLedger, testing::Bool(), layout_of);

}  // namespace

int main(int argc, char** argv) {
  if (store_test::is_a_ledger_process()) return 0;
  const std::string why = store_test::take_own_mounts();
  if (!why.empty()) {
    why_no_mounts() = "a process may not have mounts of its own here: " + why;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
