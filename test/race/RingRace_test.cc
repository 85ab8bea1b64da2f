// Reads that are withdrawn from the ring while what they read comes: pipes, which the ring takes
// if nobody asks whether they suit it. Every byte is read once, or is still there.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "kernel/FileRing.h"
#include "kernel/FileThreads.h"
#include "kernel/HandlerPool.h"
#include "support/RaceKit.h"
#include "support/Tally.h"
#include "support/TestSeed.h"
#include "util/Mutex.h"
#include "util/UniqueFd.h"
#include "workflow/WFTask.h"

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

class RingRound final : public race::Round {
 public:
  RingRound(uint64_t number, workflow::Runtime* runtime, FileRing* ring)
      : Round(number, runtime), random_(test_support::test_seed(), number), ring_(*ring) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_ = UniqueFd(ends[0]);
    in_ = UniqueFd(ends[1]);
    const size_t reads = 1 + random_.below(20);
    writes_ = random_.below(reads + 1);
    for (size_t i = 0; i < reads; i++) {
      reads_.push_back(std::make_unique<Read>(out_.get(), ended_));
    }
    start_thread([this] {
      for (size_t i = 0; i < writes_; i++) {
        EXPECT_EQ(::write(in_.get(), "abcd", kBytes), static_cast<ssize_t>(kBytes));
      }
    });
    start_thread([this, us = random_.below(100)] {
      race::pause_us(us);
      for (const auto& read : reads_) {
        read->withdraw(ring_);
      }
    });
    for (const auto& read : reads_) {
      if (const int error = ring_.post(read.get())) {
        read->end(-error);
      }
    }
  }

  std::string finish() override {
    join_threads();
    if (!ended_.wait_for(reads_.size())) {
      return "ends are missing: " + std::to_string(ended_.count());
    }
    size_t left = writes_ * kBytes;
    for (const auto& read : reads_) {
      EXPECT_TRUE(read->is_left_alone());
      done_ += read->result() > 0;
      left -= read->result() > 0 ? kBytes : 0;
    }
    int found = 0;
    EXPECT_EQ(::ioctl(out_.get(), FIONREAD, &found), 0);
    EXPECT_EQ(static_cast<size_t>(found), left) << "a byte is lost";
    return "";
  }

  size_t outcomes(int state) const override {
    return state == WFT_STATE_SUCCESS     ? done_
           : state == WFT_STATE_SYS_ERROR ? reads_.size() - done_
                                          : 0;
  }

 private:
  TestRandom random_;
  FileRing& ring_;
  UniqueFd out_;
  UniqueFd in_;
  std::vector<std::unique_ptr<Read>> reads_;
  Tally ended_;
  size_t writes_ = 0;
  size_t done_ = 0;
};

// `most`: in the ring at a time.
void race_with(int most) {
  HandlerPool handlers(1);
  ASSERT_TRUE(handlers.start());
  FileThreads threads(handlers, 4);
  const std::unique_ptr<FileRing> ring = FileRing::create(handlers, threads, most);
  // Where the kernel has no io_uring there is nothing to be raced with.
  if (ring) {
    race::expect_each_side_won(
        race::run_rounds(race::rounds(2000), race::begin<RingRound>(ring.get())), 0);
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
