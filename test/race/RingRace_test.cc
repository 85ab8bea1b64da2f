// Reads that are withdrawn from the ring while what they read comes: pipes, which the ring takes
// if nobody asks whether they suit it. Every byte is read once, or is still there.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel/FileRing.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "race/Rounds.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Mutex.h"
#include "util/UniqueFd.h"

namespace {

using test_support::Tally;
using test_support::TestRandom;
using workflow::FileOperation;
using workflow::FileRequest;
using workflow::FileRing;
using workflow::FileThreads;
using workflow::HandlerPool;
using workflow::Mutex;
using workflow::MutexLock;
using workflow::RunnableList;
using workflow::UniqueFd;

constexpr size_t kBytes = 4;

// Like a task in a scope, it is withdrawn only before its end.
class Read final : public FileOperation {
 public:
  Read(int fd, Tally& ended) : ended_(ended) {
    request_.fd = fd;
    request_.buffer = buffer_.data();
    request_.size = kBytes;
  }
  ~Read() override = default;

  FileRequest request() const override { return request_; }
  void finished(long result, RunnableList&) override { end(result); }
  void aborted(RunnableList&) override { end(-EIO); }
  void end(long result) {
    {
      MutexLock lock(scope_);
      entered_ = false;
    }
    EXPECT_EQ(ends_++, 0);
    result_ = result;
    EXPECT_TRUE(result == static_cast<long>(kBytes) || result == -ETIMEDOUT) << result;
    EXPECT_EQ(buffer_, result < 0 ? "...." : "abcd");
    buffer_ = "xxxx";
    ended_.add();
  }
  int end_reason() const override { return reason_; }
  void withdraw(FileRing& ring) {
    bool is_ours = false;
    {
      MutexLock lock(scope_);
      if (entered_) {
        entered_ = false;
        reason_ = ETIMEDOUT;
        is_ours = ring.withdraw(this);
      }
    }
    if (is_ours) {
      end(-ETIMEDOUT);
    }
  }
  long result() const { return result_; }
  bool is_left_alone() const { return buffer_ == "xxxx" && ends_ == 1; }

 private:
  FileRequest request_;
  std::string buffer_ = "....";
  Tally& ended_;
  Mutex scope_;
  bool entered_ WF_GUARDED_BY(scope_) = true;
  std::atomic<int> ends_{0};
  std::atomic<int> reason_{0};
  long result_ = 0;
};

class Round {
 public:
  Round(uint64_t seed, uint64_t round, FileRing& ring) : random_(seed, round), ring_(ring) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_ = UniqueFd(ends[0]);
    in_ = UniqueFd(ends[1]);
  }

  void run() {
    const size_t reads = 1 + random_.below(20);
    const size_t writes = random_.below(reads + 1);
    for (size_t i = 0; i < reads; i++) {
      reads_.push_back(std::make_unique<Read>(out_.get(), ended_));
    }
    std::thread writer([this, writes] {
      for (size_t i = 0; i < writes; i++) {
        EXPECT_EQ(::write(in_.get(), "abcd", kBytes), static_cast<ssize_t>(kBytes));
      }
    });
    const auto pause = std::chrono::microseconds(random_.below(100));
    std::thread canceller([this, pause] {
      std::this_thread::sleep_for(pause);  // the others shall have got somewhere
      for (const auto& read : reads_) {
        read->withdraw(ring_);
      }
    });
    for (const auto& read : reads_) {
      if (const int error = ring_.post(read.get())) {
        read->end(-error);
      }
    }
    writer.join();
    canceller.join();
    ASSERT_TRUE(ended_.wait_for(reads));
    size_t left = writes * kBytes;
    for (const auto& read : reads_) {
      EXPECT_TRUE(read->is_left_alone());
      done_ += read->result() > 0;
      left -= read->result() > 0 ? kBytes : 0;
    }
    int found = 0;
    EXPECT_EQ(::ioctl(out_.get(), FIONREAD, &found), 0);
    EXPECT_EQ(static_cast<size_t>(found), left) << "a byte is lost";
  }

  long done() const { return done_; }
  long withdrawn() const { return static_cast<long>(reads_.size()) - done_; }

 private:
  TestRandom random_;
  FileRing& ring_;
  UniqueFd out_;
  UniqueFd in_;
  std::vector<std::unique_ptr<Read>> reads_;
  Tally ended_;
  long done_ = 0;
};

// `most`: in the ring at a time.
void race_with(int most) {
  HandlerPool handlers(1);
  ASSERT_TRUE(handlers.start());
  FileThreads threads(handlers, 4);
  const std::unique_ptr<FileRing> ring = FileRing::create(handlers, threads, most);
  long done = 0;
  long withdrawn = 0;
  const uint64_t seed = test_support::test_seed();
  // Where the kernel has no io_uring there is nothing to be raced with.
  for (uint64_t i = 0; ring && i < race::rounds(2000); i++) {
    Round round(seed, i, *ring);
    round.run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "in round " << i;
    done += round.done();
    withdrawn += round.withdrawn();
  }
  if (ring) {
    std::printf("%ld done, %ld withdrawn\n", done, withdrawn);
    EXPECT_GT(done, 0);
    EXPECT_GT(withdrawn, 0);
    ring->refuse();
  }
  threads.refuse();
  if (ring) {
    ring->stop();
  }
  threads.stop();
  handlers.stop();
}

}  // namespace

TEST(RingRace, EveryReadEndsOnceAndNoByteIsLost) {
  race_with(64);
}

TEST(RingRace, InAFullRingToo) {
  race_with(3);
}
