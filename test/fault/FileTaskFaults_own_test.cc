#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "fault/FileFaults.h"
#include "support/CpuTime.h"
#include "support/Descriptors.h"
#include "support/FileProbes.h"

// File tasks while system calls are interrupted and resources run out.

namespace {

using probes::failure;
using probes::FileOutcome;
using probes::run_file_task;
using probes::success;
using probes::UniqueFd;
using test_support::Tally;
using workflow::FileBackend;
using workflow::Runtime;

class FileTaskFaults : public probes::OnEachBackend {
 protected:
  static constexpr size_t kBlock = 1000;

  FileTaskFaults() {
    for (size_t i = 0; i < kBlock * 100; i++) {
      content_ += static_cast<char>('a' + i % 26 + i / kBlock % 3);
    }
    fd_ = open(make_file(content_), O_RDWR);
  }

  // Reads, writes and syncs in several ways, thousands of times at once; all must be right.
  void work() {
    constexpr size_t kTasks = 3000;
    std::vector<std::string> buffers(kTasks, std::string(kBlock, '\0'));
    std::vector<struct iovec> vectors(kTasks);
    Tally ended;
    for (size_t i = 0; i < kTasks; i++) {
      vectors[i] = {buffers[i].data(), kBlock};
      start_one(i, vectors[i], ended);
    }
    ASSERT_TRUE(ended.wait_for(kTasks));
    for (size_t i = 0; i < kTasks; i++) {
      ASSERT_TRUE(buffers[i] == block(offset_of(i))) << i;
    }
    EXPECT_TRUE(probes::text_of(path()) == content_);
  }

  // The i-th task of work(), after which the block of i is in its buffer.
  void start_one(size_t i, const struct iovec& vector, Tally& ended) {
    const auto expect = [&ended](const FileOutcome& expected) {
      return [&ended, expected](auto* task) {
        EXPECT_EQ(probes::outcome_of(task), expected);
        ended.add();
      };
    };
    const auto done = expect(success(kBlock));
    const off_t at = offset_of(i);
    const int fd = fd_.get();
    char* const buffer = static_cast<char*>(vector.iov_base);
    if (i % 7 > 3) {
      block(at).copy(buffer, kBlock);
    }
    switch (i % 7) {
      case 0:
      case 1:
        return WFTaskFactory::create_pread_task(fd, buffer, kBlock, at, done)->start();
      case 2:
        return WFTaskFactory::create_preadv_task(fd, &vector, 1, at, done)->start();
      case 3:
        return WFTaskFactory::create_pread_task(path(), buffer, kBlock, at, done)->start();
      case 4:
        return WFTaskFactory::create_pwrite_task(fd, buffer, kBlock, at, done)->start();
      case 5:
        return WFTaskFactory::create_pwritev_task(path(), &vector, 1, at, done)->start();
      default:
        if (i % 100 == 6) {
          return WFTaskFactory::create_fdatasync_task(fd, expect(success(0)))->start();
        }
        return WFTaskFactory::create_fsync_task(-1, expect(failure(EBADF)))->start();
    }
  }

  static off_t offset_of(size_t i) { return static_cast<off_t>(i % 100 * kBlock); }
  std::string block(off_t at) const { return content_.substr(static_cast<size_t>(at), kBlock); }
  bool on_ring() const { return Runtime::current().files().backend() == FileBackend::kRing; }

  std::string content_;
  UniqueFd fd_;
};
INSTANTIATE_ON_EACH_BACKEND(FileTaskFaults);

// What makes a ring impossible.
struct NoRing {
  const char* name;
  int error;
  unsigned missing_features;
  int missing_opcode;
};

void PrintTo(const NoRing& why, std::ostream* out) {
  *out << why.name;
}

class FileTaskWithoutRing : public testing::TestWithParam<NoRing> {};

INSTANTIATE_TEST_SUITE_P(Because, FileTaskWithoutRing,
                         testing::Values(NoRing{"TheKernelHasNone", ENOSYS, 0, -1},
                                         NoRing{"ItIsForbidden", EPERM, 0, -1},
                                         NoRing{"NoMemoryMayBeLocked", ENOMEM, 0, -1},
                                         NoRing{"DescriptorsHaveRunOut", EMFILE, 0, -1},
                                         NoRing{"TheKernelIsTooOld", 0, IORING_FEAT_NATIVE_WORKERS,
                                                -1},
                                         NoRing{"AnOperationIsMissing", 0, 0, IORING_OP_WRITE}),
                         [](const auto& each) { return each.param.name; });

}  // namespace

TEST_P(FileTaskWithoutRing, ThreadsDoIt) {
  fault::ring_error = GetParam().error;
  fault::missing_features = GetParam().missing_features;
  fault::missing_opcode = GetParam().missing_opcode;
  Runtime::configure({.files = {.backend = FileBackend::kRing}});
  EXPECT_EQ(Runtime::current().files().backend(), FileBackend::kThreads);
  test_support::TempDir dir;
  probes::write_file(dir.path("file"), "0123");
  const UniqueFd fd(::open(dir.path("file").c_str(), O_RDONLY | O_CLOEXEC));
  char buf[4];
  EXPECT_EQ(probes::pread(fd.get(), buf, 4, 0), success(4));
}

TEST(FileTaskWithoutThreads, TheRingIsNotUsedEither) {
  Runtime::configure({.files = {.backend = FileBackend::kRing}});
  Runtime& runtime = Runtime::current();
  fault::threads_left = 0;
  char buf[4];
  EXPECT_EQ(probes::pread(0, buf, 4, 0), failure(EAGAIN));
  EXPECT_EQ(probes::fsync(-1), failure(EAGAIN));
  EXPECT_EQ(runtime.files().backend(), FileBackend::kThreads);
}

TEST(FileTaskWithoutThreads, TheyAreTriedAgainWithTheNextTask) {
  Runtime::configure({.files = {.backend = FileBackend::kThreads}});
  Runtime::current();
  fault::threads_left = 0;
  EXPECT_EQ(probes::fsync(-1), failure(EAGAIN));
  fault::threads_left = -1;
  EXPECT_EQ(probes::fsync(-1), failure(EBADF));
}

TEST(FileTaskWithoutThreads, OneThreadIsEnough) {
  Runtime::configure({.files = {.backend = FileBackend::kThreads}});
  Runtime::current();
  fault::threads_left = 1;
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(probes::fsync(-1), failure(EBADF));
  }
}

TEST(FileTaskWithoutThreads, TheRingDoesWhatItCan) {
  Runtime::configure({.files = {.backend = FileBackend::kRing}});
  Runtime::current();
  fault::threads_left = 1;  // the ring's, if there is one
  test_support::TempDir dir;
  probes::write_file(dir.path("file"), "0123");
  const UniqueFd fd(::open(dir.path("file").c_str(), O_RDONLY | O_CLOEXEC));
  char buf[4];
  EXPECT_EQ(probes::pread(fd.get(), buf, 4, 0), success(4));
  const bool ring = Runtime::current().files().backend() == FileBackend::kRing;
  EXPECT_EQ(probes::fsync(-1), failure(ring ? EAGAIN : EBADF));
  // The ring's answer is to be asked again by a thread that cannot be had.
  EXPECT_EQ(probes::pwrite(fd.get(), buf, 4, 0), failure(ring ? EAGAIN : EBADF));
}

TEST_P(FileTaskFaults, DescriptorsThatHaveRunOutAreTheTasksError) {
  probes::fsync(fd_.get());
  char buf[4];
  {
    const test_support::NoDescriptors exhausted;
    EXPECT_EQ(run_file_task(WFTaskFactory::create_pread_task(path(), buf, 4, 0, nullptr)),
              failure(EMFILE));
    EXPECT_EQ(probes::pread(fd_.get(), buf, 4, 0), success(4));
  }
  EXPECT_EQ(run_file_task(WFTaskFactory::create_pread_task(path(), buf, 4, 0, nullptr)),
            success(4));
}

TEST_P(FileTaskFaults, WithoutDescriptorsForARingThreadsDoIt) {
  Runtime::current();
  const test_support::NoDescriptors exhausted;
  char buf[4];
  EXPECT_EQ(probes::pread(fd_.get(), buf, 4, 0), success(4));
  EXPECT_FALSE(on_ring());
}

TEST_P(FileTaskFaults, InterruptedCallsAreMadeAgain) {
  fault::interrupt_one_in = 2;
  work();
  fault::interrupt_one_in = 0;
  EXPECT_GT(fault::interrupts, 100);
}

TEST_P(FileTaskFaults, SubmissionsThatFailAreTriedAgain) {
  for (const int error : {EAGAIN, EBUSY, EINTR, ENOMEM}) {
    fault::submit_error = error;
    fault::submit_fails_one_in = 2;
    const int before = fault::submit_failures;
    work();
    fault::submit_fails_one_in = 0;
    EXPECT_EQ(fault::submit_failures > before, on_ring()) << std::strerror(error);
  }
}

TEST_P(FileTaskFaults, WhatTheRingCannotDoThreadsDo) {
  for (const int error : {EAGAIN, EINTR, ECANCELED, EINVAL}) {
    fault::spoil_error = error;
    fault::spoil_one_in = 3;
    const int before = fault::spoilt;
    work();
    fault::spoil_one_in = 0;
    EXPECT_EQ(fault::spoilt > before, on_ring()) << std::strerror(error);
  }
}

TEST_P(FileTaskFaults, AnErrorOfTheDeviceIsReportedAndNothingDoneAgain) {
  fault::spoil_error = EIO;
  fault::spoil_one_in = 1;
  const FileOutcome expected = on_ring() ? failure(EIO) : success(0);
  EXPECT_EQ(probes::fsync(fd_.get()), expected);
  fault::spoil_one_in = 0;
}

// The kernel takes nothing for a while.
TEST_P(FileTaskFaults, RefusedSubmissionsDoNotSpin) {
  probes::fsync(fd_.get());
  fault::submit_error = EAGAIN;
  fault::submit_fails_one_in = 1;
  Tally ended;
  char buf[4];
  WFTaskFactory::create_pread_task(fd_.get(), buf, 4, 0, [&](auto*) { ended.add(); })->start();
  const int64_t before_us = test_support::cpu_us();
  if (on_ring()) {
    EXPECT_FALSE(
        ended.wait_for(1, std::chrono::milliseconds(500)));  // the claim is about real time
  } else {
    EXPECT_TRUE(ended.wait_for(1));
  }
  EXPECT_LE(test_support::cpu_us() - before_us, 200'000);
  fault::submit_fails_one_in = 0;
  EXPECT_TRUE(ended.wait_for(1));
}
