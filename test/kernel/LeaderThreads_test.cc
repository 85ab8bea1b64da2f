#include "kernel/LeaderThreads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "Lingering.h"
#include "kernel/BlockingScope.h"
#include "kernel/HandlerPool.h"
#include "kernel/StallWatch.h"
#include "kernel/ThreadContext.h"
#include "support/Background.h"
#include "support/Eventually.h"
#include "support/Tally.h"

// The threads of a poller that only delivers items, and a watch that never looks.

namespace {

using test_support::Background;
using test_support::eventually;
using test_support::lingering;
using test_support::Tally;
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

  // As the watch does.
  void replace_leader() { threads_.replace_leader(); }

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
  Tally begun_;
  Tally announced_;
  Tally ending_;
  Tally released_;

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

// Other leaders are replaced, and announce waits, while one that was replaced still ends.
TEST_F(LeaderThreadsTest, AThreadThatTakesLongToEndHoldsNobodyUp) {
  run_on_leader([this] {
    lingering.ending = &ending_;
    lingering.released = &released_;
    { const BlockingScope wait; }
    EXPECT_TRUE(eventually([this] { return leaders_ == 2; }));
  });
  EXPECT_TRUE(ending_.wait_for(1));
  run_on_leader([this] {
    begun_.add();
    EXPECT_TRUE(eventually([this] { return leaders_ >= 3; }));  // does not announce it
  });
  EXPECT_TRUE(begun_.wait_for(1));
  const Background watch([this] { replace_leader(); });
  EXPECT_TRUE(watch.done());
  EXPECT_TRUE(eventually([this] { return leaders_ == 3; }));
  run_on_leader([this] {
    { const BlockingScope wait; }
    announced_.add();
    EXPECT_TRUE(eventually([this] { return leaders_ == 4; }));
  });
  EXPECT_TRUE(announced_.wait_for(1));
  EXPECT_TRUE(eventually([this] { return leaders_ == 4; }));
  released_.add();
}
