#include "kernel/DnsCache.h"

#include <gtest/gtest.h>
#include <netdb.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "support/TestSeed.h"

using test_support::TestRandom;
using workflow::DnsCache;
using workflow::HostAddress;
using workflow::HostAddresses;

namespace {

HostAddresses some() {
  return std::make_shared<const std::vector<HostAddress>>(
      1, HostAddress::of(in_addr{htonl(INADDR_LOOPBACK)}));
}

DnsCache::Limits small_limits() {
  return {.max_names = 3,
          .ttl_max_ns = 100,
          .ttl_min_ns = 10,
          .negative_ttl_ns = 5,
          .stale_ns = 1000,
          .stale_retry_ns = 30};
}

class DnsCacheTest : public testing::Test {
 protected:
  ~DnsCacheTest() override { cache_.check_invariants(); }
  bool knows(const char* name, int64_t now_ns) { return cache_.find(name, now_ns).has_value(); }

  DnsCache cache_{small_limits()};
};

}  // namespace

TEST_F(DnsCacheTest, AddressesAreFreshUntilTheirTimeIsOver) {
  const HostAddresses addresses = some();
  cache_.store("a", addresses, 20, 1000);
  ASSERT_TRUE(knows("a", 1019));
  EXPECT_EQ(cache_.find("a", 1019)->addresses, addresses);
  EXPECT_EQ(cache_.find("a", 1019)->error, 0);
  EXPECT_FALSE(knows("a", 1020));
  EXPECT_FALSE(knows("b", 1000));
}

TEST_F(DnsCacheTest, TimesToLiveAreBounded) {
  cache_.store("long", some(), workflow::kNever, 0);
  cache_.store("none", some(), 0, 0);
  cache_.store("negative", some(), -1, 0);
  EXPECT_TRUE(knows("long", 99));
  EXPECT_FALSE(knows("long", 100));
  EXPECT_FALSE(knows("none", 0));
  EXPECT_FALSE(knows("negative", 0));
}

TEST_F(DnsCacheTest, WhatIsMissingIsRememberedBriefly) {
  cache_.store_missing("a", EAI_NONAME, 0);
  ASSERT_TRUE(knows("a", 4));
  EXPECT_EQ(cache_.find("a", 4)->error, EAI_NONAME);
  EXPECT_FALSE(knows("a", 5));
  EXPECT_EQ(cache_.take_stale("a", 5), nullptr);
}

TEST_F(DnsCacheTest, WhatIsMissingReplacesAddresses) {
  cache_.store("a", some(), 20, 0);
  cache_.store_missing("a", EAI_NODATA, 20);
  EXPECT_EQ(cache_.take_stale("a", 30), nullptr);
  EXPECT_EQ(cache_.size(), 1U);
}

TEST_F(DnsCacheTest, TheNameNotAskedForTheLongestGoesFirst) {
  for (const char* name : {"a", "b", "c"}) {
    cache_.store(name, some(), 50, 0);
  }
  EXPECT_TRUE(knows("a", 1));
  cache_.store("d", some(), 50, 1);
  EXPECT_EQ(cache_.size(), 3U);
  EXPECT_TRUE(knows("a", 1));
  EXPECT_FALSE(knows("b", 1));
  EXPECT_TRUE(knows("c", 1));
  EXPECT_TRUE(knows("d", 1));
}

TEST_F(DnsCacheTest, StaleAddressesAreGivenOutForALimitedTime) {
  cache_.store("a", some(), 20, 0);
  EXPECT_NE(cache_.take_stale("a", 20), nullptr);
  EXPECT_TRUE(knows("a", 49));
  EXPECT_FALSE(knows("a", 50));
  EXPECT_NE(cache_.take_stale("a", 1019), nullptr);
  EXPECT_FALSE(knows("a", 1020));
  EXPECT_EQ(cache_.take_stale("a", 1020), nullptr);
}

TEST_F(DnsCacheTest, LookingAtStaleAddressesDoesNotMakeThemFresh) {
  const HostAddresses addresses = some();
  cache_.store("a", addresses, 20, 0);
  ASSERT_TRUE(cache_.find_stale("a", 1019));
  EXPECT_EQ(cache_.find_stale("a", 1019)->addresses, addresses);
  EXPECT_EQ(cache_.find_stale("a", 1019)->until_ns, 1020);
  EXPECT_FALSE(knows("a", 1019));
  EXPECT_FALSE(cache_.find_stale("a", 1020));
  EXPECT_FALSE(cache_.find_stale("b", 0));
  cache_.store_missing("a", EAI_NONAME, 1020);
  EXPECT_FALSE(cache_.find_stale("a", 1021));
}

TEST_F(DnsCacheTest, WhatIsStaleInPartEndsWithThatPart) {
  cache_.store("a", some(), 50, 0, 200);
  EXPECT_TRUE(knows("a", 49));
  EXPECT_FALSE(knows("a", 50));
  EXPECT_NE(cache_.take_stale("a", 199), nullptr);
  EXPECT_FALSE(knows("a", 200));
  EXPECT_EQ(cache_.take_stale("a", 200), nullptr);
  cache_.store("b", some(), 50, 0, 30);
  EXPECT_TRUE(knows("b", 29));
  EXPECT_FALSE(knows("b", 30));
}

TEST_F(DnsCacheTest, WhatIsForgottenIsKeptForTheLeastTime) {
  cache_.store("a", some(), 50, 100);
  cache_.forget("a", 103);
  EXPECT_TRUE(knows("a", 109));
  EXPECT_FALSE(knows("a", 110));
  cache_.store("a", some(), 50, 200);
  cache_.forget("a", 220);
  EXPECT_FALSE(knows("a", 220));
  EXPECT_NE(cache_.take_stale("a", 220), nullptr);
  cache_.forget("unknown", 220);
}

TEST_F(DnsCacheTest, ForgettingMakesNothingLastLonger) {
  cache_.store("a", some(), 5, 100);
  cache_.forget("a", 101);
  EXPECT_FALSE(knows("a", 105));
}

TEST_F(DnsCacheTest, ClearingForgetsEverything) {
  cache_.store("a", some(), 50, 0);
  cache_.clear();
  EXPECT_FALSE(knows("a", 0));
  EXPECT_EQ(cache_.take_stale("a", 0), nullptr);
  EXPECT_EQ(cache_.size(), 0U);
}

TEST(DnsCache, ACacheForNoNamesKeepsNone) {
  DnsCache cache({.max_names = 0});
  cache.store("a", some(), 50, 0);
  EXPECT_FALSE(cache.find("a", 0));
  cache.check_invariants();
}

// Against the obvious version: a map, and a list of names in the order of their use.
TEST(DnsCache, BehavesAsTheModelAtRandom) {
  struct Known {
    int64_t fresh_until_ns;
    int64_t stale_until_ns;
    int64_t stored_ns;
    bool missing;
  };
  TestRandom random(test_support::test_seed());
  const DnsCache::Limits limits = small_limits();
  DnsCache cache(limits);
  std::map<std::string, Known> model;
  std::vector<std::string> order;  // the one used last is the last
  const auto use = [&](const std::string& name) {
    std::erase(order, name);
    order.push_back(name);
  };
  int64_t now_ns = 0;
  for (int i = 0; i < 100'000; i++) {
    now_ns += random.between(0, 8);
    const std::string name(1, static_cast<char>('a' + random.below(6)));
    const auto known = model.find(name);
    switch (random.below(5)) {
      case 0: {
        const bool missing = random.one_in(3);
        const int64_t ttl_ns = random.between(0, 150);
        const int64_t stale_limit_ns =
            random.one_in(2) ? workflow::kNever : now_ns + random.between(0, 300);
        const int64_t fresh_ns =
            missing ? now_ns + 5
                    : std::min(now_ns + std::min<int64_t>(ttl_ns, 100), stale_limit_ns);
        if (missing) {
          cache.store_missing(name, EAI_NONAME, now_ns);
        } else {
          cache.store(name, some(), ttl_ns, now_ns, stale_limit_ns);
        }
        if (known == model.end() && model.size() == limits.max_names) {
          model.erase(order.front());
          order.erase(order.begin());
        }
        model[name] = {fresh_ns, missing ? fresh_ns : std::min(fresh_ns + 1000, stale_limit_ns),
                       now_ns, missing};
        use(name);
        break;
      }
      case 1: {
        const bool given = cache.take_stale(name, now_ns) != nullptr;
        ASSERT_EQ(given, known != model.end() && !known->second.missing &&
                             known->second.stale_until_ns > now_ns);
        if (given) {
          Known& entry = known->second;
          entry.fresh_until_ns =
              std::max(entry.fresh_until_ns, std::min(now_ns + 30, entry.stale_until_ns));
        }
        if (known != model.end()) {
          use(name);
        }
        break;
      }
      case 2:
        cache.forget(name, now_ns);
        if (known != model.end()) {
          Known& entry = known->second;
          entry.fresh_until_ns =
              std::min(entry.fresh_until_ns, std::max(entry.stored_ns + 10, now_ns));
        }
        break;
      default:
        ASSERT_EQ(cache.find(name, now_ns).has_value(),
                  known != model.end() && known->second.fresh_until_ns > now_ns);
        if (known != model.end()) {
          use(name);
        }
    }
    ASSERT_EQ(cache.size(), model.size());
    cache.check_invariants();
  }
}
