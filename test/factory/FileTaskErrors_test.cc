#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/FileProbes.h"
#include "support/Program.h"

// The errors of file tasks, as the system calls give them, on both backends. Random ones are in
// FileTaskDifference_test.cc.

namespace {

using namespace probes;

class FileTaskError : public probes::OnEachBackend {
 protected:
  FileOutcome read_path(const std::string& file) {
    return run_file_task(WFTaskFactory::create_pread_task(file, buf_, 1, 0, nullptr));
  }
  FileOutcome write_path(const std::string& file) {
    return run_file_task(WFTaskFactory::create_pwrite_task(file, "x", 1, 0, nullptr));
  }

  char buf_[64] = {};
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskError);

// Ignores a signal that would end the program.
class Ignored {
 public:
  explicit Ignored(int signal) : signal_(signal), before_(std::signal(signal, SIG_IGN)) {}
  ~Ignored() { std::signal(signal_, before_); }
  Ignored(const Ignored&) = delete;
  Ignored& operator=(const Ignored&) = delete;

 private:
  const int signal_;
  void (*const before_)(int);
};

}  // namespace

TEST_P(FileTaskError, PipesAndSocketsAreESPIPEAndKeepTheirData) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ASSERT_EQ(::write(ends[1], "a", 1), 1);
  ASSERT_EQ(::write(sockets[1], "b", 1), 1);
  for (const int fd : {ends[0], sockets[0]}) {
    EXPECT_EQ(probes::pread(fd, buf_, 1, 0), failure(ESPIPE));
    EXPECT_EQ(probes::fsync(fd), failure(EINVAL));
    EXPECT_EQ(::read(fd, buf_, 1), 1);
  }
  for (const int fd : {ends[1], sockets[0]}) {
    EXPECT_EQ(probes::pwrite(fd, "x", 1, 0), failure(ESPIPE));
  }
  for (const int fd : {ends[0], ends[1], sockets[0], sockets[1]}) {
    ::close(fd);
  }
}

TEST_P(FileTaskError, ADirectoryIsEISDIR) {
  const UniqueFd directory = open(path(""), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(probes::pread(directory.get(), buf_, 1, 0), failure(EISDIR));
  EXPECT_EQ(probes::pwrite(directory.get(), buf_, 1, 0), failure(EBADF));
  EXPECT_EQ(probes::fsync(directory.get()), success(0));
  EXPECT_EQ(read_path(path("")), failure(EISDIR));
  EXPECT_EQ(write_path(path("")), failure(EISDIR));
}

TEST_P(FileTaskError, MemoryThatIsNotThereIsEFAULT) {
  const UniqueFd fd = open(make_file("0123"), O_RDWR);
  void* const nowhere = reinterpret_cast<void*>(8);
  EXPECT_EQ(probes::pread(fd.get(), nowhere, 4, 0), failure(EFAULT));
  EXPECT_EQ(probes::pwrite(fd.get(), nowhere, 4, 0), failure(EFAULT));
  EXPECT_EQ(probes::preadv(fd.get(), static_cast<struct iovec*>(nowhere), 1, 0), failure(EFAULT));
}

TEST_P(FileTaskError, ACountBeyondWhatOneCallTransfersIsCutOrRefused) {
  const UniqueFd fd = open(make_file("0123"), O_RDONLY);
  EXPECT_EQ(probes::pread(fd.get(), buf_, size_t{INT_MAX} + 1, 0), success(4));
  // EINVAL or EFAULT, by the version of the kernel.
  EXPECT_EQ(probes::pread(fd.get(), buf_, SIZE_MAX, 0).state, WFT_STATE_SYS_ERROR);
}

TEST_P(FileTaskError, NonBlockingFilesAreReadAllTheSame) {
  make_file(std::string(1 << 20, 'a'));
  const UniqueFd fd = open(path(), O_RDWR | O_NONBLOCK);
  ASSERT_EQ(::fdatasync(fd.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  std::string bytes(1 << 20, '\0');
  EXPECT_EQ(probes::pread(fd.get(), bytes.data(), bytes.size(), 0), success(1 << 20));
  EXPECT_TRUE(bytes == std::string(1 << 20, 'a'));
}

TEST_P(FileTaskError, BeyondTheFileSizeLimitIsEFBIGWithoutASignal) {
  const UniqueFd fd = open(make_file("0123"), O_RDWR);
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit limit = {10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const FileOutcome across = probes::pwrite(fd.get(), "456789", 6, 7);
  const FileOutcome beyond = probes::pwrite(fd.get(), "x", 1, 10);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(across, success(3));
  EXPECT_EQ(beyond, failure(EFBIG));
}

TEST_P(FileTaskError, APathThatIsNotThereIsENOENT) {
  EXPECT_EQ(read_path(path("no")), failure(ENOENT));
  EXPECT_EQ(read_path(""), failure(ENOENT));
  EXPECT_EQ(write_path(path("no/where")), failure(ENOENT));
}

TEST_P(FileTaskError, APathThroughAFileIsENOTDIR) {
  make_file("0123");
  EXPECT_EQ(read_path(path("file/x")), failure(ENOTDIR));
}

TEST_P(FileTaskError, APathTooLongIsENAMETOOLONG) {
  EXPECT_EQ(read_path(path(std::string(NAME_MAX + 1, 'a'))), failure(ENAMETOOLONG));
}

TEST_P(FileTaskError, ANullByteInAPathIsEINVAL) {
  make_file("0123");
  EXPECT_EQ(read_path(path() + std::string("\0.txt", 5)), failure(EINVAL));
  EXPECT_EQ(write_path(path() + std::string("\0.txt", 5)), failure(EINVAL));
  EXPECT_EQ(text_of(path()), "0123");
}

// Root may open what its mode forbids, but not write to a program that runs (ETXTBSY).
TEST_P(FileTaskError, WhatMayNotBeOpenedSaysWhy) {
  make_file("0123");
  ASSERT_EQ(::chmod(path().c_str(), 0), 0);
  const UniqueFd as_root(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(read_path(path()), as_root.valid() ? success(1) : failure(EACCES));

  const std::string program = path("program");
  std::filesystem::copy_file("/bin/cat", program);
  test_support::Program running(program, {});
  ASSERT_TRUE(running.write("it runs\n"));
  ASSERT_TRUE(running.prints("it runs"));
  EXPECT_EQ(write_path(program), failure(ETXTBSY));
}

TEST_P(FileTaskError, AFifoIsNotWaitedFor) {
  const Ignored pipe_signal(SIGPIPE);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_path(path("fifo")), failure(ESPIPE));
  EXPECT_EQ(write_path(path("fifo")), failure(ENXIO));
  const UniqueFd reader = open(path("fifo"), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(write_path(path("fifo")), failure(ESPIPE));
}

TEST_P(FileTaskError, AUnixSocketsPathIsENXIO) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(read_path(path("socket")), failure(ENXIO));
}

// The holder of a lease gives it up some time after the task has asked for the file.
TEST_P(FileTaskError, ALeaseIsWaitedFor) {
  make_file("0123");
  sigset_t broken;
  ::sigemptyset(&broken);
  ::sigaddset(&broken, SIGIO);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &broken, nullptr), 0);
  const UniqueFd fd = open(path(), O_RDWR);
  ASSERT_EQ(::fcntl(fd.get(), F_SETLEASE, F_WRLCK), 0);
  test_support::Tally ended;
  FileOutcome outcome;
  WFTaskFactory::create_pread_task(path(), buf_, 4, 0, [&](WFFileIOTask* task) {
    outcome = probes::outcome_of(task);
    ended.add();
  })->start();
  const struct timespec patience = {60, 0};
  ASSERT_EQ(::sigtimedwait(&broken, nullptr, &patience), SIGIO);
  EXPECT_EQ(ended.count(), 0U);
  ASSERT_EQ(::fcntl(fd.get(), F_SETLEASE, F_UNLCK), 0);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcome, success(4));
}

// What the kernel does for a thread it cancels when that thread ends.
TEST_P(FileTaskError, TheEndOfTheStartingThreadDoesNotMatter) {
  constexpr size_t kBlock = 1 << 20;
  constexpr int kTasks = 64;
  make_file(std::string(kBlock * kTasks, 'a'));
  const UniqueFd fd = open(path(), O_RDONLY);
  ASSERT_EQ(::fdatasync(fd.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  std::string bytes(kBlock * kTasks, '\0');
  test_support::Tally ended;
  std::thread([&] {
    for (int i = 0; i < kTasks; i++) {
      const auto at = static_cast<size_t>(i) * kBlock;
      WFTaskFactory::create_pread_task(fd.get(), bytes.data() + at, kBlock, static_cast<off_t>(at),
                                       [&](WFFileIOTask* task) {
                                         EXPECT_EQ(probes::outcome_of(task), success(kBlock));
                                         ended.add();
                                       })
          ->start();
    }
  }).join();
  ASSERT_TRUE(ended.wait_for(kTasks));
  EXPECT_TRUE(bytes == std::string(kBlock * kTasks, 'a'));
}
