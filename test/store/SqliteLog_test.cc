#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/FaultVfs.h"
#include "support/Eventually.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"

namespace test_support {
namespace {

constexpr uintmax_t kMiB = 1024 * 1024;
// Much smaller than that of users, which only takes longer to fill.
constexpr int64_t kLogBytes = 8 * kMiB;
// The log has most of its promised size plus what one of our groups adds.
constexpr uintmax_t kMaxLog = 13 * kMiB;

// `vfs`: see SqliteSettings::base_vfs.
workflow::SqliteSettings small_log(const char* vfs = nullptr) {
  workflow::SqliteSettings settings;
  settings.base_vfs = vfs;
  settings.log_bytes = kLogBytes;
  return settings;
}

// Stores a MiB of payloads and cancels it.
void write_some(workflow::StoreBackend& backend, uint64_t& timers) {
  std::vector<workflow::StoreRequest> requests;
  for (int i = 0; i < 16; i++) {
    workflow::ScheduleRequest request = schedule("tea", workflow::kNeverUs);
    request.spec.payload.assign(65536, 'p');
    requests.push_back(make_request(request));
  }
  requests.push_back(make_request(cancel("tea", 12)));
  std::vector<workflow::StoreRequest*> pointers;
  for (workflow::StoreRequest& request : requests) {
    pointers.push_back(&request);
  }
  ASSERT_TRUE(backend.execute(pointers));
  for (const workflow::StoreRequest& request : requests) {
    ASSERT_EQ(request.failure.error, 0) << request.failure.message;
  }
  timers += 4;
}

// How large the log gets while this much is written.
uintmax_t log_after(workflow::StoreBackend& backend, const std::string& path, uintmax_t bytes) {
  uintmax_t largest = 0;
  uint64_t timers = carry_out(backend, workflow::CountRequest{}).count;
  for (uintmax_t written = 0; written < bytes; written += kMiB) {
    write_some(backend, timers);
    largest = std::max(largest, std::filesystem::file_size(path + "-wal"));
  }
  EXPECT_EQ(carry_out(backend, workflow::CountRequest{}).count, timers);
  return largest;
}

TEST(SqliteLog, TheSizesAreThoseOfThePage) {
  EXPECT_EQ(workflow::SqliteSettings().log_bytes, 64 * kMiB);
  EXPECT_EQ(workflow::SqliteSettings().reserve_bytes, 8 * kMiB);
}

TEST(SqliteLog, BeginsAnewBeforeItIsLarge) {
  const FastDir directory;
  const std::string path = directory.path("timers");
  const auto backend = open_backend(path, options_of(workflow::system_clock()), small_log());
  ASSERT_TRUE(backend);
  EXPECT_LE(log_after(*backend, path, 24 * kMiB), kMaxLog);
  // It was copied meanwhile.
  EXPECT_GT(std::filesystem::file_size(path), 2 * kMiB);
}

TEST(SqliteLog, BeginsAnewWhileOthersRead) {
  const FastDir directory;
  const std::string path = directory.path("timers");
  const auto backend = open_backend(path, options_of(workflow::system_clock()), small_log());
  const auto reader = open_backend(path, options_of(workflow::system_clock(), 2));
  ASSERT_TRUE(backend && reader);
  std::atomic<bool> stops{false};
  std::thread reads([&reader, &stops] {
    while (!stops) {
      carry_out(*reader, workflow::CountRequest{"tea", 0});
    }
  });
  // A reader that is late may hold it up for a while. A sanitizer is to see the two at once: that
  // takes less.
  constexpr uintmax_t kWritten = (kSanitized ? 10 : 40) * kMiB;
  EXPECT_LE(log_after(*backend, path, kWritten), 32 * kMiB);
  stops = true;
  reads.join();
}

// SQLite itself syncs the file only when all of the log is copied. If the rest waited for that,
// transactions would wait for the sync of everything when the log begins anew.
TEST(SqliteLog, WhatIsCopiedIsSyncedAtOnce) {
  const FastDir directory;
  const std::string path = directory.path("timers");
  FaultVfs vfs;
  const auto backend =
      open_backend(path, options_of(workflow::system_clock()), small_log(vfs.name()));
  ASSERT_TRUE(backend);
  // Too little to be copied yet. What comes after the beginning of a reader cannot be copied.
  workflow::ScheduleRequest request = schedule("tea", workflow::kNeverUs);
  request.spec.payload.assign(kLogBytes / 64, 'p');
  uint64_t timers = 1;
  carry_out(*backend, request);
  workflow::SqliteConnection reader;
  ASSERT_TRUE(reader.open(path, SQLITE_OPEN_READONLY, nullptr));
  ASSERT_TRUE(reader.run("BEGIN"));
  reader.number("SELECT count(*) FROM timers");
  const uintmax_t size = std::filesystem::file_size(path);
  write_some(*backend, timers);
  EXPECT_TRUE(eventually([&] { return std::filesystem::file_size(path) > size; }));
  EXPECT_TRUE(eventually([&] { return vfs.unsynced_bytes(path) == 0; }));
}

class SqliteLogLayouts : public LayoutTest {
 protected:
  const FastDir directory_;
  const std::string path_ = directory_.path("timers");
  FaultVfs vfs_;
  const std::unique_ptr<workflow::StoreBackend> backend_ =
      open_backend(path_, options_of(workflow::system_clock()), small_log(vfs_.name()));
};
class SqliteLogCopies : public SqliteLogLayouts {};
class SqliteLogSyncs : public SqliteLogLayouts {};

// Both by a thread of its own and by a connection of its own.
TEST_P(SqliteLogCopies, CommitsGoOnWhileTheLogIsCopied) {
  ASSERT_TRUE(backend_);
  vfs_.hold(path_);
  uint64_t timers = 0;
  std::atomic<uint64_t> commits{0};  // since the log is copied
  std::thread writes([&] {
    for (int i = 0; i < 6 && !vfs_.is_holding(); i++) {
      write_some(*backend_, timers);  // an owner writes less of that
    }
    EXPECT_TRUE(eventually([this] { return vfs_.is_holding(); }));
    for (; commits < 20; commits++) {
      EXPECT_NE(carry_out(*backend_, schedule("tea", workflow::kNeverUs)).timer, 0U);
    }
  });
  EXPECT_TRUE(eventually([&] { return commits == 20; }));
  EXPECT_TRUE(vfs_.is_holding());
  vfs_.hold("");
  writes.join();
  EXPECT_EQ(carry_out(*backend_, workflow::CountRequest{}).count, timers + commits);
}

// journal_mode = WAL, which the file says at a fixed place (https://sqlite.org/fileformat.html,
// 1.3), and synchronous = FULL: nothing of the log is left to be synced when a request is answered.
TEST_P(SqliteLogSyncs, WhatIsAnsweredIsInTheLogAndSynced) {
  ASSERT_TRUE(backend_);
  char header[20] = {};
  ASSERT_TRUE(std::ifstream(path_, std::ios::binary).read(header, sizeof header));
  EXPECT_EQ(header[18], 2);
  EXPECT_EQ(header[19], 2);
  for (int i = 0; i < 20; i++) {
    EXPECT_NE(carry_out(*backend_, schedule("tea", workflow::kNeverUs)).timer, 0U);
    EXPECT_EQ(vfs_.unsynced_bytes(path_ + "-wal"), 0U);
    EXPECT_EQ(carry_out(*backend_, cancel("tea", 1)).answers.size(), 1U);
    EXPECT_EQ(vfs_.unsynced_bytes(path_ + "-wal"), 0U);
  }
  EXPECT_GT(std::filesystem::file_size(path_ + "-wal"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, SqliteLogSyncs, sqlite_layouts(), layout_name);

INSTANTIATE_TEST_SUITE_P(Each, SqliteLogCopies, sqlite_layouts(), layout_name);

}  // namespace
}  // namespace test_support
