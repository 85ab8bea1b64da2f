#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/FaultVfs.h"
#include "store/SqliteLedger.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"

// A disk of a few megabytes, on which all files of the store are, and what its reserve is good for.

namespace test_support {
namespace {

using workflow::SqliteLayout;

class SqliteFullDisk : public LayoutTest {
 protected:
  static constexpr int64_t kMiB = 1024 * 1024;

  // Opens the store on a disk that has that much room beside the reserve.
  void open(int64_t reserve_bytes, int64_t room_bytes) {
    settings_.base_vfs = vfs_.name();
    settings_.reserve_bytes = reserve_bytes;
    settings_.free_bytes = [this](const std::string&) { return vfs_.free_bytes(); };
    vfs_.set_disk(directory_.path("."), reserve_bytes + room_bytes);
    open_again();
  }
  void open_again() {
    backend_.reset();
    std::string message;
    backend_ = open_backend(path_, options_of(clock_), settings_, &message);
    ASSERT_TRUE(backend_) << message;
  }

  std::vector<workflow::StoreRequest> send(std::vector<workflow::StoreRequest> requests) const {
    std::vector<workflow::StoreRequest*> pointers;
    for (workflow::StoreRequest& request : requests) {
      pointers.push_back(&request);
    }
    EXPECT_TRUE(backend_->execute(pointers));
    return requests;
  }

  // Stores timers until that is refused. Half of them run then.
  void fill() {
    for (bool is_full = false; !is_full;) {
      std::vector<workflow::StoreRequest> requests;
      for (int i = 0; i < 50; i++) {
        const bool is_due = i % 2 == 0;
        const std::string name = (is_due ? "run " : "wait ") + std::to_string(++number_);
        workflow::ScheduleRequest request =
            schedule(name, clock_.us + (is_due ? 0 : 100'000 * kSecondUs));
        request.spec.payload.assign(1000, 'p');
        requests.push_back(make_request(std::move(request), number_));
      }
      for (const workflow::StoreRequest& request : send(std::move(requests))) {
        if (request.failure.error == 0) {
          const auto& spec = std::get<workflow::ScheduleRequest>(request.what).spec;
          stored_.insert(spec.name);
          if (spec.name[0] == 'w') {
            ends_.push_back(make_request(cancel(spec.name), ++number_));
          }
        } else {
          expect_full(request.failure, "not stored");
          is_full = true;
        }
      }
      // Also on the disk that is full.
      workflow::StoreFailure failure;
      for (const auto& claimed : carry_out(*backend_, claim(), 0, 1, &failure).claimed) {
        names_of_runs_[claimed.run.timer] = claimed.spec.name;
        ends_.push_back(make_request(finish(claimed.run)));
      }
      EXPECT_EQ(failure.error, 0) << failure.message;
    }
    ASSERT_EQ(ends_.size(), stored_.size());
    ASSERT_GT(ends_.size(), 400U);
  }

  void expect_full(const workflow::StoreFailure& failure, const std::string& text = "") const {
    EXPECT_EQ(failure.error, ENOSPC) << failure.message;
    EXPECT_FALSE(failure.in_doubt);
    EXPECT_NE(failure.message.find(path_ + ": the disk is full"), std::string::npos)
        << failure.message;
    EXPECT_NE(failure.message.find(text), std::string::npos) << failure.message;
  }

  // Ends the timer that way, and returns whether that was answered. It is refused otherwise.
  bool end(const workflow::StoreRequest& how) {
    const workflow::StoreRequest request = send({how}).at(0);
    if (request.failure.error != 0) {
      expect_full(request.failure);
      return false;
    }
    if (const auto* finished = std::get_if<workflow::FinishRequest>(&request.what)) {
      EXPECT_TRUE(finished->accepted);
      stored_.erase(names_of_runs_.at(finished->run.timer));
    } else {
      const auto& cancelled = std::get<workflow::CancelRequest>(request.what);
      EXPECT_EQ(cancelled.answers.at(0).verdict, WFStoreVerdict::kWon);
      stored_.erase(cancelled.name);
    }
    return true;
  }

  // The store has the timers that were stored and have not ended, and nothing else.
  void expect_exact() const {
    workflow::ListRequest list;
    list.max = 100'000;
    std::set<std::string> found;
    workflow::StoreFailure failure;
    list = carry_out(*backend_, list, 0, 1, &failure);
    EXPECT_EQ(failure.error, 0) << failure.message;
    for (const WFStoreInfo& info : list.timers) {
      EXPECT_TRUE(found.insert(info.name).second) << info.name;
    }
    EXPECT_TRUE(found == stored_) << found.size() << " and not " << stored_.size();
  }

  uintmax_t reserve() const { return std::filesystem::file_size(path_ + "-reserve"); }

  FastDir directory_;
  const std::string path_ = directory_.path("timers");
  SetClock clock_;
  FaultVfs vfs_;
  workflow::SqliteSettings settings_;
  std::unique_ptr<workflow::StoreBackend> backend_;
  uint64_t number_ = 0;
  std::set<std::string> stored_;                   // what must be there
  std::vector<workflow::StoreRequest> ends_;       // one for each of them
  std::map<uint64_t, std::string> names_of_runs_;  // by the numbers of their timers
};

// The log has taken most of the disk. It is copied to the file and cut, which makes room. Or else
// the reserve would last for some hundred ends.
TEST_P(SqliteFullDisk, TheReserveLastsForEachTimerAlsoOneByOne) {
  open(settings_.reserve_bytes, 3 * kMiB);
  fill();
  for (const workflow::StoreRequest& request : ends_) {
    ASSERT_TRUE(end(request));
  }
  EXPECT_TRUE(stored_.empty());
  expect_exact();
  open_again();
  expect_exact();
}

// For the shared layout only: there an end frees pages of the file for the ends that follow, so
// that they need nothing but the room of the log, again and again. The journal of an owner has to
// grow.
class SqliteFullDiskShared : public SqliteFullDisk {};

TEST_P(SqliteFullDiskShared, AnotherProgramMayTakeTheRoomOfTheReserve) {
  constexpr int64_t kRoom = 3 * kMiB;
  open(settings_.reserve_bytes, kRoom);
  fill();
  bool is_taken = false;
  size_t ends = 0;
  for (const workflow::StoreRequest& request : ends_) {
    ASSERT_TRUE(end(request));
    if (++ends > ends_.size() / 3 && !is_taken &&
        std::filesystem::file_size(path_ + "-wal") >= static_cast<uintmax_t>(kMiB / 2)) {
      vfs_.resize_disk(settings_.reserve_bytes + kRoom - vfs_.free_bytes());
      is_taken = true;
    }
  }
  EXPECT_TRUE(is_taken);
  expect_exact();
}

// This reserve is smaller than what is to be copied from the log. So it is left to the ends.
TEST_P(SqliteFullDisk, WhenTheReserveIsUsedUpEndsAreRefusedAndNothingIsLost) {
  open(kMiB / 2, 3 * kMiB);
  fill();
  EXPECT_EQ(reserve(), 0U);
  // Until nothing can be written any more, whatever it is. After a few cancels, which are synced,
  // come acknowledgements, which need not be.
  std::stable_partition(ends_.begin() + 2, ends_.end(), [](const workflow::StoreRequest& request) {
    return std::holds_alternative<workflow::FinishRequest>(request.what);
  });
  std::vector<workflow::StoreRequest> answered;
  std::vector<workflow::StoreRequest> refused;
  size_t in_a_row = 0;
  for (const workflow::StoreRequest& request : ends_) {
    const bool ended = end(request);
    (ended ? answered : refused).push_back(request);
    in_a_row = ended ? 0 : in_a_row + 1;
    if (in_a_row == 20) break;
  }
  EXPECT_FALSE(end(ends_.back()));
  refused.push_back(ends_.back());
  ASSERT_EQ(in_a_row, 20U);
  EXPECT_GT(answered.size(), 4U);
  EXPECT_LT(vfs_.free_bytes(), 65536);
  workflow::StoreFailure failure;
  carry_out(*backend_, schedule("tea", clock_.us), ++number_, 1, &failure);
  EXPECT_EQ(failure.error, ENOSPC);
  expect_exact();
  // Also when it is opened again. The runs keep their leases then.
  std::string message;
  EXPECT_EQ(backend_->reopen(&message), 0) << message;
  expect_exact();

  // There is room again, which the store notices by itself.
  vfs_.resize_disk(64 * kMiB);
  EXPECT_TRUE(eventually([&] {
    carry_out(*backend_, schedule("tea", clock_.us), ++number_, 1, &failure);
    return failure.error == 0;
  }));
  stored_.insert("tea");
  EXPECT_EQ(reserve(), static_cast<uintmax_t>(settings_.reserve_bytes));
  // Those who ask again with the same id are told what happened.
  const size_t before = stored_.size();
  for (const workflow::StoreRequest& request : answered) {
    if (request.id.number != 0) {
      EXPECT_TRUE(end(request));
    }
  }
  EXPECT_EQ(stored_.size(), before);
  for (const workflow::StoreRequest& request : refused) {
    EXPECT_TRUE(end(request));
  }
  EXPECT_EQ(stored_.size(), before - refused.size());
  expect_exact();
  open_again();
  expect_exact();
}

// A history on a disk that has no more room from one of its writes on, and its judge.
class SqliteFullFrom : public LayoutTest {
 protected:
  // The write that comes after `writes` others that make a file larger is the first without room.
  // Returns whether there was one.
  bool play_full_from(int64_t writes);

  uint64_t refused_ = 0;          // schedules, because of the disk
  uint64_t ended_when_full_ = 0;  // cancels and runs, in the room of the reserve
};

bool SqliteFullFrom::play_full_from(int64_t writes) {
  SCOPED_TRACE("full after " + std::to_string(writes));
  constexpr int64_t kLarge = 256 * 1024 * 1024;
  constexpr int kSteps = 16;
  TestRandom random(7);  // the same history each time
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  SqliteLedger ledger(random);
  workflow::SqliteSettings settings;
  settings.base_vfs = vfs.name();
  settings.reserve_bytes = 262'144;
  settings.free_bytes = [&vfs](const std::string&) { return vfs.free_bytes(); };
  vfs.set_disk(directory.path("."), kLarge);
  std::atomic<bool> is_full{false};
  vfs.set_fault([&, writes](FaultVfs::Operation operation, bool extends) mutable {
    if (operation == FaultVfs::kWrite && extends && writes-- == 0) {
      vfs.resize_disk(kLarge - vfs.free_bytes());
      is_full = true;
    }
    return SQLITE_OK;
  });
  std::unique_ptr<workflow::StoreBackend> backend;
  const auto open = [&] {
    backend.reset();
    int error = 0;
    std::string message;
    backend = open_backend(directory.path("timers"), options_of(clock), settings, &message, &error);
    if (!backend) {
      EXPECT_EQ(error, ENOSPC) << message;
      EXPECT_TRUE(is_full);
      vfs.resize_disk(kLarge);
      backend = open_backend(directory.path("timers"), options_of(clock), settings, &message);
    }
    EXPECT_TRUE(backend) << message;
    return backend != nullptr;
  };
  if (!open()) return false;
  for (int i = 0; i < kSteps; i++) {
    const bool was_full = is_full;
    const uint64_t ended_before = ledger.ended();
    EXPECT_TRUE(ledger.step(*backend)) << "a full disk fails no store";
    ended_when_full_ += was_full ? ledger.ended() - ended_before : 0;
    if (i == kSteps / 2 && !open()) return false;
    clock.us += random.one_in(6) ? 2 * kLeaseUs : kSecondUs;
  }
  refused_ += ledger.errors(ENOSPC);
  EXPECT_EQ(ledger.refused_ends(), 0U);
  EXPECT_EQ(ledger.check(*backend), "");
  // There is room again.
  const bool was_full = is_full;
  vfs.set_fault(nullptr);
  vfs.resize_disk(kLarge);
  if (!open()) return false;
  EXPECT_EQ(ledger.check(*backend), "");
  clock.us += 1'000'000 * kSecondUs;
  EXPECT_EQ(ledger.check_runs(*backend), "");
  return was_full;
}

TEST_P(SqliteFullFrom, AnyWriteOnNothingIsLost) {
  const bool all = env_number("WORKFLOW_STORE_ALL_FAULTS", 0) != 0;
  int64_t writes = 0;
  while (play_full_from(writes) && !HasFailure()) {
    writes += all ? 1 : kSanitized ? 7 : 2;
  }
  EXPECT_GT(writes, 20);
  EXPECT_GT(refused_, 20U);
  EXPECT_GT(ended_when_full_, 20U);
}

INSTANTIATE_TEST_SUITE_P(Each, SqliteFullFrom, sqlite_layouts(), layout_name);
INSTANTIATE_TEST_SUITE_P(Each, SqliteFullDisk, sqlite_layouts(), layout_name);
INSTANTIATE_TEST_SUITE_P(Each, SqliteFullDiskShared, testing::Values(SqliteLayout::kShared),
                         layout_name);

}  // namespace
}  // namespace test_support
