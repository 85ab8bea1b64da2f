#include "util/ByteQueue.h"

#include <gtest/gtest.h>

#include <string>

#include "support/TestSeed.h"

namespace {

using workflow::ByteQueue;

std::string contents(const ByteQueue& queue) {
  struct iovec vectors[64];
  std::string text;
  const int count = queue.vectors(vectors, 64);
  for (int i = 0; i < count; i++) {
    EXPECT_GT(vectors[i].iov_len, 0U);
    text.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return text;
}

TEST(ByteQueue, HoldsWhatAStringWouldHold) {
  test_support::TestRandom random(test_support::test_seed());
  for (int round = 0; round < 20; round++) {
    ByteQueue queue;
    std::string expected;
    for (int i = 0; i < 200; i++) {
      const uint64_t most = random.one_in(10) ? 100'000 : random.one_in(2) ? 3000 : 50;
      if (expected.size() < 500'000 && random.one_in(2)) {
        const std::string text(random.below(most), static_cast<char>('a' + i % 26));
        ASSERT_TRUE(queue.append(text.data(), text.size()));
        expected += text;
      } else {
        const size_t count = std::min<size_t>(expected.size(), random.below(2 * most));
        queue.consume(count);
        expected.erase(0, count);
      }
      ASSERT_EQ(queue.size(), expected.size());
      ASSERT_EQ(queue.empty(), expected.empty());
      ASSERT_TRUE(contents(queue) == expected);
      if (random.one_in(20)) {
        queue.clear();
        expected.clear();
      } else if (random.one_in(20)) {
        queue = ByteQueue(std::move(queue));
      }
    }
  }
}

TEST(ByteQueue, GivesNoMoreVectorsThanAskedFor) {
  ByteQueue queue;
  const std::string text(100'000, 'x');
  ASSERT_TRUE(queue.append(text.data(), text.size()));
  struct iovec vectors[2];
  ASSERT_EQ(queue.vectors(vectors, 2), 2);
  EXPECT_LE(vectors[0].iov_len, size_t{32} * 1024);
}

}  // namespace
