#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "store/SqliteSeals.h"
#include "support/Sanitizers.h"
#include "support/SqliteKit.h"
#include "support/TestSeed.h"
#include "support/Text.h"

namespace test_support {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFrame = 24 + kPage;

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Stores, and the answers that they must give, as data: "name stage payload" of each timer.
class SqliteDamage : public LayoutTest {
 protected:
  using Files = std::map<std::string, std::string>;

  SqliteDamage() {
    auto backend = open_backend(origin_.path("timers"), options_of(clock_));
    EXPECT_TRUE(backend);
    for (uint64_t i = 1; i <= 40; i++) {
      workflow::ScheduleRequest request = schedule("timer " + std::to_string(i), clock_.us);
      request.spec.payload.assign(i % 8 == 0 ? 5000 : 300, static_cast<char>('a' + i % 26));
      carry_out(*backend, request, i);
    }
    const workflow::ClaimRequest taken = carry_out(*backend, claim(10), 0);
    for (size_t i = 0; i < 5; i++) {
      carry_out(*backend, finish(taken.claimed.at(i).run));
    }
    // An owner syncs these ends before this, and may lose them with the power before that.
    carry_out(*backend, cancel("none"), 41);
    // As if the process had been killed: everything is in the log.
    in_log_ = read_files();
    backend.reset();
    // Everything is in the file.
    in_file_ = read_files();
    backend = open_backend(origin_.path("timers"), options_of(clock_, 0));
    expected_ = *answers(*backend);
  }

  Files read_files() const {
    Files files;
    for (const char* name : {"timers", "timers-wal", "timers-queue"}) {
      if (std::filesystem::exists(origin_.path(name))) {
        files[name] = text_of(origin_.path(name));
      }
    }
    return files;
  }

  // Empty if the store has said that it is damaged.
  std::optional<std::string> answers(workflow::StoreBackend& backend) const {
    workflow::ListRequest list;
    list.max = 1000;
    workflow::StoreFailure failure;
    list = carry_out(backend, list, 0, 1, &failure);
    if (failure.error != 0) {
      EXPECT_EQ(failure.error, EILSEQ) << failure.message;
      return {};
    }
    std::string text;
    for (const WFStoreInfo& info : list.timers) {
      text += info.name + " " + std::to_string(static_cast<int>(info.stage)) + " " +
              info.payload.substr(0, 5) + std::to_string(info.payload.size()) + "\n";
    }
    for (const char* name : {"timer 1", "timer 7", "timer 40"}) {
      workflow::ListRequest one;
      one.prefix = name;
      one.max = 10;
      one = carry_out(backend, one, 0, 1, &failure);
      if (failure.error != 0) {
        EXPECT_EQ(failure.error, EILSEQ) << failure.message;
        return {};
      }
      text += std::to_string(one.timers.size()) + " ";
    }
    workflow::AskRequest ask;
    ask.asked = {1, 17};
    ask = carry_out(backend, ask, 0, 1, &failure);
    if (failure.error != 0) {
      EXPECT_EQ(failure.error, EILSEQ) << failure.message;
      return {};
    }
    return text + std::to_string(ask.result.timer);
  }

  // Opens a copy. Counts it as noticed, unless it gives the right answers.
  void try_damaged(const Files& files, const std::string& what) {
    const FastDir copy;
    for (const auto& [name, bytes] : files) {
      write_file(copy.path(name), bytes);
    }
    std::string message;
    int error = 0;
    auto options = options_of(clock_);
    options.session = 0;  // opening it need not change anything
    auto backend = open_backend(copy.path("timers"), options, {}, &message, &error);
    if (!backend) {
      EXPECT_EQ(error, EILSEQ) << what << ": " << message;
      EXPECT_NE(message.find(copy.path("timers")), std::string::npos) << message;
      noticed_++;
      expect_unchanged(files, copy, what);
      return;
    }
    const std::optional<std::string> found = answers(*backend);
    if (!found) {
      noticed_++;
      backend.reset();
      expect_unchanged(files, copy, what);
      return;
    }
    EXPECT_EQ(*found, expected_) << what;
  }

  // Nothing is lost that somebody might still save.
  static void expect_unchanged(const Files& files, const FastDir& copy, const std::string& what) {
    for (const char* name : {"timers", "timers-wal"}) {
      const auto found = files.find(name);
      EXPECT_TRUE(found == files.end() || text_of(copy.path(name)) == found->second)
          << what << " has changed " << name;
    }
  }

  void flip(Files files, const std::string& name, size_t offset) {
    files[name][offset] = static_cast<char>(files[name][offset] ^ 0x10);
    try_damaged(files, name + " flipped at " + std::to_string(offset));
  }

  void cut(Files files, const std::string& name, size_t size) {
    files[name].resize(size);
    try_damaged(files, name + " cut to " + std::to_string(size));
  }

  static bool all_faults() { return env_number("WORKFLOW_STORE_ALL_FAULTS", 0) != 0; }
  static constexpr size_t kEach = kSanitized ? 3 : 1;  // fewer under a sanitizer

  FastDir origin_;
  SetClock clock_;
  Files in_log_;
  Files in_file_;
  std::string expected_;
  int noticed_ = 0;
};

TEST_P(SqliteDamage, AnUndamagedCopyGivesTheRightAnswers) {
  ASSERT_FALSE(expected_.empty());
  ASSERT_EQ(in_file_.count("timers-wal"), 0U);
  try_damaged(in_log_, "log");
  try_damaged(in_file_, "file");
  EXPECT_EQ(noticed_, 0);
}

TEST_P(SqliteDamage, AFlippedBitInAPageIsNoticedOrChangesNothing) {
  const size_t pages = in_file_["timers"].size() / kPage;
  ASSERT_GT(pages, 8U);
  for (size_t page = 0; page < pages; page++) {
    for (size_t i = 0; i < 6; i += kEach) {
      const size_t offsets[] = {0, 9, 60 + page * 97 % 1000, 2048, 4000, kPage - 3};
      flip(in_file_, "timers", page * kPage + offsets[i]);
    }
  }
  EXPECT_GT(noticed_, static_cast<int>(pages));
}

TEST_P(SqliteDamage, AFlippedBitInTheLogIsNoticedOrChangesNothing) {
  const size_t size = in_log_["timers-wal"].size();
  ASSERT_GT(size, 20 * kFrame);
  for (const size_t offset : {1U, 9U, 13U, 17U, 27U}) {
    flip(in_log_, "timers-wal", offset);
  }
  // One place in some of the frames, each kind of place in turn; each place in all of them with
  // WORKFLOW_STORE_ALL_FAULTS=1.
  size_t turn = 0;
  for (size_t frame = 32; frame < size; frame += all_faults() ? kFrame : kFrame * 5 * kEach) {
    const size_t offsets[] = {2, 20, 24 + frame % 997, 24 + 3000};
    for (size_t i = 0; i < (all_faults() ? 4 : 1); i++) {
      flip(in_log_, "timers-wal", frame + offsets[turn++ % 4]);
    }
  }
  EXPECT_GT(noticed_, 10);
}

TEST_P(SqliteDamage, AFileThatWasCutIsNotTakenForASmallerStore) {
  for (size_t size = 0; size < in_file_["timers"].size(); size += kPage * kEach / 2) {
    cut(in_file_, "timers", size);
  }
  EXPECT_GT(noticed_, 5);
}

TEST_P(SqliteDamage, ALogThatWasCutIsNotTakenForASmallerStore) {
  int cuts = 0;
  // With WORKFLOW_STORE_ALL_FAULTS=1 at the beginning and in the middle of each frame.
  const size_t step = all_faults() ? kFrame / 2 : kFrame * 15 / 2 * kEach;
  for (size_t size = 0; size < in_log_["timers-wal"].size(); size += step) {
    cut(in_log_, "timers-wal", size);
    cuts++;
  }
  EXPECT_EQ(noticed_, cuts);
}

TEST_P(SqliteDamage, AMissingLogIsNoticed) {
  in_log_.erase("timers-wal");
  try_damaged(in_log_, "no log");
  EXPECT_EQ(noticed_, 1);
}

TEST_P(SqliteDamage, PagesInAnotherPlaceAreNoticed) {
  std::string& bytes = in_file_["timers"];
  const std::string third = bytes.substr(2 * kPage, kPage);
  bytes.replace(2 * kPage, kPage, bytes.substr(3 * kPage, kPage));
  bytes.replace(3 * kPage, kPage, third);
  try_damaged(in_file_, "swapped");
  EXPECT_EQ(noticed_, 1);
}

TEST_P(SqliteDamage, AnOldCopyOfTheFileIsNoticed) {
  Files old = in_file_;
  {
    const auto backend = open_backend(origin_.path("timers"), options_of(clock_));
    carry_out(*backend, schedule("one more", clock_.us));
  }
  old["timers-queue"] = read_files()["timers-queue"];
  try_damaged(old, "old");
  EXPECT_EQ(noticed_, 1);
}

TEST_P(SqliteDamage, AQueueThatWasLostWithThePowerIsMadeAnew) {
  for (Files files : {in_file_, in_log_}) {
    files["timers-queue"].assign(kPage, '\0');
    try_damaged(files, "zeros");
    files["timers-queue"].clear();
    try_damaged(files, "empty");
    files.erase("timers-queue");
    try_damaged(files, "missing");
  }
  EXPECT_EQ(noticed_, 0);
}

TEST_P(SqliteDamage, DamageToTheLogOfAnOpenStoreIsNoticed) {
  const auto first = open_backend(origin_.path("timers"), options_of(clock_));
  carry_out(*first, schedule("one more", clock_.us));
  std::string log = text_of(origin_.path("timers-wal"));
  ASSERT_GT(log.size(), kFrame);
  for (size_t frame = 32; frame < log.size(); frame += kFrame) {
    log[frame + 24 + 4000] = static_cast<char>(log[frame + 24 + 4000] ^ 1);
  }
  std::fstream(origin_.path("timers-wal"), std::ios::in | std::ios::out | std::ios::binary) << log;
  // Another process would have nothing in its memory either.
  int error = 0;
  if (GetParam() == workflow::SqliteLayout::kOwned) {
    std::string message;
    EXPECT_EQ(first->reopen(&message), EILSEQ) << message;
    return;
  }
  const auto second = open_backend(origin_.path("timers"), options_of(clock_), {}, nullptr, &error);
  if (second) {
    EXPECT_FALSE(answers(*second));
  } else {
    EXPECT_EQ(error, EILSEQ);
  }
}

// Opening reads few pages. A store in which only some requests meet the bad one would take new
// timers that never start. An owner reads everything when it opens its store.
TEST_P(SqliteDamage, AStoreThatHasMetABadPageEndsAllRequestsUntilThePageIsGood) {
  int met = 0;
  for (size_t page = 2; page < in_file_["timers"].size() / kPage; page++) {
    SCOPED_TRACE(page);
    const FastDir copy;
    std::string bytes = in_file_["timers"];
    bytes[page * kPage + 100] = static_cast<char>(bytes[page * kPage + 100] ^ 1);
    write_file(copy.path("timers"), bytes);
    auto options = options_of(clock_);
    options.session = 0;
    const auto backend = open_backend(copy.path("timers"), options);
    if (!backend) continue;
    workflow::StoreFailure failure;
    carry_out(*backend, claim(), 0, 1, &failure);
    if (failure.error == 0) continue;
    EXPECT_EQ(failure.error, EILSEQ) << failure.message;
    met++;
    std::string message;
    EXPECT_EQ(backend->reopen(&message), EILSEQ);
    EXPECT_NE(message.find(copy.path("timers") + ": damaged"), std::string::npos) << message;
    carry_out(*backend, schedule("new", clock_.us), 0, 1, &failure);
    EXPECT_EQ(failure.error, EILSEQ);

    write_file(copy.path("timers"), in_file_["timers"]);
    EXPECT_EQ(backend->reopen(&message), 0) << message;
    EXPECT_FALSE(carry_out(*backend, claim()).claimed.empty());
  }
  EXPECT_EQ(met > 0, GetParam() == workflow::SqliteLayout::kShared);
}

// As SQLite reads long payloads since 3.46, and the header of each database.
TEST_P(SqliteDamage, APartOfAPageIsVerifiedWithTheWholePage) {
  const std::string path = origin_.path("timers");
  sqlite3_vfs* const vfs = sqlite3_vfs_find(workflow::SqliteSeals::over(nullptr));
  ASSERT_NE(vfs, nullptr);
  const auto read = [vfs, &path](size_t offset, size_t size, std::string* bytes) {
    std::vector<uint64_t> memory(static_cast<size_t>(vfs->szOsFile) / 8 + 1);
    auto* file = reinterpret_cast<sqlite3_file*>(memory.data());
    const char* const name = sqlite3_create_filename(path.c_str(), "", "", 0, nullptr);
    EXPECT_EQ(vfs->xOpen(vfs, name, file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, nullptr),
              SQLITE_OK);
    bytes->assign(size, '\0');
    const int result = file->pMethods->xRead(file, bytes->data(), static_cast<int>(size),
                                             static_cast<sqlite3_int64>(offset));
    file->pMethods->xClose(file);
    sqlite3_free_filename(name);
    return result;
  };
  std::string bytes = in_file_["timers"];
  std::string part;
  EXPECT_EQ(read(2 * kPage + 4, 1000, &part), SQLITE_OK);
  EXPECT_TRUE(part == bytes.substr(2 * kPage + 4, 1000));
  for (const size_t damaged : {size_t{3000}, 2 * kPage + 3000}) {
    bytes[damaged] = static_cast<char>(bytes[damaged] ^ 1);
  }
  write_file(path, bytes);
  EXPECT_EQ(read(2 * kPage + 4, 1000, &part), SQLITE_IOERR_DATA);
  EXPECT_EQ(read(3 * kPage + 4, 1000, &part), SQLITE_OK);
  EXPECT_EQ(read(100, 8, &part), SQLITE_IOERR_DATA);
  EXPECT_EQ(read(24, 16, &part), SQLITE_OK);
  EXPECT_EQ(read(bytes.size() + 4, 8, &part), SQLITE_IOERR_DATA);
}

TEST(SqliteSeals, ASealDependsOnEachByteAndOnTheNumberOfThePage) {
  std::vector<unsigned char> page(kPage, 0);
  const uint64_t seal = workflow::SqliteSeals::of(page.data(), 1);
  EXPECT_NE(seal, 0U);
  EXPECT_NE(seal, workflow::SqliteSeals::of(page.data(), 2));
  for (size_t i = 0; i < kPage; i++) {
    page[i] = 1;
    EXPECT_EQ(seal == workflow::SqliteSeals::of(page.data(), 1),
              i >= kPage - workflow::SqliteSeals::kSealBytes)
        << i;
    page[i] = 0;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SqliteDamage, sqlite_layouts(), layout_name);

}  // namespace
}  // namespace test_support
