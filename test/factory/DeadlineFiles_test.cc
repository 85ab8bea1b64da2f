// Deadlines over file operations; the time is moved by hand. Somebody else's lease on a file stands
// for a file system that does not answer.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "DeadlineProbes.h"
#include "support/FileProbes.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

using workflow::FileBackend;
using workflow::Runtime;
using workflow::UniqueFd;

namespace {

class DeadlineFiles : public probes::DeadlineTest, public testing::WithParamInterface<FileBackend> {
 protected:
  DeadlineFiles() {
    Runtime::configure({.files = {.max_events = 1, .backend = GetParam()}});
    probes::write_file(path("file"), "0123");
    probes::write_file(path("leased"), "4567");
    fd_ = UniqueFd(::open(path("file").c_str(), O_RDWR | O_CLOEXEC));
  }

  std::string path(const char* name) const { return dir_.path(name); }

  // From now on nobody else opens the file.
  void lease() {
    sigset_t broken;
    ::sigemptyset(&broken);
    ::sigaddset(&broken, SIGIO);
    ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &broken, nullptr), 0);
    lease_ = UniqueFd(::open(path("leased").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::fcntl(lease_.get(), F_SETLEASE, F_WRLCK), 0);
  }
  void give_lease_up() { EXPECT_EQ(::fcntl(lease_.get(), F_SETLEASE, F_UNLCK), 0); }
  // Until somebody waits for the lease.
  void await_break() {
    const timespec patience{test_support::kPatience.count(), 0};
    sigset_t broken;
    ::sigemptyset(&broken);
    ::sigaddset(&broken, SIGIO);
    EXPECT_EQ(::sigtimedwait(&broken, nullptr, &patience), SIGIO);
  }
  WFFileIOTask* read(const std::string& name) {
    return WFTaskFactory::create_pread_task(fd_.get(), buffer_, 4, 0, noting<WFFileIOTask>(name));
  }
  WFFileIOTask* read_path(const std::string& name, const char* file = "file") {
    return WFTaskFactory::create_pread_task(path(file), buffer_, 4, 0, noting<WFFileIOTask>(name));
  }
  std::string buffer() const { return std::string(buffer_, 4); }

  UniqueFd fd_;
  char buffer_[4] = {'.', '.', '.', '.'};

 private:
  test_support::TempDir dir_;
  UniqueFd lease_;
};

}  // namespace

TEST_P(DeadlineFiles, LeavesWhatIsInTime) {
  WFDeadlineTask* const limit = limited(read("r"), 10);
  *limit->sub_series() << read_path("p")
                       << WFTaskFactory::create_fsync_task(fd_.get(), noting<WFFileSyncTask>("s"));
  start(limit);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r+p+s+D+");
  EXPECT_EQ(buffer(), "0123");
}

// The deadline passes while open(2) waits for the lease.
TEST_P(DeadlineFiles, WhatHasBegunEndsWithItsOwnResult) {
  lease();
  WFDeadlineTask* const limit = limited(read_path("p", "leased"), 10);
  *limit->sub_series() << read("next");
  start(limit);
  await_break();
  pass(10);
  EXPECT_EQ(text(), "");
  give_lease_up();
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "p+next!D!");
  EXPECT_EQ(buffer(), "4567");
}

// There is one thread, which waits for the lease.
TEST_P(DeadlineFiles, EndsAtOnceWhatWaitsForItsTurn) {
  lease();
  test_support::Tally first;
  WFTaskFactory::create_pread_task(path("leased"), nullptr, 0, 0, [&](WFFileIOTask*) {
    first.add();
  })->start();
  await_break();
  start(limited(read_path("p"), 10));
  EXPECT_EQ(text(), "");
  pass(10);
  EXPECT_EQ(text(), "p!D!");
  give_lease_up();
  EXPECT_TRUE(first.wait_for(1));
  EXPECT_EQ(probes::run_file_task(WFTaskFactory::create_fsync_task(-1, nullptr)),
            probes::failure(EBADF));
  EXPECT_EQ(buffer(), "....");
}

TEST_P(DeadlineFiles, TellsTheNextOnesThatDoNotBegin) {
  WFDeadlineTask* const limit = limited(timer("a", 100), 10);
  const char text_to_write[] = "89";
  *limit->sub_series() << WFTaskFactory::create_pwrite_task(path("new"), text_to_write, 2, 0,
                                                            noting<WFFileIOTask>("w"))
                       << read("r")
                       << WFTaskFactory::create_fdatasync_task(fd_.get(),
                                                               noting<WFFileSyncTask>("s"));
  start(limit);
  pass(10);
  EXPECT_EQ(text(), "a!w!r!s!D!");
  EXPECT_EQ(buffer(), "....");
  EXPECT_NE(::access(path("new").c_str(), F_OK), 0);
}

// As pread(2): what has no positions is nothing to wait for.
TEST_P(DeadlineFiles, NeverWaitsForPipes) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(
      probes::run_file_task(WFTaskFactory::create_pread_task(ends[0], buffer_, 4, 0, nullptr)),
      probes::failure(ESPIPE));
  WFFileIOTask* const read =
      WFTaskFactory::create_pread_task(ends[0], buffer_, 4, 0, noting<WFFileIOTask>("r"));
  start(limited(read, 10));
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r?D+");
  ::close(ends[0]);
  ::close(ends[1]);
}

// More than are in the ring, or on a thread, at a time.
TEST_P(DeadlineFiles, EndsThousandsSomehow) {
  constexpr size_t kMany = 3000;
  std::vector<std::string> buffers(kMany, std::string(4, '.'));
  std::vector<char> states(kMany, '?');
  for (size_t i = 0; i < kMany; i++) {
    start(limited(WFTaskFactory::create_pread_task(
                      fd_.get(), buffers[i].data(), 4, 0,
                      [&buffer = buffers[i], &state = states[i]](WFFileIOTask* task) {
                        const bool done = task->get_state() == WFT_STATE_SUCCESS;
                        EXPECT_EQ(task->get_error(), done ? 0 : ETIMEDOUT);
                        EXPECT_EQ(task->get_retval(), done ? 4 : -1);
                        EXPECT_EQ(buffer, done ? "0123" : "....");
                        state = done ? '+' : '!';
                      }),
                  10));
  }
  pass(10);
  EXPECT_TRUE(series_ended_.wait_for(kMany));
  for (size_t i = 0; i < kMany; i++) {
    EXPECT_NE(states[i], '?');
    EXPECT_EQ(buffers[i], states[i] == '+' ? "0123" : "....");
  }
}

INSTANTIATE_ON_EACH_BACKEND(DeadlineFiles);
