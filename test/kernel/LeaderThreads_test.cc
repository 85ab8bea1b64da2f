#include "kernel/LeaderThreads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "kernel/BlockingScope.h"
#include "kernel/HandlerPool.h"
#include "kernel/StallWatch.h"
#include "kernel/ThreadContext.h"
#include "support/Eventually.h"

// The threads of a poller that only delivers items, and a watch that never looks.

namespace {

using test_support::eventually;
using workflow::BlockingScope;
using workflow::HandlerPool;
using workflow::LeaderThreads;
using workflow::Runnable;
using workflow::RunnableList;
using workflow::StallWatch;
using workflow::ThreadContext;

class LeaderThreadsTest : public testing::Test {
 protected:
  LeaderThreadsTest() {
    EXPECT_TRUE(handlers_.start());
    EXPECT_TRUE(threads_.start());
  }
  ~LeaderThreadsTest() override {
    ended_ = true;
    threads_.join_all(false);
    handlers_.stop();
  }

  // The next item that a leader itself runs calls `body`, once.
  void run_on_leader(const std::function<void()>& body) {
    body_ = body;
    wanted_ = true;
  }

  static size_t leader_threads() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(entry.path() / "comm"), name);
      count += name == "wf-poller";
    }
    return count;
  }

  std::atomic<int> leaders_{0};
  // Seen by callbacks that outlast the test's body.
  std::atomic<bool> runs_{false};
  std::atomic<bool> waited_{false};

 private:
  class Item final : public Runnable {
   public:
    explicit Item(LeaderThreadsTest& test) : test_(test) {}
    void run_queued() override {
      if (ThreadContext::current().running_for && test_.wanted_.exchange(false)) {
        const std::function<void()> body = test_.body_;
        body();
      }
      delete this;
    }

   private:
    LeaderThreadsTest& test_;
  };

  void lead() {
    leaders_++;
    RunnableList round;
    do {
      for (int i = 0; i < 4; i++) {  // as many as a leader runs itself
        round.push_back(new Item(*this));
      }
      std::this_thread::yield();
    } while (threads_.deliver(round, ended_) && !ended_);
  }

  std::atomic<bool> ended_{false};
  std::atomic<bool> wanted_{false};
  std::function<void()> body_;  // set before wanted_
  HandlerPool handlers_{2};
  StallWatch watch_;
  LeaderThreads threads_{handlers_, &watch_, [this] { lead(); }};
};

}  // namespace

TEST_F(LeaderThreadsTest, ACallbackThatWaitsAgainAndAgainIsReplacedOnce) {
  run_on_leader([this] {
    for (int i = 0; i < 100; i++) {
      const BlockingScope wait;
    }
    EXPECT_TRUE(eventually([this] { return leaders_ == 2; }));
    run_on_leader([this] {
      runs_ = true;
      eventually([this] { return waited_.load(); });
    });
    EXPECT_TRUE(eventually([this] { return runs_.load(); }));
    { const BlockingScope wait; }  // the successor is in a callback, too
    EXPECT_EQ(leader_threads(), 2u);
    waited_ = true;
  });
  EXPECT_TRUE(eventually([this] { return waited_.load(); }));
  EXPECT_EQ(leaders_, 2);
}
