#include "util/SipHash.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_set>

using workflow::sip_hash;
using workflow::SipKey;

// The vectors are those of another implementation of SipHash-1-3, with a key of zeros.
TEST(SipHash, AgreesWithAnotherImplementation) {
  const SipKey zeros;
  EXPECT_EQ(sip_hash(zeros, "a"), 0x407448d2b89b1813U);
  EXPECT_EQ(sip_hash(zeros, "abcdefg"), 0x6db12aae9070f506U);
  EXPECT_EQ(sip_hash(zeros, "abcdefgh"), 0x3f7b849c0b8e35eaU);
  EXPECT_EQ(sip_hash(zeros, "abcdefghijklmnopqrstuvwxyz"), 0x323ccd2fd30709dfU);
}

TEST(SipHash, DependsOnTheKey) {
  const SipKey one = SipKey::random();
  const SipKey other = SipKey::random();
  EXPECT_NE(sip_hash(one, "name"), sip_hash(other, "name"));
  EXPECT_EQ(sip_hash(one, "name"), sip_hash(one, "name"));
}

TEST(SipHash, DependsOnEveryByteAndOnTheLength) {
  const SipKey key = SipKey::random();
  std::unordered_set<uint64_t> seen;
  const std::string bytes(64, '\0');
  for (size_t size = 0; size <= bytes.size(); size++) {
    EXPECT_TRUE(seen.insert(sip_hash(key, {bytes.data(), size})).second) << size;
  }
  for (size_t i = 0; i < bytes.size(); i++) {
    std::string changed = bytes;
    changed[i] = 'x';
    EXPECT_TRUE(seen.insert(sip_hash(key, changed)).second) << i;
  }
}
