#include "protocol/HttpPieces.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "support/TestSeed.h"

namespace {

using protocol::HttpPieces;

TEST(HttpPieces, ComeOutAsTheyWentIn) {
  test_support::TestRandom random(test_support::test_seed());
  for (int round = 0; round < 20; round++) {
    HttpPieces pieces;
    std::deque<std::string> expected;
    std::string open;
    for (int i = 0; i < 300; i++) {
      const uint64_t most = random.one_in(10) ? 70'000 : random.one_in(2) ? 3000 : 50;
      const uint64_t what = random.below(10);
      if (what < 4) {
        const std::string text(random.below(most), static_cast<char>('a' + i % 26));
        ASSERT_TRUE(pieces.append(text.data(), text.size()));
        open += text;
      } else if (what < 6) {
        pieces.close();
        if (!open.empty()) {
          expected.push_back(std::move(open));
        }
        open.clear();
      } else if (what < 9) {
        const char* data = nullptr;
        size_t size = 0;
        ASSERT_EQ(pieces.take(&data, &size), !expected.empty());
        if (!expected.empty()) {
          ASSERT_TRUE(std::string(data, size) == expected.front());
          expected.pop_front();
        }
      } else if (random.one_in(5)) {
        pieces.drop();
        expected.clear();
      }
      ASSERT_EQ(pieces.empty(), expected.empty());
    }
  }
}

TEST(HttpPieces, ByteByByteTakesNoLongerThanTheBytes) {
  HttpPieces pieces;
  for (size_t i = 0; i < HttpPieces::kWholeChunk; i++) {
    ASSERT_TRUE(pieces.append("x", 1));
  }
  pieces.close();
  const char* data = nullptr;
  size_t size = 0;
  ASSERT_TRUE(pieces.take(&data, &size));
  EXPECT_EQ(std::string(data, size), std::string(HttpPieces::kWholeChunk, 'x'));
}

TEST(HttpPieces, BytesWithoutBoundariesAreCutIntoPieces) {
  HttpPieces pieces;
  const std::string text(100'000, 'x');
  ASSERT_TRUE(pieces.append_whole(text.data(), text.size()));
  std::string taken;
  const char* data = nullptr;
  size_t size = 0;
  while (pieces.take(&data, &size)) {
    EXPECT_LE(size, size_t{32} * 1024);
    taken.append(data, size);
  }
  EXPECT_TRUE(taken == text);
}

}  // namespace
