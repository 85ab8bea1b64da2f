// Operations that are withdrawn at each of the places they come to. Pipes stand for files whose
// answer does not come: the ring takes them if nobody asks whether they suit it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel/FileIo.h"
#include "kernel/FileProbe.h"
#include "kernel/FileRing.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

namespace {

using test_support::Tally;
using workflow::FileIo;
using workflow::FileOperation;
using workflow::FileRequest;
using workflow::FileRing;
using workflow::FileThreads;
using workflow::HandlerPool;
using workflow::RunnableList;
using workflow::UniqueFd;
using Kind = FileRequest::Kind;

// Reads; notes how it ends.
class ReadProbe final : public test_support::FileProbe {
 public:
  explicit ReadProbe(int fd, size_t size = 4) : buffer(size, '.') {
    request_.fd = fd;
    request_.buffer = buffer.data();
    request_.size = size;
  }

  std::string buffer;
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  void write(const char* text) const {
    EXPECT_EQ(::write(in.get(), text, std::strlen(text)), static_cast<ssize_t>(std::strlen(text)));
  }
  UniqueFd out;
  UniqueFd in;
};

class FileWithdrawal : public testing::Test {
 protected:
  FileWithdrawal() { EXPECT_TRUE(handlers_.start()); }
  ~FileWithdrawal() override { handlers_.stop(); }

  HandlerPool handlers_{1};
  FileThreads threads_{handlers_, 4};
};

// Where the kernel has no io_uring there is no such ring, and nothing to be tested of it.
class RingWithdrawal : public FileWithdrawal {
 protected:
  void make(int most_in_flight) { ring_ = FileRing::create(handlers_, threads_, most_in_flight); }
  ~RingWithdrawal() override {
    if (ring_) {
      ring_->refuse();
    }
    threads_.refuse();
    if (ring_) {
      ring_->stop();
    }
    threads_.stop();
  }
  bool withdraw(ReadProbe& probe) {
    probe.end_early();
    return ring_->withdraw(&probe);
  }
  // Reads what is there: when it has ended, the ring has taken up all that came before it.
  void pass_through() {
    pipe_.write("abcd");
    ReadProbe probe(pipe_.out.get());
    EXPECT_EQ(ring_->post(&probe), 0);
    EXPECT_TRUE(probe.wait());
    EXPECT_EQ(probe.result(), 4);
  }

  std::unique_ptr<FileRing> ring_;

 private:
  Pipe pipe_;
};

}  // namespace

TEST_F(RingWithdrawal, CancelsWhatTheKernelWaitsFor) {
  make(8);
  if (!ring_) return;
  const Pipe pipe;
  ReadProbe probe(pipe.out.get());
  EXPECT_EQ(ring_->post(&probe), 0);
  pass_through();
  EXPECT_EQ(probe.ends(), 0U);
  EXPECT_FALSE(withdraw(probe));
  EXPECT_TRUE(probe.wait());
  EXPECT_EQ(probe.result(), -ETIMEDOUT);
  pipe.write("late");
  pass_through();
  EXPECT_EQ(probe.buffer, "....");
}

TEST_F(RingWithdrawal, GivesBackWhatWaitsForItsTurn) {
  make(1);
  if (!ring_) return;
  const Pipe pipe;
  ReadProbe first(pipe.out.get());
  ReadProbe second(pipe.out.get());
  ReadProbe third(pipe.out.get());
  EXPECT_EQ(ring_->post(&first), 0);
  EXPECT_EQ(ring_->post(&second), 0);
  EXPECT_EQ(ring_->post(&third), 0);
  EXPECT_TRUE(withdraw(second));
  EXPECT_TRUE(first.wait_until_begun());
  ::usleep(20'000);  // the ring's thread sleeps by then, mostly; its ring is full
  EXPECT_FALSE(withdraw(first));
  EXPECT_TRUE(first.wait());
  EXPECT_EQ(first.result(), -ETIMEDOUT);
  pipe.write("abcd");
  EXPECT_TRUE(third.wait());
  EXPECT_EQ(third.result(), 4);
  EXPECT_EQ(second.ends(), 0U);
  EXPECT_EQ(second.buffer, "....");
}

TEST_F(RingWithdrawal, DoesNotTakeWhatShallHaveEnded) {
  make(8);
  if (!ring_) return;
  const Pipe pipe;
  pipe.write("abcd");
  ReadProbe probe(pipe.out.get());
  EXPECT_FALSE(withdraw(probe));
  EXPECT_EQ(ring_->post(&probe), ETIMEDOUT);
  EXPECT_EQ(threads_.post(&probe, FileThreads::Progress::kBegun), ETIMEDOUT);
  pass_through();
  EXPECT_EQ(probe.ends(), 0U);
  EXPECT_EQ(probe.buffer, "....");
}

TEST_F(RingWithdrawal, LeavesWhatIsDoneItsResult) {
  make(8);
  if (!ring_) return;
  const Pipe pipe;
  pipe.write("abcd");
  ReadProbe probe(pipe.out.get());
  EXPECT_EQ(ring_->post(&probe), 0);
  EXPECT_TRUE(probe.wait());
  EXPECT_FALSE(withdraw(probe));
  EXPECT_EQ(probe.result(), 4);
  EXPECT_EQ(probe.buffer, "abcd");
}

TEST_F(RingWithdrawal, APartIsNoResultOfWhatShallEnd) {
  make(8);
  if (!ring_) return;
  for (const bool is_whole : {false, true}) {
    const Pipe pipe;
    ReadProbe probe(pipe.out.get());
    EXPECT_EQ(ring_->post(&probe), 0);
    pass_through();
    probe.end_early();
    pipe.write(is_whole ? "abcd" : "ab");  // before the cancellation
    EXPECT_TRUE(probe.wait());
    EXPECT_EQ(probe.result(), is_whole ? 4 : -ETIMEDOUT);
  }
}

TEST_F(RingWithdrawal, CancelsMoreThanItAsksForAtATime) {
  constexpr size_t kMany = 1000;
  make(kMany);
  if (!ring_) return;
  const Pipe pipe;
  std::vector<std::unique_ptr<ReadProbe>> probes;
  for (size_t i = 0; i < kMany; i++) {
    probes.push_back(std::make_unique<ReadProbe>(pipe.out.get()));
    EXPECT_EQ(ring_->post(probes.back().get()), 0);
  }
  for (const auto& probe : probes) {
    if (withdraw(*probe)) {
      RunnableList none;
      probe->finished(-ETIMEDOUT, none);
    }
  }
  for (const auto& probe : probes) {
    EXPECT_TRUE(probe->wait());
    EXPECT_EQ(probe->result(), -ETIMEDOUT);
    EXPECT_EQ(probe->ends(), 1U);
  }
  pass_through();
}

TEST_F(RingWithdrawal, StopsAfterCancels) {
  make(8);
  if (!ring_) return;
  const Pipe pipe;
  std::array<ReadProbe, 8> probes{ReadProbe(pipe.out.get()), ReadProbe(pipe.out.get()),
                                  ReadProbe(pipe.out.get()), ReadProbe(pipe.out.get()),
                                  ReadProbe(pipe.out.get()), ReadProbe(pipe.out.get()),
                                  ReadProbe(pipe.out.get()), ReadProbe(pipe.out.get())};
  for (ReadProbe& probe : probes) {
    EXPECT_EQ(ring_->post(&probe), 0);
  }
  for (ReadProbe& probe : probes) {
    if (withdraw(probe)) {
      RunnableList none;
      probe.finished(-ETIMEDOUT, none);
    }
  }
  ring_->refuse();
  threads_.refuse();
  ring_->stop();
  threads_.stop();
  for (ReadProbe& probe : probes) {
    EXPECT_EQ(probe.ends(), 1U);
    EXPECT_EQ(probe.result(), -ETIMEDOUT);
  }
  ring_.reset();
}

// A deadline that had passed when the stop of the library began.
TEST_F(RingWithdrawal, CancelsWhileItStops) {
  make(8);
  if (!ring_) return;
  const Pipe pipe;
  ReadProbe probe(pipe.out.get());
  EXPECT_EQ(ring_->post(&probe), 0);
  pass_through();
  ring_->refuse();
  std::thread stopper([this] { ring_->stop(); });
  ::usleep(20'000);  // the ring's thread has heard of the stop by then, mostly
  EXPECT_FALSE(withdraw(probe));
  EXPECT_TRUE(probe.wait());
  EXPECT_EQ(probe.result(), -ETIMEDOUT);
  pipe.write("late");  // or the stop would never end
  stopper.join();
  EXPECT_EQ(probe.buffer, "....");
  threads_.refuse();
  threads_.stop();
  ring_.reset();
}

TEST_F(FileWithdrawal, ThreadsGiveBackWhatWaitsForItsTurnAndFinishWhatHasBegun) {
  const test_support::TempDir dir;
  const std::string path = dir.path("file");
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::vector<std::unique_ptr<ReadProbe>> probes;
  FileThreads threads(handlers_, 1);
  // Holds the only thread up.
  class Block final : public FileOperation {
   public:
    FileRequest request() const override {
      begun.add();
      EXPECT_TRUE(go_on.wait_for(1));
      return FileRequest();
    }
    void finished(long own, RunnableList&) override {
      result = own;
      ended.add();
    }
    void aborted(RunnableList&) override { ended.add(); }
    mutable Tally begun;
    Tally go_on;
    Tally ended;
    long result = 0;
  } block;
  EXPECT_EQ(threads.post(&block, FileThreads::Progress::kNew), 0);
  EXPECT_TRUE(block.begun.wait_for(1));
  for (int i = 0; i < 3; i++) {
    probes.push_back(std::make_unique<ReadProbe>(fd.get()));
    EXPECT_EQ(threads.post(probes.back().get(),
                           i == 1 ? FileThreads::Progress::kBegun : FileThreads::Progress::kNew),
              0);
  }
  for (const int i : {1, 2}) {
    probes[static_cast<size_t>(i)]->end_early();
    EXPECT_TRUE(threads.withdraw(probes[static_cast<size_t>(i)].get()));
  }
  EXPECT_FALSE(threads.withdraw(&block));
  block.go_on.add();
  EXPECT_TRUE(probes[0]->wait());
  threads.refuse();
  threads.stop();
  EXPECT_EQ(probes[0]->result(), 0);
  EXPECT_EQ(probes[1]->ends(), 0U);
  EXPECT_EQ(probes[2]->ends(), 0U);
  EXPECT_EQ(block.ended.count(), 1U);
  EXPECT_EQ(block.result, -EBADF) << "the result of its own system call";
}
