#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "support/Descriptors.h"
#include "support/FileProbes.h"
#include "workflow/WFFacilities.h"

// What file tasks do, on both backends. That they read, write and fail as the system calls do is in
// FileTaskDifference_test.cc.

namespace {

using namespace probes;

class FileTask : public probes::OnEachBackend {};
INSTANTIATE_ON_EACH_BACKEND(FileTask);

struct iovec part(void* at, size_t size) {
  return {at, size};
}

}  // namespace

TEST_P(FileTask, NothingIsReadOrWrittenByACountOfZero) {
  const UniqueFd fd = open(make_file("0123456789"), O_RDWR);
  EXPECT_EQ(probes::pread(fd.get(), nullptr, 0, 0), success(0));
  EXPECT_EQ(probes::pwrite(fd.get(), nullptr, 0, 0), success(0));
  EXPECT_EQ(text_of(path()), "0123456789");
}

TEST_P(FileTask, ReadingDoesNotMoveTheDescriptorsOffset) {
  const UniqueFd fd = open(make_file("0123456789"), O_RDWR);
  ASSERT_EQ(::lseek(fd.get(), 5, SEEK_SET), 5);
  char buf[4];
  probes::pread(fd.get(), buf, 4, 2);
  probes::pwrite(fd.get(), "x", 1, 9);
  EXPECT_EQ(::lseek(fd.get(), 0, SEEK_CUR), 5);
}

TEST_P(FileTask, PreadByPathReadsAndClosesTheFile) {
  make_file("0123456789");
  char buf[4] = {};
  EXPECT_EQ(run_file_task(WFTaskFactory::create_pread_task(path(), buf, 4, 3, nullptr)),
            success(4));
  EXPECT_EQ(std::string(buf, 4), "3456");
}

TEST_P(FileTask, PreadvByPathFillsItsParts) {
  make_file("0123456789");
  char first[2];
  char second[3];
  const struct iovec iov[] = {part(first, 2), part(nullptr, 0), part(second, 3)};
  EXPECT_EQ(run_file_task(WFTaskFactory::create_preadv_task(path(), iov, 3, 6, nullptr)),
            success(4));
  EXPECT_EQ(std::string(first, 2) + std::string(second, 2), "6789");
}

TEST_P(FileTask, PwriteByPathCreatesTheFileFor0644) {
  const mode_t mask = ::umask(0);
  EXPECT_EQ(run_file_task(WFTaskFactory::create_pwrite_task(path(), "abc", 3, 0, nullptr)),
            success(3));
  ::umask(mask);
  EXPECT_EQ(text_of(path()), "abc");
  struct stat status = {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
}

TEST_P(FileTask, PwriteByPathDoesNotTruncate) {
  make_file("0123456789");
  EXPECT_EQ(run_file_task(WFTaskFactory::create_pwrite_task(path(), "abc", 3, 1, nullptr)),
            success(3));
  EXPECT_EQ(text_of(path()), "0abc456789");
}

TEST_P(FileTask, PwritevByPathWritesItsParts) {
  char first[] = "ab";
  char second[] = "cde";
  const struct iovec iov[] = {part(first, 2), part(second, 3)};
  EXPECT_EQ(run_file_task(WFTaskFactory::create_pwritev_task(path(), iov, 2, 0, nullptr)),
            success(5));
  EXPECT_EQ(text_of(path()), "abcde");
}

TEST_P(FileTask, PathTasksLeaveNoDescriptorOpen) {
  make_file("0123456789");
  char buf[4];
  run_file_task(
      WFTaskFactory::create_pread_task(path(), buf, 4, 0, nullptr));  // the threads have started
  const size_t before = test_support::descriptor_count();
  for (int i = 0; i < 100; i++) {
    run_file_task(WFTaskFactory::create_pread_task(path(), buf, 4, 0, nullptr));
    run_file_task(WFTaskFactory::create_pwrite_task(path("other"), "x", 1, 0, nullptr));
    run_file_task(WFTaskFactory::create_pwrite_task(path("no/where"), "x", 1, 0, nullptr));
  }
  EXPECT_EQ(test_support::descriptor_count(), before);
}

TEST_P(FileTask, ArgumentsMayBeChangedUntilTheStart) {
  const UniqueFd fd = open(make_file("0123456789"), O_RDONLY);
  char buf[4] = {};
  WFFileIOTask* task = WFTaskFactory::create_pread_task(-1, nullptr, 1, 0, nullptr);
  *task->get_args() = {fd.get(), buf, 2, 8};
  EXPECT_EQ(run_file_task(task), success(2));
  EXPECT_EQ(std::string(buf, 2), "89");
}

TEST_P(FileTask, TheCallbackSeesItsArgumentsAndUserData) {
  const UniqueFd fd = open(make_file("0123456789"), O_RDONLY);
  char buf[4];
  int data = 0;
  test_support::Tally ended;
  WFFileIOTask* task = WFTaskFactory::create_pread_task(fd.get(), buf, 4, 5, [&](auto* self) {
    const WFFileIOTask* read_only = self;
    EXPECT_EQ(read_only->get_args()->fd, fd.get());
    EXPECT_EQ(read_only->get_args()->buf, buf);
    EXPECT_EQ(read_only->get_args()->count, 4U);
    EXPECT_EQ(read_only->get_args()->offset, 5);
    EXPECT_EQ(self->user_data, &data);
    ended.add();
  });
  EXPECT_EQ(task->user_data, nullptr);
  EXPECT_EQ(task->get_state(), WFT_STATE_UNDEFINED);
  EXPECT_EQ(task->get_retval(), -1);
  task->user_data = &data;
  task->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_P(FileTask, RunsInTheOrderOfItsSeries) {
  const UniqueFd fd = open(path(), O_RDWR | O_CREAT);
  char buf[4] = {};
  std::string order;
  test_support::Tally ended;
  SeriesWork* series = Workflow::create_series_work(
      WFTaskFactory::create_pwrite_task(fd.get(), "abcd", 4, 0, [&](auto*) { order += 'w'; }),
      [&](const SeriesWork*) { ended.add(); });
  *series << WFTaskFactory::create_fsync_task(fd.get(), [&](auto*) { order += 's'; })
          << WFTaskFactory::create_pread_task(fd.get(), buf, 4, 0, [&](auto* task) {
               order += 'r';
               series_of(task)->push_back(
                   WFTaskFactory::create_fdatasync_task(fd.get(), [&](auto*) { order += 'd'; }));
             });
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(order, "wsrd");
  EXPECT_EQ(std::string(buf, 4), "abcd");
}

TEST_P(FileTask, DismissedTasksDoNothing) {
  const UniqueFd fd = open(make_file("0123"), O_RDWR);
  const auto fail = [](auto*) { ADD_FAILURE() << "a callback ran"; };
  const struct iovec iov = {nullptr, 0};
  WFTaskFactory::create_pread_task(fd.get(), nullptr, 1, 0, fail)->dismiss();
  WFTaskFactory::create_pwrite_task(fd.get(), "x", 1, 0, fail)->dismiss();
  WFTaskFactory::create_preadv_task(fd.get(), &iov, 1, 0, fail)->dismiss();
  WFTaskFactory::create_pwritev_task(fd.get(), &iov, 1, 0, fail)->dismiss();
  WFTaskFactory::create_fsync_task(fd.get(), fail)->dismiss();
  WFTaskFactory::create_fdatasync_task(fd.get(), fail)->dismiss();
  WFTaskFactory::create_pread_task(path(), nullptr, 1, 0, fail)->dismiss();
  WFTaskFactory::create_pwrite_task(path("new"), "x", 1, 0, fail)->dismiss();
  WFTaskFactory::create_preadv_task(path(), &iov, 1, 0, fail)->dismiss();
  WFTaskFactory::create_pwritev_task(path("new"), &iov, 1, 0, fail)->dismiss();
  SeriesWork* series = Workflow::create_series_work(
      WFTaskFactory::create_pwrite_task(path("new"), "x", 1, 0, fail), nullptr);
  series->push_back(WFTaskFactory::create_fsync_task(fd.get(), fail));
  series->dismiss();
  EXPECT_EQ(text_of(path()), "0123");
  EXPECT_NE(::access(path("new").c_str(), F_OK), 0);
}

TEST_P(FileTask, FuturesHoldWhatTheSystemCallReturns) {
  const UniqueFd fd = open(path(), O_RDWR | O_CREAT);
  char buf[8] = {};
  char text[] = "cd";
  const struct iovec out = {text, 2};
  const struct iovec in = {buf + 4, 2};
  EXPECT_EQ(WFFacilities::async_pwrite(fd.get(), "ab", 2, 0).get(), 2);
  EXPECT_EQ(WFFacilities::async_pwritev(fd.get(), &out, 1, 2).get(), 2);
  EXPECT_EQ(WFFacilities::async_pread(fd.get(), buf, 8, 0).get(), 4);
  EXPECT_EQ(WFFacilities::async_preadv(fd.get(), &in, 1, 1).get(), 2);
  EXPECT_STREQ(buf, "abcdbc");
  EXPECT_EQ(WFFacilities::async_fsync(fd.get()).get(), 0);
  EXPECT_EQ(WFFacilities::async_fdatasync(fd.get()).get(), 0);
  EXPECT_EQ(WFFacilities::async_pread(-1, buf, 8, 0).get(), -1);
  EXPECT_EQ(WFFacilities::async_fsync(-1).get(), -1);
}

TEST_P(FileTask, TheBackendIsTheOneAskedForWhereTheKernelOffersIt) {
  struct io_uring ring;
  const bool offered = ::io_uring_queue_init(4, &ring, 0) == 0;
  if (offered) {
    ::io_uring_queue_exit(&ring);
  }
  const auto expected = offered ? GetParam() : workflow::FileBackend::kThreads;
  EXPECT_EQ(workflow::Runtime::current().files().backend(), expected);
}
