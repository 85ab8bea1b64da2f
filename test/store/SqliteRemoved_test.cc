#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/SqliteKit.h"

// Files that are deleted or replaced while the store is open.

namespace test_support {
namespace {

using workflow::StoreBackend;

class SqliteRemoved : public LayoutTest {
 protected:
  std::unique_ptr<StoreBackend> open(const workflow::SqliteSettings& settings = {}) {
    auto backend = open_backend(path_, options_, settings, &message_);
    EXPECT_TRUE(backend) << message_;
    return backend;
  }

  static bool is_owned() { return GetParam() == workflow::SqliteLayout::kOwned; }

  // Stores a timer, and returns what became of that.
  workflow::StoreFailure store_tea(StoreBackend& backend) {
    workflow::StoreFailure failure;
    carry_out(backend, schedule("tea", clock_.us), 0, 1, &failure);
    return failure;
  }
  static uint64_t count(StoreBackend& backend) {
    return carry_out(backend, workflow::CountRequest{}).count;
  }
  // Requests fail with that error, and none of them is carried out or in doubt.
  void expect_failed(StoreBackend& backend, int error, const std::string& text) {
    workflow::StoreFailure failure = store_tea(backend);
    EXPECT_EQ(failure.error, error) << failure.message;
    EXPECT_FALSE(failure.in_doubt);
    EXPECT_NE(failure.message.find(text), std::string::npos) << failure.message;
    EXPECT_TRUE(carry_out(backend, claim(), 0, 1, &failure).claimed.empty());
    EXPECT_EQ(failure.error, error) << failure.message;
  }

  void remove_all() const {
    for (const char* const suffix : {"", "-wal", "-shm", "-queue", "-reserve"}) {
      std::filesystem::remove(path_ + suffix);
    }
  }

  FastDir directory_;
  const std::string path_ = directory_.path("timers");
  SetClock clock_;
  workflow::StoreBackendOptions options_ = options_of(clock_);
  std::string message_;
};

TEST_P(SqliteRemoved, AFileThatIsDeletedFailsTheStoreUntilItComesBack) {
  const auto backend = open();
  store_tea(*backend);
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  store_tea(*backend);
  std::filesystem::rename(path_, path_ + ".away");
  expect_failed(*backend, ENOENT, "deleted");
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(backend->reopen(&message_), ENOENT);
    expect_failed(*backend, ENOENT, path_);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::rename(path_ + ".away", path_);
  EXPECT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_EQ(count(*backend), 2U);
  // It has kept its lease.
  EXPECT_TRUE(carry_out(*backend, finish(run)).accepted);
}

// Another process would make a new one, and the two would not know of each other's locks. As long
// as any store of this process is open, all that it opens would use the old one.
TEST_P(SqliteRemoved, AnIndexThatIsDeletedFailsAllStoresOfTheProcess) {
  const auto backend = open();
  const auto other = is_owned() ? nullptr : open();
  store_tea(*backend);
  std::filesystem::remove(path_ + "-shm");
  expect_failed(*backend, ESTALE, "-shm");
  if (other) {
    EXPECT_EQ(backend->reopen(&message_), ESTALE);
    expect_failed(*other, ESTALE, "-shm");
    EXPECT_EQ(other->reopen(&message_), 0) << message_;
  }
  EXPECT_EQ(backend->reopen(&message_), 0) << message_;
  store_tea(*backend);
  EXPECT_EQ(count(*backend), 2U);
}

TEST_P(SqliteRemoved, AFileThatIsReplacedFailsTheStore) {
  const auto backend = open();
  store_tea(*backend);
  std::filesystem::copy_file(path_, path_ + ".copy");
  std::filesystem::rename(path_ + ".copy", path_);
  expect_failed(*backend, ESTALE, "replaced");
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(backend->reopen(&message_), EILSEQ);
    expect_failed(*backend, EILSEQ, "a copy of the store");
  }
}

// Whoever has the store open must not go on with an older copy, or with another store: what it
// knows of timers, fences and answers is not true of that.
TEST_P(SqliteRemoved, AnOlderCopyIsNotTakenForTheStore) {
  auto backend = open();
  store_tea(*backend);
  backend.reset();
  std::filesystem::copy_file(path_, path_ + ".copy");
  backend = open();
  store_tea(*backend);
  for (const bool with_queue : {true, false}) {
    SCOPED_TRACE(with_queue);
    std::filesystem::copy_file(path_ + ".copy", path_ + ".new");
    std::filesystem::remove(path_ + "-wal");
    std::filesystem::remove(path_ + "-shm");
    std::filesystem::rename(path_ + ".new", path_);
    if (!with_queue) {
      std::filesystem::remove(path_ + "-queue");
    }
    workflow::StoreFailure failure = store_tea(*backend);
    EXPECT_NE(failure.error, 0);
    for (int i = 0; i < 2; i++) {
      EXPECT_EQ(backend->reopen(&message_), EILSEQ);
      expect_failed(*backend, EILSEQ, "has lost transactions");
    }
  }
}

TEST_P(SqliteRemoved, AnotherStoreInItsPlaceIsNotTakenForIt) {
  auto backend = open();
  store_tea(*backend);
  const auto run = carry_out(*backend, claim()).claimed.at(0).run;
  remove_all();
  store_tea(*backend);
  EXPECT_EQ(backend->reopen(&message_), ENOENT);
  // Another process has made a store of the same layout, in which the first timer runs with the
  // first fence, too.
  {
    const FastDir directory;
    const auto other = open_backend(directory.path("timers"), options_);
    ASSERT_TRUE(other);
    store_tea(*other);
    const auto same = carry_out(*other, claim()).claimed.at(0).run;
    EXPECT_TRUE(same.timer == run.timer && same.fence == run.fence);
    for (const char* const suffix : {"", "-wal", "-queue"}) {
      std::filesystem::copy_file(directory.path("timers") + suffix, path_ + suffix);
    }
  }
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(backend->reopen(&message_), EILSEQ);
    EXPECT_NE(message_.find("another store"), std::string::npos) << message_;
    EXPECT_EQ(backend->leases_are_lost(), is_owned());
    workflow::StoreFailure failure;
    EXPECT_FALSE(carry_out(*backend, finish(run), 0, 1, &failure).accepted);
    EXPECT_EQ(failure.error, EILSEQ);
  }
}

TEST_P(SqliteRemoved, ALogThatIsDeletedFailsTheStoreAndLosesNothing) {
  const auto backend = open();
  store_tea(*backend);
  std::filesystem::remove(path_ + "-wal");
  expect_failed(*backend, ESTALE, "the log was deleted");
  // The process still had the log open, and copies it to the file.
  std::filesystem::create_hard_link(path_, path_ + ".link");
  EXPECT_EQ(backend->reopen(&message_), EMLINK);
  std::filesystem::remove(path_ + ".link");
  EXPECT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_EQ(count(*backend), 1U);
  EXPECT_EQ(store_tea(*backend).error, 0);
  EXPECT_TRUE(std::filesystem::exists(path_ + "-wal"));
}

// Also before the process has committed anything.
TEST_P(SqliteRemoved, ALogThatIsDeletedBeforeTheFirstCommitIsNoticed) {
  store_tea(*open());
  options_.session = 0;  // opening the store commits nothing
  const auto backend = open();
  EXPECT_EQ(count(*backend), 1U);
  std::filesystem::remove(path_ + "-wal");
  expect_failed(*backend, ESTALE, "the log was deleted");
  EXPECT_EQ(backend->reopen(&message_), 0) << message_;
  EXPECT_EQ(count(*backend), 1U);
}

TEST_P(SqliteRemoved, ALogThatIsReplacedFailsTheStore) {
  const auto backend = open();
  store_tea(*backend);
  std::filesystem::copy_file(path_ + "-wal", path_ + ".copy");
  store_tea(*backend);
  std::filesystem::rename(path_ + ".copy", path_ + "-wal");
  expect_failed(*backend, ESTALE, "the log was deleted or replaced");
  // What is in its place lacks the last timer.
  EXPECT_EQ(backend->reopen(&message_), EILSEQ);
  expect_failed(*backend, EILSEQ, path_);
}

// One of those that share a file notices it first. What was committed is not lost by its going.
TEST(SqliteRemovedShared, ALogThatIsDeletedWhileSeveralHaveItOpenLosesNothing) {
  const FastDir directory;
  const std::string path = directory.path("timers");
  SetClock clock;
  std::vector<std::unique_ptr<workflow::SqliteBackend>> backends;
  for (uint64_t session = 1; session <= 2; session++) {
    backends.push_back(open_backend(path, options_of(clock, session)));
    ASSERT_TRUE(backends.back());
    carry_out(*backends.back(), schedule("tea", clock.us));
  }
  std::filesystem::remove(path + "-wal");
  for (const auto& backend : backends) {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", clock.us), 0, 1, &failure);
    EXPECT_EQ(failure.error, ESTALE) << failure.message;
    std::string message;
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    EXPECT_EQ(carry_out(*backend, workflow::CountRequest{}).count, 2U);
  }
  for (const auto& backend : backends) {
    workflow::StoreFailure failure;
    carry_out(*backend, schedule("tea", clock.us), 0, 1, &failure);
    EXPECT_EQ(failure.error, 0) << failure.message;
  }
  EXPECT_EQ(carry_out(*backends[0], workflow::CountRequest{}).count, 4U);
}

INSTANTIATE_TEST_SUITE_P(Each, SqliteRemoved, sqlite_layouts(), layout_name);

}  // namespace
}  // namespace test_support
