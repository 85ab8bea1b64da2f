#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/FaultVfs.h"
#include "store/SqliteSeals.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"
#include "support/Text.h"

// What is particular to a store that one process owns. The rules and verdicts, faults of the disk
// and damage are tested for both layouts together: BackendRules, StoreVerdicts, SqliteFaults,
// SqliteDamage.

namespace test_support {

namespace {

using workflow::SqliteLayout;
using workflow::StoreBackend;

class OwnedBackend : public ::testing::Test {
 protected:
  std::unique_ptr<StoreBackend> open(const workflow::SqliteSettings& settings = {},
                                     SqliteLayout layout = SqliteLayout::kOwned) {
    message_.clear();
    error_ = 0;
    return open_layout(layout, path_, options_, settings, &message_, &error_);
  }

  std::unique_ptr<StoreBackend> open(const FaultVfs& vfs) {
    workflow::SqliteSettings settings;
    settings.base_vfs = vfs.name();
    return open(settings);
  }

  // As if the owner had died at this moment: the store is at another place from now on.
  void crash() {
    const std::string before = path_;
    path_ = directory_.path(std::to_string(++crashes_) + "timers");
    for (const char* suffix : {"", "-wal", "-queue"}) {
      std::filesystem::copy_file(before + suffix, path_ + suffix);
    }
  }

  // The bytes of everything that belongs to the store.
  std::map<std::string, std::string> read_files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path("."))) {
      files[entry.path().filename()] = text_of(entry.path());
    }
    return files;
  }

  static uint64_t count(StoreBackend& backend) {
    return carry_out(backend, workflow::CountRequest{}).count;
  }
  static WFStoreAnswer answer_to_cancel(StoreBackend& backend, const std::string& name) {
    return carry_out(backend, cancel(name)).answers.at(0);
  }

  FastDir directory_;
  std::string path_ = directory_.path("0timers");
  int crashes_ = 0;
  SetClock clock_;
  workflow::StoreBackendOptions options_ = options_of(clock_);
  std::string message_;
  int error_ = 0;
};

TEST_F(OwnedBackend, ASecondOwnerIsRefusedAtOnce) {
  auto first = open();
  ASSERT_TRUE(first) << message_;
  carry_out(*first, schedule("tea", clock_.us));
  for (const SqliteLayout layout : {SqliteLayout::kOwned, SqliteLayout::kShared}) {
    EXPECT_FALSE(open({}, layout));
    EXPECT_EQ(error_, EBUSY);
    EXPECT_NE(message_.find(path_), std::string::npos) << message_;
  }
  EXPECT_EQ(count(*first), 1U);
  first.reset();
  EXPECT_TRUE(open()) << message_;
}

TEST_F(OwnedBackend, AStoreOfTheOtherLayoutIsRefusedAndNotChanged) {
  for (const SqliteLayout layout : {SqliteLayout::kOwned, SqliteLayout::kShared}) {
    const bool is_owned = layout == SqliteLayout::kOwned;
    path_ = directory_.path(is_owned ? "owned" : "shared");
    workflow::SqliteSettings settings;
    settings.reserve_bytes = 4096;  // all files are read
    carry_out(*open(settings, layout), schedule("tea", clock_.us));
    std::filesystem::remove(path_ + "-queue");  // nor is anything created
    const auto before = read_files();
    EXPECT_FALSE(open({}, is_owned ? SqliteLayout::kShared : SqliteLayout::kOwned));
    EXPECT_EQ(error_, EINVAL);
    EXPECT_NE(message_.find("layout=owned"), std::string::npos) << message_;
    EXPECT_TRUE(read_files() == before);
    const auto backend = open(settings, layout);
    ASSERT_TRUE(backend) << message_;
    EXPECT_EQ(count(*backend), 1U);
  }
}

TEST_F(OwnedBackend, TheLeasesOfAnOwnerThatDiedAreOverAndItsAttemptsCount) {
  auto backend = open();
  carry_out(*backend, schedule("tea", clock_.us));
  carry_out(*backend, schedule("coffee", clock_.us));
  const auto taken = carry_out(*backend, claim());
  ASSERT_EQ(taken.claimed.size(), 2U);
  crash();
  backend = open();
  ASSERT_TRUE(backend) << message_;
  EXPECT_FALSE(carry_out(*backend, finish(taken.claimed[0].run)).accepted);
  const WFStoreAnswer answer = answer_to_cancel(*backend, "coffee");
  EXPECT_EQ(answer.verdict, WFStoreVerdict::kWonAfter);
  EXPECT_EQ(answer.attempts, 1U);
  const auto again = carry_out(*backend, claim());
  ASSERT_EQ(again.claimed.size(), 1U);
  EXPECT_EQ(again.claimed[0].attempts, 2U);
  EXPECT_GT(again.claimed[0].run.fence, taken.claimed[1].run.fence);
}

TEST_F(OwnedBackend, AnOwnerThatOpensItsStoreAgainKeepsItsLeases) {
  const auto backend = open();
  carry_out(*backend, schedule("tea", clock_.us));
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  ASSERT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_TRUE(carry_out(*backend, claim()).claimed.empty());
  EXPECT_EQ(answer_to_cancel(*backend, "tea").verdict, WFStoreVerdict::kRunning);
  EXPECT_TRUE(carry_out(*backend, finish(run)).accepted);
}

TEST_F(OwnedBackend, OpeningAgainChangesNoLeaseIfTheClockWasSetBack) {
  auto backend = open();
  carry_out(*backend, schedule("tea", clock_.us));
  ASSERT_EQ(carry_out(*backend, claim()).claimed.size(), 1U);
  const int64_t claimed_us = clock_.us;
  crash();
  clock_.us += 3600 * workflow::kUsPerSec;  // the lease has ended
  backend = open();
  ASSERT_TRUE(backend) << message_;
  clock_.us = claimed_us + 1;  // it is live again
  EXPECT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_EQ(answer_to_cancel(*backend, "tea").verdict, WFStoreVerdict::kRunning);
}

TEST_F(OwnedBackend, AnOwnerThatWasReplacedMeanwhileHasLostItsLeases) {
  FaultVfs vfs;
  const auto first = open(vfs);
  carry_out(*first, schedule("tea", clock_.us));
  const auto run = carry_out(*first, claim()).claimed.at(0).run;
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    return operation == FaultVfs::kRead ? SQLITE_IOERR_READ : SQLITE_OK;
  });
  ASSERT_NE(first->reopen(&message_), 0);
  EXPECT_FALSE(first->leases_are_lost());
  vfs.set_fault(nullptr);
  {
    // Another owner has put its number there.
    workflow::SqliteConnection connection;
    connection.open(path_, SQLITE_OPEN_READWRITE, workflow::SqliteSeals::over(nullptr));
    ASSERT_TRUE(connection.run("UPDATE meta SET dropping = dropping + 1")) << connection.message();
  }
  ASSERT_EQ(first->reopen(&message_), 0) << message_;
  workflow::ExtendRequest extend;
  extend.runs = {run};
  extend.lease_us = kLeaseUs;
  EXPECT_FALSE(carry_out(*first, extend).extended.at(0).live);
  EXPECT_FALSE(carry_out(*first, finish(run)).accepted);
  EXPECT_EQ(carry_out(*first, claim()).claimed.size(), 1U);
}

TEST_F(OwnedBackend, AnOwnerThatCannotOpenItsFileKeepsOthersOut) {
  FaultVfs vfs;
  const auto first = open(vfs);
  carry_out(*first, schedule("tea", clock_.us));
  const auto run = carry_out(*first, claim()).claimed.at(0).run;
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    return operation == FaultVfs::kRead ? SQLITE_IOERR_READ : SQLITE_OK;
  });
  ASSERT_NE(first->reopen(&message_), 0);
  EXPECT_FALSE(open());
  EXPECT_EQ(error_, EBUSY);
  vfs.set_fault(nullptr);
  ASSERT_EQ(first->reopen(&message_), 0) << message_;
  EXPECT_TRUE(carry_out(*first, finish(run)).accepted);
}

// The lock of an owner is on the file of the queue: nobody is kept out by one that was removed.
TEST_F(OwnedBackend, AnOwnerWhoseQueueWasRemovedDoesNotGoOn) {
  const auto backend = open();
  carry_out(*backend, schedule("tea", clock_.us));
  const std::string queue = path_ + "-queue";
  std::filesystem::remove(queue);
  workflow::StoreFailure failure;
  EXPECT_TRUE(carry_out(*backend, claim(), 0, 1, &failure).claimed.empty());
  EXPECT_EQ(failure.error, ESTALE);
  EXPECT_NE(failure.message.find(queue), std::string::npos) << failure.message;
  // It becomes the owner again if nobody else has become it.
  ASSERT_EQ(backend->reopen(&message_), 0) << message_;
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  // A file that somebody has put there, and that is none.
  std::filesystem::remove(queue);
  std::ofstream(queue) << "x";
  carry_out(*backend, finish(run), 0, 1, &failure);
  EXPECT_EQ(failure.error, ESTALE);
  EXPECT_NE(backend->reopen(&message_), 0);
  EXPECT_TRUE(backend->leases_are_lost());
  std::filesystem::remove(queue);
  ASSERT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_FALSE(backend->leases_are_lost());
  EXPECT_EQ(count(*backend), 1U);
}

TEST_F(OwnedBackend, NoRunWaitsForASync) {
  std::atomic<int> syncs{0};
  std::atomic<int> writes{0};
  FaultVfs vfs;
  const auto backend = open(vfs);
  ASSERT_TRUE(backend) << message_;
  carry_out(*backend, schedule("tea", clock_.us));
  vfs.set_fault([&syncs, &writes](FaultVfs::Operation operation, bool) {
    syncs += operation == FaultVfs::kSync ? 1 : 0;
    writes += operation == FaultVfs::kWrite ? 1 : 0;
    return SQLITE_OK;
  });
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  EXPECT_EQ(syncs, 0);
  EXPECT_GT(writes, 0);  // a crash of the process counts the attempt
  workflow::ExtendRequest extend;
  extend.runs = {run};
  extend.lease_us = kLeaseUs;
  EXPECT_TRUE(carry_out(*backend, extend).extended.at(0).live);
  EXPECT_EQ(syncs, 0);
  // Another thread syncs the end.
  EXPECT_TRUE(carry_out(*backend, finish(run)).accepted);
  EXPECT_TRUE(eventually([&] { return syncs > 0; }));
  const int before = syncs;
  carry_out(*backend, schedule("tea", clock_.us));
  EXPECT_EQ(syncs, before + 1);
  writes = 0;
  EXPECT_EQ(count(*backend), 1U);
  EXPECT_EQ(writes, 0);
}

// A verdict that is not remembered changes nothing, but follows from what was written.
TEST_F(OwnedBackend, AVerdictIsSyncedWithWhatItFollowsFrom) {
  std::atomic<int> syncs{0};
  FaultVfs vfs;
  options_.remembered = 0;
  const auto backend = open(vfs);
  ASSERT_TRUE(backend) << message_;
  carry_out(*backend, schedule("tea", clock_.us), 1);
  vfs.set_fault([&syncs](FaultVfs::Operation operation, bool) {
    syncs += operation == FaultVfs::kSync ? 1 : 0;
    return SQLITE_OK;
  });
  ASSERT_EQ(carry_out(*backend, claim()).claimed.size(), 1U);
  EXPECT_EQ(syncs, 0);
  EXPECT_EQ(carry_out(*backend, cancel("coffee"), 2).answers.at(0).verdict,
            WFStoreVerdict::kUnknown);
  EXPECT_EQ(syncs, 1);
  carry_out(*backend, cancel("coffee"), 3);  // there is nothing new
  EXPECT_EQ(syncs, 1);
}

TEST_F(OwnedBackend, AFailedSyncOfAnEndFailsTheStore) {
  std::atomic<int> syncs{0};
  FaultVfs vfs;
  const auto backend = open(vfs);
  ASSERT_TRUE(backend) << message_;
  carry_out(*backend, schedule("tea", clock_.us));
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  vfs.fail_once(FaultVfs::kSync, 0, SQLITE_IOERR_FSYNC);
  EXPECT_TRUE(carry_out(*backend, finish(run)).accepted);
  workflow::StoreFailure failure;
  EXPECT_TRUE(eventually([&] {
    carry_out(*backend, workflow::CountRequest{}, 0, 1, &failure);
    return failure.error != 0;
  }));
  EXPECT_EQ(failure.error, EIO);
  // All of the log is copied and synced before the store is open again.
  vfs.set_fault([&syncs](FaultVfs::Operation operation, bool) {
    syncs += operation == FaultVfs::kSync ? 1 : 0;
    return SQLITE_OK;
  });
  ASSERT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_GE(syncs, 2);
  EXPECT_EQ(count(*backend), 0U);
}

TEST_F(OwnedBackend, WhatFailedForWantOfRoomWasNotDone) {
  FaultVfs vfs;
  const auto backend = open(vfs);
  ASSERT_TRUE(backend) << message_;
  carry_out(*backend, schedule("tea", clock_.us));
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    return operation == FaultVfs::kWrite ? SQLITE_FULL : SQLITE_OK;
  });
  workflow::StoreFailure failure;
  carry_out(*backend, schedule("coffee", clock_.us), 1, 1, &failure);
  EXPECT_EQ(failure.error, ENOSPC);
  EXPECT_FALSE(failure.in_doubt);
  carry_out(*backend, cancel("tea"), 2, 1, &failure);
  EXPECT_EQ(failure.error, ENOSPC);
  vfs.set_fault(nullptr);
  EXPECT_EQ(count(*backend), 1U);
  EXPECT_EQ(answer_to_cancel(*backend, "tea").verdict, WFStoreVerdict::kWon);
}

// Claims that were not synced are undone, but not so that a fence is given again.
TEST_F(OwnedBackend, ALossOfPowerRepeatsNoFence) {
  const uint64_t seed = test_seed();
  int undone = 0;
  for (uint64_t round = 0; round < 20; round++) {
    TestRandom random(seed + round);
    const FastDir after;
    FaultVfs vfs;
    path_ = directory_.path("power" + std::to_string(round));
    { ASSERT_TRUE(open()) << message_; }
    vfs.adopt(path_);
    auto backend = open(vfs);
    for (int i = 0; i < 5; i++) {
      carry_out(*backend, schedule("tea", clock_.us));
    }
    uint64_t last_fence = 0;
    for (int i = 0; i < 5; i++) {
      last_fence = carry_out(*backend, claim(1)).claimed.at(0).run.fence;
    }
    vfs.write_image(after.path("."), random);
    path_ = after.path("power" + std::to_string(round));
    backend = open();
    ASSERT_TRUE(backend) << message_ << ", seed " << seed + round;
    const auto claimed = carry_out(*backend, claim()).claimed;
    ASSERT_EQ(claimed.size(), 5U) << "seed " << seed + round;
    for (const auto& each : claimed) {
      EXPECT_GT(each.run.fence, last_fence) << "seed " << seed + round;
      undone += each.attempts == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(undone, 0);
}

// Timers that stay, among very many that come and go.
TEST_F(OwnedBackend, TheFileStaysAsSmallAsWhatIsInIt) {
  constexpr int kStaying = 200;
  constexpr int kRounds = kSanitized ? 200 : 500;
  options_.remembered = 100;
  auto backend = open();
  for (int i = 0; i < kStaying; i++) {
    workflow::ScheduleRequest request = schedule("staying " + std::to_string(i), clock_.us);
    request.spec.payload.assign(1000, 's');
    carry_out(*backend, request, static_cast<uint64_t>(i) + 1);
  }
  ASSERT_EQ(carry_out(*backend, claim(5)).claimed.size(), 5U);
  uint64_t number = 1000;
  for (int round = 0; round < kRounds; round++) {
    std::vector<workflow::StoreRequest> requests;
    requests.push_back(make_request(cancel("passing"), ++number));  // those of the last round
    for (int i = 0; i < 60; i++) {
      workflow::ScheduleRequest request = schedule("passing", clock_.us + 1000 * kSecondUs);
      request.spec.payload.assign(1000, 'p');
      requests.push_back(make_request(request, ++number));
    }
    std::vector<workflow::StoreRequest*> pointers;
    for (workflow::StoreRequest& request : requests) {
      pointers.push_back(&request);
    }
    ASSERT_TRUE(backend->execute(pointers));
  }
  carry_out(*backend, cancel("passing"), ++number);
  crash();
  backend = open();
  ASSERT_TRUE(backend) << message_;
  EXPECT_EQ(count(*backend), uint64_t{kStaying});
  // What ended and what was asked last is remembered, too.
  EXPECT_EQ(answer_to_cancel(*backend, "passing").verdict, WFStoreVerdict::kDone);
  workflow::AskRequest ask;
  ask.asked = {1, number - 50};
  EXPECT_TRUE(carry_out(*backend, ask).found);
  workflow::StoreFailure failure;
  ask.asked = {1, 5};
  carry_out(*backend, ask, 0, 1, &failure);
  EXPECT_EQ(failure.error, ENODATA);
  EXPECT_EQ(carry_out(*backend, claim(5)).claimed.at(0).attempts, 2U);
  backend.reset();
  EXPECT_GT(int64_t{kRounds} * 60 * 1000, 10'000'000);
  EXPECT_LT(std::filesystem::file_size(path_), 4'000'000U);
}

TEST_F(OwnedBackend, SessionsThatWereDroppedStayForgotten) {
  for (uint64_t session = 1; session <= 300; session++) {
    options_.session = session;
    const auto backend = open();
    ASSERT_TRUE(backend) << message_;
    carry_out(*backend, schedule("tea", clock_.us), 1, session);
  }
  options_.session = 301;
  { ASSERT_TRUE(open()) << message_; }
  // This time no session is dropped.
  const auto backend = open();
  workflow::StoreFailure failure;
  workflow::AskRequest ask;
  ask.asked = {7, 1};
  carry_out(*backend, ask, 0, 301, &failure);
  EXPECT_EQ(failure.error, ENODATA);
  ask.asked = {300, 1};
  EXPECT_TRUE(carry_out(*backend, ask).found);
  ask.asked = {301, 1};
  carry_out(*backend, ask, 0, 301, &failure);
  EXPECT_EQ(failure.error, 0);
}

TEST_F(OwnedBackend, RecordsThatMakeNoSenseAreDamage) {
  {
    const auto backend = open();
    carry_out(*backend, schedule("tea", clock_.us), 1);
    carry_out(*backend, cancel("tea"), 2);
    carry_out(*backend, schedule("tea", clock_.us), 3);
  }
  // Through the seals: as if the library itself had written them.
  for (const std::string& sql : std::vector<std::string>{
           "DELETE FROM journal WHERE id = (SELECT min(id) + 1 FROM journal)",
           "UPDATE journal SET records = substr(records, 1, length(records) - 1)",
           "UPDATE journal SET records = x'54' || records",
           "UPDATE journal SET records = x'7a' || records",
           "UPDATE journal SET records = zeroblob(20)",
           "UPDATE meta SET stored = stored + 1",
           "UPDATE meta SET timer = 0",
           "UPDATE meta SET fence = 0",
           "DELETE FROM meta",
           "DROP TABLE journal",
       }) {
    const std::string own = path_;
    path_ = directory_.path("damaged");
    for (const char* suffix : {"", "-queue"}) {
      std::filesystem::copy_file(own + suffix, path_ + suffix,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    {
      workflow::SqliteConnection connection;
      connection.open(path_, SQLITE_OPEN_READWRITE, workflow::SqliteSeals::over(nullptr));
      ASSERT_TRUE(connection.run(sql.c_str())) << connection.message();
    }
    EXPECT_FALSE(open()) << sql;
    EXPECT_EQ(error_, EILSEQ) << sql << ": " << message_;
    path_ = own;
  }
  EXPECT_TRUE(open()) << message_;
}

}  // namespace
}  // namespace test_support
