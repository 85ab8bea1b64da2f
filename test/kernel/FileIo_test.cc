#include "kernel/FileIo.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kernel/FileProbe.h"
#include "kernel/HandlerPool.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

// The parts of FileIo that tasks cannot show.

namespace {

using test_support::FileProbe;
using workflow::FileIo;
using workflow::FileRequest;
using workflow::FileRing;
using workflow::FileThreads;
using workflow::HandlerPool;
using workflow::UniqueFd;
using Kind = FileRequest::Kind;

class FileIoTest : public testing::Test {
 protected:
  FileIoTest() {
    EXPECT_TRUE(handlers_.start());
    std::ofstream(path()) << "0123";
    std::ofstream(path("other")) << "0123";
  }
  ~FileIoTest() override { handlers_.stop(); }

  std::string path(const char* name = "file") const { return dir_.path(name); }
  static FileRequest read_path(const std::string& path) {
    FileRequest request;
    request.path = path.c_str();
    return request;
  }
  static FileRequest of(int fd, Kind kind = Kind::kRead) {
    FileRequest request;
    request.kind = kind;
    request.fd = fd;
    request.vector_count = 1;
    return request;
  }

  HandlerPool handlers_{1};

 private:
  test_support::TempDir dir_;
};

using FileThreadsTest = FileIoTest;
using FileRingTest = FileIoTest;

}  // namespace

TEST_F(FileThreadsTest, StartWithTheFirstOperation) {
  FileThreads threads(handlers_, 4);
  EXPECT_EQ(threads.thread_count(), 0);
  const std::string file = path();
  FileProbe probe(read_path(file));
  EXPECT_EQ(threads.post(&probe, FileThreads::Progress::kNew), 0);
  EXPECT_TRUE(probe.wait());
  EXPECT_EQ(threads.thread_count(), 4);
  threads.refuse();
  threads.stop();
  EXPECT_EQ(threads.thread_count(), 0);
}

TEST_F(FileThreadsTest, DoNotStartAfterTheStop) {
  FileThreads threads(handlers_, 4);
  threads.refuse();
  threads.stop();
  const std::string file = path();
  FileProbe probe(read_path(file));
  EXPECT_EQ(threads.post(&probe, FileThreads::Progress::kNew), ECANCELED);
  EXPECT_EQ(threads.thread_count(), 0);
  EXPECT_EQ(probe.ends(), 0U);
}

TEST_F(FileThreadsTest, WhatWasBegunElsewhereIsCarriedOutAfterTheRefusal) {
  FileThreads threads(handlers_, 4);
  threads.refuse();
  FileProbe probe(of(-1, Kind::kSync));
  EXPECT_EQ(threads.post(&probe, FileThreads::Progress::kBegun), 0);
  threads.stop();
  EXPECT_EQ(probe.result(), -EBADF);
}

// Eight threads wait for a lease, as they would for a file system that does not answer.
TEST_F(FileThreadsTest, MoreComeWhenAllAreBlocked) {
  sigset_t broken;
  ::sigemptyset(&broken);
  ::sigaddset(&broken, SIGIO);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &broken, nullptr), 0);
  const UniqueFd lease(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_WRLCK), 0);

  FileThreads threads(handlers_, 4096);
  const std::string leased = path();
  const std::string other = path("other");
  std::vector<std::unique_ptr<FileProbe>> blocked;
  for (int i = 0; i < 20; i++) {
    blocked.push_back(std::make_unique<FileProbe>(read_path(leased)));
    EXPECT_EQ(threads.post(blocked.back().get(), FileThreads::Progress::kNew), 0);
  }
  FileProbe free(read_path(other));
  EXPECT_EQ(threads.post(&free, FileThreads::Progress::kNew), 0);
  EXPECT_TRUE(free.wait());
  for (const auto& probe : blocked) {
    EXPECT_EQ(probe->ends(), 0U);
  }
  EXPECT_GT(threads.thread_count(), 20);
  EXPECT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  threads.refuse();
  threads.stop();
  for (const auto& probe : blocked) {
    EXPECT_EQ(probe->ends(), 1U);
    EXPECT_FALSE(probe->was_aborted());
  }
}

TEST_F(FileThreadsTest, TheirNumberIsLimited) {
  FileThreads threads(handlers_, 2);
  FileProbe probe(of(-1, Kind::kSync));
  EXPECT_EQ(threads.post(&probe, FileThreads::Progress::kNew), 0);
  EXPECT_TRUE(probe.wait());
  EXPECT_EQ(threads.thread_count(), 2);
  threads.refuse();
  threads.stop();
}

TEST_F(FileRingTest, SuitsFilesWithPlainArguments) {
  const UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  for (const Kind kind : {Kind::kRead, Kind::kWrite, Kind::kReadVector, Kind::kWriteVector,
                          Kind::kSync, Kind::kDataSync}) {
    EXPECT_TRUE(FileRing::suits(of(fd.get(), kind)));
  }
  FileRequest request = of(fd.get());
  request.offset = -1;
  EXPECT_FALSE(FileRing::suits(request));
  request = of(fd.get());
  request.size = 0x7ffff001;
  EXPECT_FALSE(FileRing::suits(request));
  for (const int count : {-1, 0, 1025}) {
    request = of(fd.get(), Kind::kReadVector);
    request.vector_count = count;
    EXPECT_FALSE(FileRing::suits(request));
  }
  const std::string file = path();
  EXPECT_FALSE(FileRing::suits(read_path(file)));
}

TEST_F(FileRingTest, DoesNotSuitWhatIsNoFile) {
  EXPECT_FALSE(FileRing::suits(of(-1)));
  for (const char* name : {"/", "/dev/null", "/proc/version"}) {
    const UniqueFd fd(::open(name, O_RDONLY | O_CLOEXEC));
    EXPECT_FALSE(FileRing::suits(of(fd.get()))) << name;
  }
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_FALSE(FileRing::suits(of(ends[0])));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(FileIoTest, ChoosesNoRingAfterTheRefusal) {
  FileIo files(handlers_, {.max_events = 4, .backend = workflow::FileBackend::kRing});
  files.refuse();
  const UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  FileProbe probe(of(fd.get()));
  EXPECT_EQ(files.submit(&probe), ECANCELED);
  EXPECT_EQ(files.backend(), workflow::FileBackend::kThreads);
  files.stop();
}

TEST_F(FileIoTest, TakesMoreThanItDoesAtATime) {
  FileIo files(handlers_, {.max_events = 2, .backend = workflow::FileBackend::kRing});
  const UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  std::vector<std::unique_ptr<FileProbe>> probes;
  for (int i = 0; i < 1000; i++) {
    probes.push_back(std::make_unique<FileProbe>(of(fd.get(), Kind::kDataSync)));
    EXPECT_EQ(files.submit(probes.back().get()), 0);
  }
  EXPECT_TRUE(probes[500]->wait());
  files.refuse();
  files.stop();
  size_t done = 0;
  for (const auto& probe : probes) {
    ASSERT_EQ(probe->ends(), 1U);
    ASSERT_TRUE(probe->was_aborted() || probe->result() == 0);
    done += !probe->was_aborted();
  }
  EXPECT_GE(done, 500U);
}
