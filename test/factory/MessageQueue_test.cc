#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

// Messages: addresses of these.
int many_messages[10'000];

// Starts one that takes a message to `slot`.
void take_message(WFMessageQueue& queue, void*& slot, Tally& ended) {
  queue
      .get(WFTaskFactory::create_counter_task(0, [&ended](WFCounterTask*) { ended.add(); }), &slot)
      ->start();
}

// The newest first.
class Stack final : public WFMessageQueue {
 protected:
  void* pop() override {
    void* newest = all_.back();
    all_.pop_back();
    return newest;
  }
  void push(void* msg) override { all_.push_back(msg); }

 private:
  std::vector<void*> all_;
};

}  // namespace

TEST(MessageQueue, TheOldestMessageIsTakenFirst) {
  WFMessageQueue queue;
  for (size_t i = 0; i < 3; i++) {
    queue.post(&many_messages[i]);
  }
  for (size_t i = 0; i < 3; i++) {
    void* got = nullptr;
    Tally ended;
    take_message(queue, got, ended);
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(got, &many_messages[i]);
  }
}

TEST(MessageQueue, IsUnbounded) {
  WFMessageQueue queue;
  for (int& message : many_messages) {
    queue.post(&message);
  }
  Tally ended;
  std::deque<void*> got(std::size(many_messages));
  for (void*& slot : got) {
    take_message(queue, slot, ended);
  }
  ASSERT_TRUE(ended.wait_for(got.size()));
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_EQ(got[i], &many_messages[i]);
  }
}

TEST(MessageQueue, EmptyItsTakersWaitFirstComeFirstServed) {
  WFMessageQueue queue;
  Tally ended;
  void* got[3] = {};
  for (void*& slot : got) {
    take_message(queue, slot, ended);
  }
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  for (size_t i = 0; i < 3; i++) {
    queue.post(&many_messages[i]);
    ASSERT_TRUE(ended.wait_for(i + 1));
    EXPECT_EQ(got[i], &many_messages[i]);
  }
}

TEST(MessageQueue, NullIsAMessage) {
  WFMessageQueue queue;
  queue.post(nullptr);
  void* got = &many_messages[0];
  Tally ended;
  take_message(queue, got, ended);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(got, nullptr);
  take_message(queue, got, ended);
  EXPECT_FALSE(ended.wait_for(2, kQuiet));
  queue.post(nullptr);
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(MessageQueue, ADerivedClassChoosesTheOrder) {
  Stack queue;
  queue.post(&many_messages[1]);
  queue.post(&many_messages[2]);
  Tally ended;
  void* got[2] = {};
  take_message(queue, got[0], ended);
  take_message(queue, got[1], ended);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(got[0], &many_messages[2]);
  EXPECT_EQ(got[1], &many_messages[1]);
}

TEST(MessageQueue, AMessageForACancelledSeriesIsPostedAgain) {
  WFMessageQueue queue;
  Log log;
  Tally ended;
  SeriesWork* series =
      new CountedSeries(queue.get(new LogTask(&log, "!")), probes::counting(ended));
  series->start();
  series->cancel();
  queue.post(&many_messages[5]);
  ASSERT_TRUE(ended.wait_for(1));
  void* got = nullptr;
  take_message(queue, got, ended);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(got, &many_messages[5]);
  EXPECT_EQ(log.text(), "");
}

TEST(MessageQueue, PostsOfAnyThreadAreTakenOnce) {
  constexpr size_t kThreads = 4;
  WFMessageQueue queue;
  Tally ended;
  std::deque<void*> got(std::size(many_messages));
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < kThreads; thread++) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < std::size(many_messages); i += kThreads) {
        if (i % 3) {
          queue.post(&many_messages[i]);
          take_message(queue, got[i], ended);
        } else {
          take_message(queue, got[i], ended);
          // From a callback.
          WFTaskFactory::create_counter_task(0, [&queue, i](WFCounterTask*) {
            EXPECT_TRUE(probes::on_framework_thread());
            queue.post(&many_messages[i]);
          })->start();
        }
      }
    });
  }
  threads.clear();  // joins them
  ASSERT_TRUE(ended.wait_for(got.size()));
  std::sort(got.begin(), got.end());
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_EQ(got[i], &many_messages[i]);
  }
}
