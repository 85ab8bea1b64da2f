#include "client/SessionQueue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace workflow {
namespace {

class SessionQueueTest : public testing::Test {
 protected:
  SessionPlace* add(bool fresh = false) {
    places_.push_back(std::make_unique<SessionPlace>(nullptr, fresh));
    queue_.push_back(places_.back().get());
    return places_.back().get();
  }

  SessionQueue queue_;
  std::vector<std::unique_ptr<SessionPlace>> places_;
};

TEST_F(SessionQueueTest, IsFirstInFirstOut) {
  SessionPlace* const a = add();
  SessionPlace* const b = add();
  EXPECT_EQ(queue_.first_unpromised(), a);
  EXPECT_EQ(queue_.next_for_new(), a);
  EXPECT_TRUE(queue_.erase(a));
  EXPECT_EQ(queue_.first_unpromised(), b);
  EXPECT_TRUE(queue_.erase(b));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.first_unpromised(), nullptr);
  EXPECT_EQ(queue_.next_for_new(), nullptr);
}

TEST_F(SessionQueueTest, AnyMayLeaveOnce) {
  SessionPlace* const a = add();
  SessionPlace* const b = add();
  SessionPlace* const c = add();
  EXPECT_TRUE(queue_.erase(b));
  EXPECT_FALSE(queue_.erase(b));
  EXPECT_TRUE(queue_.erase(a));
  EXPECT_EQ(queue_.next_for_new(), c);
  EXPECT_TRUE(queue_.erase(c));
  EXPECT_TRUE(queue_.empty());
  SessionPlace* const d = add();
  EXPECT_EQ(queue_.next_for_new(), d);
}

TEST_F(SessionQueueTest, WhoGotNothingIsTheFirstAgain) {
  SessionPlace again(nullptr, false);
  queue_.push_front(&again);
  EXPECT_EQ(queue_.first_unpromised(), &again);
  SessionPlace* const b = add();
  queue_.erase(&again);
  queue_.push_front(&again);
  EXPECT_EQ(queue_.first_unpromised(), &again);
  EXPECT_TRUE(queue_.erase(&again));
  EXPECT_EQ(queue_.first_unpromised(), b);
  SessionPlace* const c = add(true);
  queue_.promise(c);
  SessionPlace third(nullptr, false);
  queue_.push_front(&third);
  EXPECT_EQ(queue_.next_for_new(), c);
  EXPECT_EQ(queue_.first_unpromised(), &third);
  queue_.erase(c);
  EXPECT_EQ(queue_.next_for_new(), &third);
  queue_.erase(b);
  EXPECT_TRUE(queue_.erase(&third));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(SessionQueueTest, NewConnectionsAreForThoseTheyArePromisedTo) {
  SessionPlace* const a = add();
  SessionPlace* const b = add(true);
  SessionPlace* const c = add();
  queue_.promise(b);
  EXPECT_EQ(queue_.promised(), 1U);
  EXPECT_EQ(queue_.next_for_new(), b);
  EXPECT_EQ(queue_.first_unpromised(), a);
  queue_.erase(a);
  EXPECT_EQ(queue_.first_unpromised(), c);
  queue_.erase(b);
  EXPECT_EQ(queue_.promised(), 0U);
  EXPECT_EQ(queue_.next_for_new(), c);
}

}  // namespace
}  // namespace workflow
