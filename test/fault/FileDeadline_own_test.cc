// Deadlines over reads of a device that makes them wait: /dev/null, with a pipe in its place.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "factory/DeadlineProbes.h"
#include "support/RealFunction.h"
#include "support/Tally.h"
#include "util/UniqueFd.h"

using test_support::Tally;
using workflow::UniqueFd;

namespace {

std::atomic<int> device{-1};
std::atomic<int> source{-1};
// Poll tells that the device is ready whether it is or not.
std::atomic<bool> seems_ready{false};
// Whether a read stops before it waits, until it is let go.
std::atomic<bool> stops_before{false};
Tally before;
Tally let_go;
Tally polls;
Tally reads;

}  // namespace

extern "C" {

int poll(struct pollfd* fds, nfds_t count, int timeout) {
  static const auto call = test_support::real_function<int(struct pollfd*, nfds_t, int)>("poll");
  if (count != 2 || fds[1].fd < 0 || fds[1].fd != device) {
    return call(fds, count, timeout);
  }
  polls.add();
  if (seems_ready) {
    fds[1].revents = POLLIN;
    return 1;
  }
  fds[1].fd = source;
  const int result = call(fds, count, timeout);
  fds[1].fd = device;
  return result;
}

ssize_t preadv(int fd, const struct iovec* vector, int count, off_t offset) {
  static const auto call = test_support::real_function<decltype(::preadv)>("preadv");
  if (fd >= 0 && fd == device && stops_before) {
    before.add();
    EXPECT_TRUE(let_go.wait_for(1));
  }
  return call(fd, vector, count, offset);
}

ssize_t pread(int fd, void* buffer, size_t size, off_t offset) {
  static const auto call = test_support::real_function<decltype(::pread)>("pread");
  if (fd < 0 || fd != device) {
    return call(fd, buffer, size, offset);
  }
  reads.add();
  return ::read(source, buffer, size);
}

}  // extern "C"

namespace {

class FileDeadline : public probes::DeadlineTest {
 protected:
  FileDeadline() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_ = UniqueFd(ends[0]);
    in_ = UniqueFd(ends[1]);
    null_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    source = out_.get();
    device = null_.get();
  }
  ~FileDeadline() override { device = -1; }

  WFFileIOTask* read(const std::string& name) {
    return WFTaskFactory::create_pread_task(null_.get(), buffer_, 4, 0, noting<WFFileIOTask>(name));
  }
  void set_not_to_wait() const {
    EXPECT_EQ(::fcntl(null_.get(), F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(::fcntl(out_.get(), F_SETFL, O_NONBLOCK), 0);
  }
  void feed() const { EXPECT_EQ(::write(in_.get(), "abcd", 4), 4); }
  std::string buffer() const { return std::string(buffer_, 4); }

 private:
  UniqueFd out_;
  UniqueFd in_;
  UniqueFd null_;
  char buffer_[4] = {'.', '.', '.', '.'};
};

}  // namespace

TEST_F(FileDeadline, EndsAReadThatWaitsForADevice) {
  start(limited(read("r"), 10));
  EXPECT_TRUE(polls.wait_for(1));
  EXPECT_EQ(text(), "");
  pass(10);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r!D!");
  feed();
  EXPECT_EQ(reads.count(), 0U);
  EXPECT_EQ(buffer(), "....");
}

TEST_F(FileDeadline, EndsAReadThatIsAboutToWaitForADevice) {
  stops_before = true;
  start(limited(read("r"), 10));
  EXPECT_TRUE(before.wait_for(1));
  pass(10);
  EXPECT_EQ(text(), "");
  let_go.add();
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r!D!");
  EXPECT_EQ(polls.count(), 0U);
  EXPECT_EQ(buffer(), "....");
}

TEST_F(FileDeadline, AReadGoesOnWhenTheDeviceIsReady) {
  start(limited(read("r"), 10));
  EXPECT_TRUE(polls.wait_for(1));
  feed();
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r+D+");
  EXPECT_EQ(buffer(), "abcd");
}

TEST_F(FileDeadline, NobodyWaitsForADeviceWhoseUserDoesNotWantIt) {
  set_not_to_wait();
  WFFileIOTask* const task = read("r");
  task->set_callback([](WFFileIOTask* done) { EXPECT_EQ(done->get_error(), EAGAIN); });
  start(limited(task, 10));
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "D+");
  EXPECT_EQ(polls.count(), 0U);
}

TEST_F(FileDeadline, NobodyWaitsForWhatTheDeviceRefuses) {
  const char text_to_write[] = "abcd";
  WFFileIOTask* const write = WFTaskFactory::create_pwrite_task(
      device, text_to_write, 4, 0, [](WFFileIOTask* done) { EXPECT_EQ(done->get_error(), EBADF); });
  start(limited(write, 10));
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "D+");
  EXPECT_EQ(polls.count(), 0U);
}

// As much as without a deadline: one that never waits does not end halfway when others want to run.
TEST_F(FileDeadline, ReadsAllThatADeviceHas) {
  constexpr size_t kMuch = size_t{32} << 20;
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  std::string buffer(kMuch, '.');
  size_t short_reads = 0;
  WFDeadlineTask* const limit = limited(WFTaskFactory::create_empty_task(), 10);
  for (int i = 0; i < 40; i++) {
    *limit->sub_series() << WFTaskFactory::create_pread_task(
        zeros.get(), buffer.data(), kMuch, 0,
        [&](WFFileIOTask* done) { short_reads += done->get_retval() != static_cast<long>(kMuch); });
  }
  start(limit);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "D+");
  EXPECT_EQ(short_reads, 0U);
}

TEST_F(FileDeadline, WithoutADeadlineNobodyPolls) {
  feed();
  start(read("r"));
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r+");
  EXPECT_EQ(polls.count(), 0U);
}

TEST_F(FileDeadline, ACallThatHasTheBufferEndsWhenTheKernelReturns) {
  seems_ready = true;
  WFDeadlineTask* const limit = limited(read("r"), 10);
  *limit->sub_series() << read("next");
  start(limit);
  EXPECT_TRUE(reads.wait_for(1));
  pass(10);
  EXPECT_EQ(text(), "");
  feed();
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "r+next!D!") << "it has its own result, and the next one does not begin";
  EXPECT_EQ(buffer(), "abcd");
}
