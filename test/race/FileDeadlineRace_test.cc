// Deadlines of a few microseconds over file operations wherever they are: in a queue, in the ring,
// on a thread. Then an account of every task, every buffer and every byte.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/FileProbes.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "workflow/WFDeadline.h"

namespace {

using std::chrono::microseconds;
using test_support::Tally;
using test_support::TestRandom;
using workflow::UniqueFd;

constexpr size_t kSmall = 64;
// Copied by a thread of the kernel, and not inside the submission.
constexpr size_t kLarge = size_t{256} * 1024;
constexpr int kMaxFileUs = 300;

// By whole blocks: a loop over characters takes sanitizers long.
bool is_all(const std::string& text, char letter) {
  return text.empty() ||
         (text[0] == letter && std::memcmp(text.data(), text.data() + 1, text.size() - 1) == 0);
}

// One operation: what it may use until its callback, and nobody after that.
struct FileEntry {
  explicit FileEntry(size_t size, char letter) : buffer(size, letter) {}

  std::string buffer;
  std::array<struct iovec, 2> vector{};
  std::atomic<int> calls{0};
  bool done = false;
};

// Many flows of file tasks, each with a deadline. A buffer is 'r' before it is read into, the file
// is 'f'. What is written is 'w', in a part of another file that is 'n' before. When a callback has
// run the buffer is 'x': this must be found neither changed nor written.
class FileRound final : public race::Round {
 public:
  FileRound(uint64_t number, workflow::Runtime* runtime, const std::string& source,
            const std::string& target)
      : Round(number, runtime),
        random_(test_support::test_seed(), number),
        source_path_(source),
        source_(::open(source.c_str(), O_RDONLY | O_CLOEXEC)),
        target_(::open(target.c_str(), O_RDWR | O_CLOEXEC)) {
    const std::string clean(kParts * kSmall, 'n');
    EXPECT_EQ(::pwrite(target_.get(), clean.data(), clean.size(), 0),
              static_cast<ssize_t>(clean.size()));
    std::vector<WFDeadlineTask*> flows;
    for (size_t i = 0; i < kFlows; i++) {
      flows.push_back(flow());
    }
    for (WFDeadlineTask* const flow : flows) {
      flow->start();
    }
  }

  std::string finish() override {
    if (!ended_.wait_for(kFlows)) return "callbacks are missing: " + std::to_string(ended_.count());
    // Whatever is on its way to a buffer that it must not have.
    EXPECT_EQ(
        probes::run_file_task(WFTaskFactory::create_fdatasync_task(target_.get(), nullptr)).error,
        0);
    for (const auto& entry : entries_) {
      EXPECT_EQ(entry->calls, 1);
      EXPECT_TRUE(is_all(entry->buffer, 'x')) << "a buffer is used after the callback";
    }
    for (size_t part = 0; part < writes_.size(); part++) {
      std::string found(kSmall, '\0');
      EXPECT_EQ(::pread(target_.get(), found.data(), kSmall, static_cast<off_t>(part * kSmall)),
                static_cast<ssize_t>(kSmall));
      EXPECT_TRUE(is_all(found, writes_[part]->done ? 'w' : found[0])) << found;
      EXPECT_TRUE(found[0] == 'w' || found[0] == 'n') << found;
    }
    return "";
  }

  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? in_time_.load()
           : state == WFT_STATE_SYS_ERROR ? too_late_.load()
                                          : size_t{0};
  }

 private:
  static constexpr size_t kFlows = 40;
  static constexpr size_t kParts = 400;

  WFDeadlineTask* flow() {
    SeriesWork* const series = Workflow::create_series_work(step(), nullptr);
    for (uint64_t more = random_.below(5); more > 0; more--) {
      series->push_back(step());
    }
    WFDeadlineTask* const inner = with_deadline(series, some_time());
    if (random_.one_in(4)) {
      return with_deadline(inner, some_time(), [this](WFDeadlineTask*) { ended_.add(); });
    }
    inner->set_callback([this](WFDeadlineTask*) { ended_.add(); });
    return inner;
  }

  microseconds some_time() { return microseconds(random_.below(kMaxFileUs)); }

  FileEntry* add(size_t size, char letter) {
    entries_.push_back(std::make_unique<FileEntry>(size, letter));
    return entries_.back().get();
  }

  SubTask* step() {
    switch (random_.below(6)) {
      case 0:
        return write();
      case 1:
        return read_vector();
      case 2:
        return read_path();
      case 3:
        return WFTaskFactory::create_fdatasync_task(target_.get(),
                                                    noting<WFFileSyncTask>(add(0, 'r'), 0));
      case 4:
        return read(random_.one_in(3) ? kLarge : kSmall);
      default:
        return read(kSmall);
    }
  }
  SubTask* read(size_t size) {
    FileEntry* const entry = add(size, 'r');
    return WFTaskFactory::create_pread_task(source_.get(), entry->buffer.data(), size, 0,
                                            noting<WFFileIOTask>(entry, size));
  }
  SubTask* read_path() {
    FileEntry* const entry = add(kSmall, 'r');
    return WFTaskFactory::create_pread_task(source_path_, entry->buffer.data(), kSmall, 0,
                                            noting<WFFileIOTask>(entry, kSmall));
  }
  SubTask* read_vector() {
    FileEntry* const entry = add(kSmall, 'r');
    entry->vector = {{{entry->buffer.data(), 10}, {entry->buffer.data() + 10, kSmall - 10}}};
    return WFTaskFactory::create_preadv_task(source_.get(), entry->vector.data(), 2, 0,
                                             noting<WFFileVIOTask>(entry, kSmall));
  }
  SubTask* write() {
    FileEntry* const entry = add(kSmall, 'w');
    const auto offset = static_cast<off_t>(writes_.size() * kSmall);
    writes_.push_back(entry);
    EXPECT_LE(writes_.size(), kParts);
    return WFTaskFactory::create_pwrite_task(target_.get(), entry->buffer.data(), kSmall, offset,
                                             noting<WFFileIOTask>(entry, kSmall));
  }

  template <class Task>
  std::function<void(Task*)> noting(FileEntry* entry, size_t size) {
    const char before = entry->buffer.empty() ? 'r' : entry->buffer[0];
    return [this, entry, size, before](Task* task) {
      entry->calls++;
      if (task->get_state() == WFT_STATE_SUCCESS) {
        entry->done = true;
        in_time_++;
        EXPECT_EQ(task->get_retval(), static_cast<long>(size));
        EXPECT_TRUE(is_all(entry->buffer, before == 'r' ? 'f' : 'w'));
      } else {
        too_late_++;
        EXPECT_EQ(task->get_state(), WFT_STATE_SYS_ERROR);
        EXPECT_EQ(task->get_error(), ETIMEDOUT);
        EXPECT_EQ(task->get_retval(), -1);
      }
      std::memset(entry->buffer.data(), 'x', entry->buffer.size());
    };
  }

  TestRandom random_;
  const std::string source_path_;
  const UniqueFd source_;
  const UniqueFd target_;
  std::vector<std::unique_ptr<FileEntry>> entries_;
  std::vector<FileEntry*> writes_;
  std::atomic<size_t> in_time_{0};
  std::atomic<size_t> too_late_{0};
  Tally ended_;
};

class FileDeadlineRace : public probes::OnEachBackend {
 protected:
  explicit FileDeadlineRace(int max_events = 64) : OnEachBackend(max_events) {}

  void race(uint64_t count) {
    const std::string source = make_file(std::string(kLarge, 'f'), "source");
    const std::string target = make_file("n", "target");
    race::expect_each_side_won(
        race::run_rounds(race::rounds(count), race::begin<FileRound>(source, target)), 0);
  }
};

class FileDeadlineRaceOneAtATime : public FileDeadlineRace {
 protected:
  FileDeadlineRaceOneAtATime() : FileDeadlineRace(1) {}
};

}  // namespace

TEST_P(FileDeadlineRace, EveryTaskIsToldOnceAndLeavesItsBuffer) {
  race(250);
}

TEST_P(FileDeadlineRaceOneAtATime, EveryTaskIsToldOnceAndLeavesItsBuffer) {
  race(250);
}

INSTANTIATE_ON_EACH_BACKEND(FileDeadlineRace);
INSTANTIATE_ON_EACH_BACKEND(FileDeadlineRaceOneAtATime);
