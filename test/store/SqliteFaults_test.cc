#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>

#include "store/FaultVfs.h"
#include "store/SqliteLedger.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"
#include "support/Text.h"

namespace test_support {
namespace {

using workflow::SqliteLayout;

class SqliteFaults : public LayoutTest {
 protected:
  static std::string lose_power(uint64_t seed, bool full_sync);
  static bool play_with_fault(FaultVfs::Operation operation, int64_t count, int code);
  static void fail_each(FaultVfs::Operation operation, int code);
};

constexpr int kSteps = 12;
// After this time everything is due, and no lease is left.
constexpr int64_t kLongUs = 1'000'000 * kSecondUs;
constexpr int64_t kReserveBytes = 65536;

workflow::SqliteSettings settings_of(const FaultVfs& vfs) {
  workflow::SqliteSettings settings;
  settings.base_vfs = vfs.name();
  settings.reserve_bytes = kReserveBytes;
  return settings;
}

// Now and then for longer than a lease lasts, so that timers run again.
void pass_time(SetClock& clock, TestRandom& random) {
  clock.us += random.one_in(6) ? 2 * kLeaseUs : kSecondUs;
}

// Loses the power at a random moment of a random history. Returns what is wrong with the store that
// is left, in one line; empty: nothing.
std::string SqliteFaults::lose_power(uint64_t seed, bool full_sync) {
  TestRandom random(seed);
  SetClock clock;
  const FastDir before;
  const FastDir after;
  FaultVfs vfs;
  workflow::SqliteSettings settings = settings_of(vfs);
  settings.full_sync = full_sync;
  SqliteLedger ledger(random, GetParam() == SqliteLayout::kOwned);
  // Also while the store is created.
  vfs.take_image_after(static_cast<int64_t>(random.below(300)));
  bool keeps_queue = random.one_in(2);
  std::string message;
  while (!vfs.has_image()) {
    // Now and then the store is closed, and so copied from its log.
    auto backend = open_backend(before.path("timers"), options_of(clock), settings, &message);
    if (!backend) return message;
    for (uint64_t steps = random.below(20); steps > 0 && !vfs.has_image(); steps--) {
      if (keeps_queue) {
        std::filesystem::copy_file(before.path("timers-queue"), after.path("timers-queue"),
                                   std::filesystem::copy_options::overwrite_existing);
      }
      ledger.step(*backend);
      pass_time(clock, random);
    }
  }
  ledger.doubt_last_step();
  vfs.write_image(after.path("."), random);
  const auto backend = open_backend(after.path("timers"), options_of(clock), {}, &message);
  if (!backend) return message;
  message = ledger.check(*backend);
  clock.us += kLongUs;
  return message.empty() ? ledger.check_runs(*backend) : message;
}

// WORKFLOW_STORE_POWER_LOSSES sets the number of rounds.
TEST_P(SqliteFaults, ALossOfPowerLosesNothingThatWasReported) {
  const uint64_t seed = test_seed();
  const auto rounds =
      static_cast<uint64_t>(env_number("WORKFLOW_STORE_POWER_LOSSES", kSanitized ? 30 : 100));
  for (uint64_t round = 0; round < rounds; round++) {
    ASSERT_EQ(lose_power(seed + round, true), "") << "WORKFLOW_TEST_SEED=" << seed + round;
  }
}

// Shows that the test above would notice.
TEST_P(SqliteFaults, WithoutSyncsALossOfPowerIsNoticed) {
  const uint64_t seed = test_seed();
  uint64_t noticed = 0;
  for (uint64_t round = 0; round < 1000 && noticed < 3; round++) {
    noticed += lose_power(seed + round, false).empty() ? 0 : 1;
  }
  EXPECT_EQ(noticed, 3U);
}

// Plays a history in which the operation of that kind that comes after `count` others fails, and
// opens the store again after each failure. Returns whether an operation has failed.
bool SqliteFaults::play_with_fault(FaultVfs::Operation operation, int64_t count, int code) {
  SCOPED_TRACE("operation " + std::to_string(operation) + " after " + std::to_string(count));
  TestRandom random(7);  // the same history each time
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  SqliteLedger ledger(random);
  EXPECT_TRUE(open_backend(directory.path("timers"), options_of(clock)));
  vfs.fail_once(operation, count, code);
  std::string message;
  auto backend =
      open_backend(directory.path("timers"), options_of(clock), settings_of(vfs), &message);
  if (!backend) {
    EXPECT_TRUE(vfs.has_failed()) << message;
    backend = open_backend(directory.path("timers"), options_of(clock), settings_of(vfs), &message);
  }
  if (!backend) {
    ADD_FAILURE() << message;
    return false;
  }
  bool had_failed = false;  // before the last step
  for (int i = 0; i < kSteps; i++) {
    had_failed = vfs.has_failed();
    if (!ledger.step(*backend) && backend->reopen(&message) != 0 &&
        backend->reopen(&message) != 0) {
      ADD_FAILURE() << message;
      return false;
    }
    if (i == kSteps / 2) {
      workflow::SqliteSettings settings = settings_of(vfs);
      backend.reset();
      backend = open_backend(directory.path("timers"), options_of(clock), settings, &message);
      if (!backend) {
        backend = open_backend(directory.path("timers"), options_of(clock), settings, &message);
      }
      if (!backend) {
        ADD_FAILURE() << message;
        return false;
      }
    }
    pass_time(clock, random);
  }
  std::string wrong = ledger.check(*backend);
  // The thread of the log may have made the sync that fails after the last step.
  if (!wrong.empty() && !had_failed && vfs.has_failed() && backend->reopen(&message) == 0) {
    wrong = ledger.check(*backend);
  }
  EXPECT_EQ(wrong, "");
  backend.reset();
  const bool has_failed = vfs.has_failed();
  backend = open_backend(directory.path("timers"), options_of(clock), {}, &message);
  EXPECT_TRUE(backend) << message;
  if (backend) {
    EXPECT_EQ(ledger.check(*backend), "");
    clock.us += kLongUs;
    EXPECT_EQ(ledger.check_runs(*backend), "");
  }
  return has_failed;
}

void SqliteFaults::fail_each(FaultVfs::Operation operation, int code) {
  // Each of the first operations, which open the store, and then one in a few; all of them with
  // WORKFLOW_STORE_ALL_FAULTS=1.
  const bool all = test_support::env_number("WORKFLOW_STORE_ALL_FAULTS", 0) != 0;
  int64_t count = 0;
  while (play_with_fault(operation, count, code) && !::testing::Test::HasFailure()) {
    count += all || (count < 40 && !kSanitized) ? 1 : 5;
  }
  EXPECT_GT(count, 3);
}

TEST_P(SqliteFaults, AFailedWriteLosesNothing) {
  fail_each(FaultVfs::kWrite, SQLITE_IOERR_WRITE);
}

TEST_P(SqliteFaults, AFailedSyncLosesNothing) {
  fail_each(FaultVfs::kSync, SQLITE_IOERR_FSYNC);
}

TEST_P(SqliteFaults, AFailedReadLosesNothing) {
  fail_each(FaultVfs::kRead, SQLITE_IOERR_READ);
}

TEST_P(SqliteFaults, AWriteWithoutRoomLosesNothing) {
  fail_each(FaultVfs::kWrite, SQLITE_FULL);
}

TEST_P(SqliteFaults, SharedMemoryThatCannotBeHadLosesNothing) {
  int64_t count = 0;
  while (play_with_fault(FaultVfs::kShared, count, SQLITE_IOERR_SHMMAP)) {
    count++;
  }
  EXPECT_GT(count, 0);
}

TEST_P(SqliteFaults, AFailedCommitIsInDoubtAndTheStoreHasFailed) {
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  const auto backend = open_backend(directory.path("timers"), options_of(clock), settings_of(vfs));
  ASSERT_TRUE(backend);
  workflow::StoreFailure failure;
  vfs.fail_once(FaultVfs::kSync, 0, SQLITE_IOERR_FSYNC);
  carry_out(*backend, schedule("tea", clock.us), 1, 1, &failure);
  EXPECT_EQ(failure.error, EIO);
  EXPECT_TRUE(failure.in_doubt);
  // The store does nothing more until it is opened again.
  carry_out(*backend, schedule("tea", clock.us), 2, 1, &failure);
  EXPECT_EQ(failure.error, EIO);
  EXPECT_FALSE(failure.in_doubt);
  std::string message;
  ASSERT_EQ(backend->reopen(&message), 0) << message;
  workflow::AskRequest asked;
  asked.asked = {1, 1};
  asked = carry_out(*backend, asked);
  carry_out(*backend, schedule("tea", clock.us), 3, 1, &failure);
  EXPECT_EQ(failure.error, 0);
  EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, asked.found ? 2U : 1U);
}

TEST_P(SqliteFaults, AStoreThatHasFailedIsClosedAsItIs) {
  SetClock clock;
  const FastDir directory;
  const std::string path = directory.path("timers");
  FaultVfs vfs;
  auto backend = open_backend(path, options_of(clock), settings_of(vfs));
  ASSERT_TRUE(backend);
  carry_out(*backend, schedule("tea", clock.us));
  vfs.fail_once(FaultVfs::kSync, 0, SQLITE_IOERR_FSYNC);
  carry_out(*backend, schedule("tea", clock.us));
  ASSERT_TRUE(vfs.has_failed());
  const std::string file = text_of(path);
  const std::string log = text_of(path + "-wal");
  EXPECT_FALSE(log.empty());
  backend.reset();
  EXPECT_TRUE(text_of(path) == file);
  EXPECT_TRUE(text_of(path + "-wal") == log);
}

// The system may still show what it could not write, and say nothing when it is asked again.
TEST_P(SqliteFaults, AfterAFailedSyncTheLogIsCopiedBeforeTheStoreIsOpened) {
  SetClock clock;
  const FastDir directory;
  const std::string path = directory.path("timers");
  FaultVfs vfs;
  // Without a session: opening the store commits nothing.
  auto backend = open_backend(path, options_of(clock, 0), settings_of(vfs));
  ASSERT_TRUE(backend);
  carry_out(*backend, schedule("tea", clock.us));
  vfs.fail_once(FaultVfs::kSync, 0, SQLITE_IOERR_FSYNC);
  carry_out(*backend, schedule("tea", clock.us));
  ASSERT_TRUE(vfs.has_failed());
  std::string message;
  for (const FaultVfs::Operation operation : {FaultVfs::kSync, FaultVfs::kWrite}) {
    vfs.set_fault([operation](FaultVfs::Operation each, bool) {
      errno = EIO;
      return each == operation ? SQLITE_IOERR : SQLITE_OK;
    });
    EXPECT_EQ(backend->reopen(&message), EIO);
  }
  // Nor can another process that opens it go on before that.
  backend.reset();
  int error = 0;
  EXPECT_FALSE(open_backend(path, options_of(clock, 0), settings_of(vfs), &message, &error));
  EXPECT_EQ(error, EIO);
  vfs.set_fault(nullptr);
  backend = open_backend(path, options_of(clock, 0), settings_of(vfs), &message);
  ASSERT_TRUE(backend) << message;
  EXPECT_EQ(std::filesystem::file_size(path + "-wal"), 0U);
  EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, 2U);
}

// Whatever the system says about it.
TEST_P(SqliteFaults, AFailedSyncFailsTheStoreForEachErrno) {
  for (const int system_error : {ENOSPC, ENOMEM, EBUSY, EIO}) {
    SCOPED_TRACE(system_error);
    SetClock clock;
    const FastDir directory;
    FaultVfs vfs;
    workflow::SqliteSettings settings = settings_of(vfs);
    settings.log_bytes = 1024 * 1024;
    const auto backend = open_backend(directory.path("timers"), options_of(clock), settings);
    ASSERT_TRUE(backend);
    vfs.set_fault([system_error](FaultVfs::Operation operation, bool) {
      errno = system_error;
      return operation == FaultVfs::kSync ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    });
    workflow::StoreRequest request = make_request(schedule("tea", clock.us), 1);
    workflow::StoreRequest* const requests[] = {&request};
    EXPECT_FALSE(backend->execute(requests));
    EXPECT_EQ(request.failure.error, EIO);
    EXPECT_TRUE(request.failure.in_doubt);
    vfs.set_fault(nullptr);
    std::string message;
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    EXPECT_TRUE(backend->execute(requests));
    EXPECT_EQ(request.failure.error, 0) << request.failure.message;
  }
}

// As when the system has found errors on a disk, and lets nobody write to it any more.
TEST_P(SqliteFaults, AReadOnlyDiskEndsWithEROFSAndLosesNothing) {
  TestRandom random(13);
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  SqliteLedger ledger(random);
  auto backend = open_backend(directory.path("timers"), options_of(clock), settings_of(vfs));
  ASSERT_TRUE(backend);
  for (int i = 0; i < kSteps; i++) {
    EXPECT_TRUE(ledger.step(*backend));
    clock.us += kSecondUs;
  }
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    errno = EROFS;
    return operation == FaultVfs::kWrite      ? SQLITE_IOERR_WRITE
           : operation == FaultVfs::kTruncate ? SQLITE_IOERR_TRUNCATE
                                              : SQLITE_OK;
  });
  for (uint64_t number = 1'000'001; number <= 1'000'003; number++) {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", clock.us), number, 1, &failure);
    EXPECT_EQ(failure.error, EROFS) << failure.message;
    EXPECT_NE(failure.message.find(directory.path("timers")), std::string::npos);
    std::string message;
    const int error = backend->reopen(&message);
    EXPECT_TRUE(error == 0 || error == EROFS) << message;
  }
  vfs.set_fault(nullptr);
  std::string message;
  ASSERT_EQ(backend->reopen(&message), 0) << message;
  // None of the refused ones is there.
  EXPECT_EQ(ledger.check(*backend), "");
  for (int i = 0; i < kSteps; i++) {
    EXPECT_TRUE(ledger.step(*backend));
    clock.us += kSecondUs;
  }
  EXPECT_EQ(ledger.check(*backend), "");
  clock.us += kLongUs;
  EXPECT_EQ(ledger.check_runs(*backend), "");
}

// Stores large timers, so that the log is copied, until one ends with EIO. Returns how many did
// not.
uint64_t store_until_it_fails(workflow::StoreBackend& backend, const SetClock& clock) {
  workflow::ScheduleRequest request = schedule("tea", clock.us);
  request.spec.payload.assign(65536, 'p');
  uint64_t stored = 0;
  EXPECT_TRUE(eventually([&] {
    workflow::StoreFailure failure;
    carry_out(backend, request, 0, 1, &failure);
    stored += failure.error == 0 ? 1 : 0;
    return failure.error == EIO;
  }));
  return stored;
}

// The thread for checkpoints meets it between requests.
TEST_P(SqliteFaults, AFailedCheckpointFailsTheStoreForEachErrno) {
  for (const int system_error : {ENOSPC, EBUSY}) {
    SCOPED_TRACE(system_error);
    SetClock clock;
    const FastDir directory;
    FaultVfs vfs;
    workflow::SqliteSettings settings = settings_of(vfs);
    settings.log_bytes = 1024 * 1024;
    const auto backend = open_backend(directory.path("timers"), options_of(clock), settings);
    ASSERT_TRUE(backend);
    vfs.set_fault([system_error](FaultVfs::Operation operation, bool) {
      errno = system_error;
      return operation == FaultVfs::kTruncate ? SQLITE_IOERR_TRUNCATE : SQLITE_OK;
    });
    const uint64_t stored = store_until_it_fails(*backend, clock);
    std::string message;
    vfs.set_fault(nullptr);
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, stored);
  }
}

// Another process keeps the index of the log, which says that a part of the log is in the file
// already. That part was lost with the failed sync.
TEST_P(SqliteFaults, AfterAFailedSyncOfTheFileAllOfTheLogIsCopied) {
  SetClock clock;
  const FastDir directory;
  const std::string path = directory.path("timers");
  FaultVfs vfs;
  workflow::SqliteSettings settings = settings_of(vfs);
  settings.log_bytes = 32 * 1024 * 1024;  // a sixteenth is copied at a time
  const auto backend = open_backend(path, options_of(clock), settings);
  ASSERT_TRUE(backend);
  const bool is_shared = GetParam() == SqliteLayout::kShared;
  const auto other = is_shared ? open_backend(path, options_of(clock, 2), settings) : nullptr;
  uint64_t stored = 0;
  workflow::ScheduleRequest large = schedule("tea", clock.us);
  large.spec.payload.assign(65536, 'p');
  for (; stored < 16; stored++) {
    carry_out(*backend, large);
  }
  sqlite3* reader = nullptr;
  if (is_shared) {
    // What is committed after this cannot be copied while somebody reads what was there before.
    ASSERT_EQ(sqlite3_open_v2(path.c_str(), &reader, SQLITE_OPEN_READWRITE, vfs.name()), SQLITE_OK);
    const char* const read = "BEGIN; SELECT count(*) FROM timers";
    ASSERT_EQ(sqlite3_exec(reader, read, nullptr, nullptr, nullptr), SQLITE_OK);
  }
  vfs.fail_syncs_of(path, EIO);
  stored += store_until_it_fails(*backend, clock);
  EXPECT_GT(vfs.failed_syncs(), 0);
  vfs.fail_syncs_of("");
  sqlite3_close(reader);
  std::string message;
  EXPECT_EQ(backend->reopen(&message), 0) << message;
  carry_out(*backend, schedule("the last", clock.us));  // the log begins anew
  stored++;
  EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, stored);

  const FastDir after;
  TestRandom random(test_seed());
  vfs.write_image(after.path("."), random);
  const auto rescued = open_backend(after.path("timers"), options_of(clock, 3), {}, &message);
  ASSERT_TRUE(rescued) << message;
  EXPECT_EQ(carry_out(*rescued, workflow::CountRequest{}).count, stored);
  workflow::ListRequest list;
  list.max = 16;
  list = carry_out(*rescued, list);
  ASSERT_EQ(list.timers.size(), 16U);
  for (const WFStoreInfo& timer : list.timers) {
    EXPECT_TRUE(timer.payload == large.spec.payload);
  }
}

// The log can be synced, and the file cannot: commits succeed until a checkpoint has met it.
TEST_P(SqliteFaults, AFailedSyncOfTheFileFailsTheStoreForEachErrno) {
  for (const int system_error : {ENOSPC, EIO}) {
    SCOPED_TRACE(system_error);
    SetClock clock;
    const FastDir directory;
    const std::string path = directory.path("timers");
    FaultVfs vfs;
    workflow::SqliteSettings settings = settings_of(vfs);
    settings.log_bytes = 1024 * 1024;
    auto backend = open_backend(path, options_of(clock), settings);
    ASSERT_TRUE(backend);
    vfs.fail_syncs_of(path, system_error);
    const uint64_t stored = store_until_it_fails(*backend, clock);
    EXPECT_GT(vfs.failed_syncs(), 0);
    EXPECT_GT(stored, 0U);
    // What was copied may not be on the disk. So all of it is copied again before the store is
    // used.
    std::string message;
    EXPECT_EQ(backend->reopen(&message), EIO);
    vfs.fail_syncs_of("");
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, stored);
    EXPECT_EQ(vfs.unsynced_bytes(path), 0U);
  }
}

// From some moment on the disk has no room, but for what the reserve had taken.
TEST_P(SqliteFaults, OnAFullDiskEndsAreStoredAndSchedulesAreRefused) {
  for (int full_from = 0; full_from < 12; full_from += 3) {
    SCOPED_TRACE(full_from);
    TestRandom random(11);
    SetClock clock;
    const FastDir directory;
    FaultVfs vfs;
    SqliteLedger ledger(random);
    auto backend = open_backend(directory.path("timers"), options_of(clock), settings_of(vfs));
    ASSERT_TRUE(backend);
    const std::string reserve = directory.path("timers-reserve");
    for (int i = 0; i < full_from; i++) {
      EXPECT_TRUE(ledger.step(*backend));
    }
    vfs.set_fault([&reserve](FaultVfs::Operation operation, bool extends) {
      return operation == FaultVfs::kWrite && extends && std::filesystem::file_size(reserve) > 0
                 ? SQLITE_FULL
                 : SQLITE_OK;
    });
    uint64_t refused = 0;
    for (int i = 0; i < 30 && refused == 0; i++) {
      EXPECT_TRUE(ledger.step(*backend));
      refused = ledger.errors(ENOSPC);
    }
    EXPECT_GT(refused, 0U);
    EXPECT_EQ(ledger.refused_ends(), 0U);
    EXPECT_EQ(ledger.check(*backend), "");
    // There is room again, which the store notices by itself.
    vfs.set_fault(nullptr);
    uint64_t number = 1'000'000;
    EXPECT_TRUE(eventually([&] {
      workflow::StoreFailure failure;
      carry_out(*backend, schedule("again", clock.us), ++number, 1, &failure);
      if (failure.error == ENOSPC) {
        EXPECT_NE(failure.message.find("not stored"), std::string::npos);
        return false;
      }
      return failure.error == 0;
    }));
    EXPECT_EQ(std::filesystem::file_size(reserve), static_cast<uintmax_t>(kReserveBytes));
  }
}

// Makes the disk full, and then gives it room again.
void fill_disk(FaultVfs& vfs, workflow::StoreBackend& backend, const SetClock& clock) {
  vfs.set_fault([](FaultVfs::Operation operation, bool extends) {
    return operation == FaultVfs::kWrite && extends ? SQLITE_FULL : SQLITE_OK;
  });
  workflow::StoreFailure failure;
  carry_out(backend, schedule("tea", clock.us), 0, 1, &failure);
  EXPECT_EQ(failure.error, ENOSPC);
  vfs.set_fault(nullptr);
}

TEST_P(SqliteFaults, TheReserveIsMadeAgainWhenTheDiskHasMoreRoomThanThat) {
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  workflow::SqliteSettings settings = settings_of(vfs);
  std::atomic<int64_t> free_bytes{kReserveBytes};
  std::atomic<int> looks{0};
  settings.free_bytes = [&free_bytes, &looks](const std::string&) {
    looks++;
    return free_bytes.load();
  };
  const auto backend = open_backend(directory.path("timers"), options_of(clock), settings);
  ASSERT_TRUE(backend);
  fill_disk(vfs, *backend, clock);
  const auto error = [&backend, &clock] {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", clock.us), 0, 1, &failure);
    return failure.error;
  };
  // What is free is what the reserve gave back.
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(error(), ENOSPC);
    return looks == 2 || ::testing::Test::HasFailure();
  }));
  EXPECT_EQ(std::filesystem::file_size(directory.path("timers-reserve")), 0U);
  free_bytes = 10 * kReserveBytes;
  EXPECT_TRUE(eventually([&] { return error() == 0; }));
  EXPECT_EQ(std::filesystem::file_size(directory.path("timers-reserve")),
            static_cast<uintmax_t>(kReserveBytes));
}

// Opening needs some room, too, for the log and its index. What is stored can be ended then.
TEST_P(SqliteFaults, AStoreIsOpenedOnAFullDisk) {
  SetClock clock;
  const FastDir directory;
  const std::string reserve = directory.path("timers-reserve");
  FaultVfs vfs;
  std::atomic<bool> is_full{false};
  workflow::SqliteSettings settings = settings_of(vfs);
  settings.free_bytes = [&is_full](const std::string&) {
    return is_full ? kReserveBytes : 10 * kReserveBytes;
  };
  const auto open = [&] {
    std::string message;
    auto backend = open_backend(directory.path("timers"), options_of(clock), settings, &message);
    EXPECT_TRUE(backend) << message;
    return backend;
  };
  auto backend = open();
  ASSERT_TRUE(backend);
  carry_out(*backend, schedule("tea", clock.us + kSecondUs), 1);
  carry_out(*backend, schedule("coffee", clock.us), 2);
  backend.reset();
  is_full = true;
  vfs.set_fault([&](FaultVfs::Operation operation, bool extends) {
    const bool is_shared = operation == FaultVfs::kShared;
    if (!is_full || !(is_shared || (operation == FaultVfs::kWrite && extends)) ||
        std::filesystem::file_size(reserve) == 0) {
      return SQLITE_OK;
    }
    errno = ENOSPC;
    return is_shared ? SQLITE_IOERR_SHMSIZE : SQLITE_FULL;
  });

  // Whoever opens it next finds that the reserve is in use.
  for (int i = 0; i < 2; i++) {
    backend.reset();
    backend = open();
    ASSERT_TRUE(backend);
    EXPECT_EQ(std::filesystem::file_size(reserve), 0U);
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("water", clock.us), 0, 1, &failure);
    EXPECT_EQ(failure.error, ENOSPC);
    EXPECT_NE(failure.message.find("not stored"), std::string::npos) << failure.message;
  }
  EXPECT_EQ(carry_out(*backend, cancel("tea"), 3).answers.at(0).verdict, WFStoreVerdict::kWon);
  const workflow::ClaimRequest claimed = carry_out(*backend, claim());
  ASSERT_EQ(claimed.claimed.size(), 1U);
  EXPECT_EQ(claimed.claimed[0].spec.name, "coffee");
  EXPECT_TRUE(carry_out(*backend, finish(claimed.claimed[0].run)).accepted);

  is_full = false;
  backend = nullptr;
  backend = open();
  ASSERT_TRUE(backend);
  EXPECT_NE(carry_out(*backend, schedule("water", clock.us)).timer, 0U);
  EXPECT_EQ(std::filesystem::file_size(reserve), static_cast<uintmax_t>(kReserveBytes));
}

// Without a reserve there is no room to open it in, and the message says so.
TEST_P(SqliteFaults, AStoreWithoutAReserveIsNotOpenedOnAFullDisk) {
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  ASSERT_TRUE(open_backend(directory.path("timers"), options_of(clock), settings_of(vfs)));
  std::filesystem::remove(directory.path("timers-reserve"));
  vfs.set_fault([](FaultVfs::Operation operation, bool) {
    errno = ENOSPC;
    return operation == FaultVfs::kShared ? SQLITE_IOERR_SHMSIZE : SQLITE_OK;
  });
  std::string message;
  int error = 0;
  EXPECT_FALSE(open_backend(directory.path("timers"), options_of(clock), settings_of(vfs), &message,
                            &error));
  EXPECT_EQ(error, ENOSPC);
  EXPECT_NE(message.find("the disk is full"), std::string::npos) << message;
  vfs.set_fault(nullptr);
  EXPECT_TRUE(open_backend(directory.path("timers"), options_of(clock), settings_of(vfs)));
}

TEST_P(SqliteFaults, AReserveThatCannotBeMadeDoesNotKeepTheDiskFull) {
  SetClock clock;
  const FastDir directory;
  FaultVfs vfs;
  const auto backend = open_backend(directory.path("timers"), options_of(clock), settings_of(vfs));
  ASSERT_TRUE(backend);
  fill_disk(vfs, *backend, clock);
  std::filesystem::remove(directory.path("timers-reserve"));
  std::filesystem::create_directory(directory.path("timers-reserve"));
  EXPECT_TRUE(eventually([&] {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", clock.us), 0, 1, &failure);
    return failure.error == 0;
  }));
}

INSTANTIATE_TEST_SUITE_P(Each, SqliteFaults, sqlite_layouts(), layout_name);

}  // namespace
}  // namespace test_support
