#include "factory/NameRegistry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/Sanitizers.h"
#include "support/TestSeed.h"

using workflow::NamedNode;
using workflow::NameRegistry;

namespace {

struct NamedItem : NamedNode {
  explicit NamedItem(int number = 0) : id(number) {}
  int id;
};

constexpr size_t kAll = SIZE_MAX;

// The ids of what it takes, in order.
std::vector<int> take(NameRegistry& registry, std::string_view name, size_t max = kAll) {
  std::vector<int> ids;
  const size_t count = registry.take(
      name, max, [](NamedNode*) { return true; },
      [&ids](NamedNode* node) { ids.push_back(static_cast<NamedItem*>(node)->id); }, [] {});
  EXPECT_EQ(count, ids.size());
  return ids;
}

}  // namespace

TEST(NameRegistry, TakesInOrderOfCreation) {
  NameRegistry registry;
  NamedItem items[] = {NamedItem(0), NamedItem(1), NamedItem(2), NamedItem(3)};
  for (NamedItem& item : items) {
    registry.link(&item, "name");
  }
  EXPECT_EQ(registry.count("name"), 4u);
  EXPECT_EQ(take(registry, "name"), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(registry.count("name"), 0u);
}

TEST(NameRegistry, TakesTheOldestUpToMax) {
  NameRegistry registry;
  NamedItem items[] = {NamedItem(0), NamedItem(1), NamedItem(2), NamedItem(3)};
  for (NamedItem& item : items) {
    registry.link(&item, "name");
  }
  EXPECT_EQ(take(registry, "name", 0), std::vector<int>{});
  EXPECT_EQ(take(registry, "name", 1), std::vector<int>{0});
  EXPECT_EQ(take(registry, "name", 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(take(registry, "name", 100), std::vector<int>{3});
  EXPECT_EQ(take(registry, "name", 1), std::vector<int>{});
}

TEST(NameRegistry, EntryVanishesWithItsLastNode) {
  NameRegistry registry;
  EXPECT_TRUE(registry.empty());
  NamedItem a, b;
  registry.link(&a, "name");
  registry.link(&b, "name");
  EXPECT_FALSE(registry.empty());
  EXPECT_EQ(registry.names(), (std::vector<std::pair<std::string, size_t>>{{"name", 2}}));
  EXPECT_TRUE(registry.unlink(&a));
  EXPECT_EQ(registry.names(), (std::vector<std::pair<std::string, size_t>>{{"name", 1}}));
  EXPECT_TRUE(registry.unlink(&b));
  EXPECT_TRUE(registry.empty());
  EXPECT_TRUE(registry.names().empty());
}

TEST(NameRegistry, UnlinkTellsWhoCameFirst) {
  NameRegistry registry;
  NamedItem item;
  EXPECT_FALSE(registry.unlink(&item)) << "was never linked";
  registry.link(&item, "name");
  EXPECT_TRUE(registry.unlink(&item));
  EXPECT_FALSE(registry.unlink(&item));
  registry.link(&item, "name");
  EXPECT_EQ(take(registry, "name").size(), 1u);
  EXPECT_FALSE(registry.unlink(&item));
}

TEST(NameRegistry, UnlinkKeepsTheOrderOfTheOthers) {
  NameRegistry registry;
  NamedItem items[] = {NamedItem(0), NamedItem(1), NamedItem(2), NamedItem(3), NamedItem(4)};
  for (NamedItem& item : items) {
    registry.link(&item, "name");
  }
  EXPECT_TRUE(registry.unlink(&items[2]));
  EXPECT_TRUE(registry.unlink(&items[0]));
  EXPECT_TRUE(registry.unlink(&items[4]));
  registry.link(&items[0], "name");  // the newest now
  EXPECT_EQ(take(registry, "name"), (std::vector<int>{1, 3, 0}));
}

TEST(NameRegistry, NamesAreAnyBytes) {
  NameRegistry registry;
  const std::string with_nul("a\0b", 3);
  const std::string names[] = {"", "a", with_nul, std::string(1, '\0'), "\xff\xfe", "a\n"};
  NamedItem items[std::size(names)];
  for (size_t i = 0; i < std::size(names); i++) {
    items[i].id = static_cast<int>(i);
    registry.link(&items[i], names[i]);
  }
  auto listed = registry.names();
  EXPECT_EQ(listed.size(), std::size(names));
  for (size_t i = 0; i < std::size(names); i++) {
    EXPECT_TRUE(std::count(listed.begin(), listed.end(), std::make_pair(names[i], size_t{1})));
    EXPECT_EQ(take(registry, names[i]), std::vector<int>{static_cast<int>(i)});
  }
  EXPECT_TRUE(registry.empty());
}

TEST(NameRegistry, LongNamesDifferInTheirLastByte) {
  NameRegistry registry;
  std::string first(64 * 1024, 'x');
  std::string second = first;
  second.back() = 'y';
  NamedItem a(1), b(2);
  registry.link(&a, first);
  registry.link(&b, second);
  // The registry keeps bytes of its own.
  const std::string asked = second;
  second.assign(second.size(), 'z');
  EXPECT_EQ(registry.count(second), 0u);
  EXPECT_EQ(take(registry, asked), std::vector<int>{2});
  EXPECT_EQ(take(registry, first), std::vector<int>{1});
}

TEST(NameRegistry, TakeSeesOnlyWhatWasLinkedBeforeIt) {
  NameRegistry registry;
  std::vector<NamedItem> older(500);
  std::vector<std::unique_ptr<NamedItem>> newer;
  for (NamedItem& item : older) {
    registry.link(&item, "name");
  }
  const size_t count = registry.take(
      "name", kAll, [](NamedNode*) { return true; }, [](NamedNode*) {},
      [&] {
        newer.push_back(std::make_unique<NamedItem>());
        registry.link(newer.back().get(), "name");
      });
  EXPECT_EQ(count, older.size());
  EXPECT_FALSE(newer.empty());
  EXPECT_EQ(registry.count("name"), newer.size());
  EXPECT_EQ(take(registry, "name").size(), newer.size());
}

TEST(NameRegistry, TakeEndsThoughItsNameVanishesAndReturns) {
  NameRegistry registry;
  std::vector<NamedItem> older(200);
  NamedItem newer(7);
  for (NamedItem& item : older) {
    registry.link(&item, "name");
  }
  bool first = true;
  const size_t count = registry.take(
      "name", kAll, [](NamedNode*) { return true; }, [](NamedNode*) {},
      [&] {
        if (std::exchange(first, false)) {
          for (NamedItem& item : older) {
            registry.unlink(&item);
          }
          registry.link(&newer, "name");
        }
      });
  EXPECT_GT(count, 0u);
  EXPECT_LT(count, older.size());
  EXPECT_EQ(take(registry, "name"), std::vector<int>{7});
}

TEST(NameRegistry, TakeWorksInBoundedChunks) {
  NameRegistry registry;
  std::vector<NamedItem> items(1000);
  for (NamedItem& item : items) {
    registry.link(&item, "name");
  }
  size_t in_chunk = 0;
  size_t largest_chunk = 0;
  registry.take(
      "name", kAll, [](NamedNode*) { return true; }, [&](NamedNode*) { in_chunk++; },
      [&] { largest_chunk = std::max(largest_chunk, std::exchange(in_chunk, 0)); });
  EXPECT_EQ(in_chunk, 0u) << "between() also runs after the last chunk";
  EXPECT_GT(largest_chunk, 0u);
  EXPECT_LE(largest_chunk, 100u);
}

TEST(NameRegistry, TakeStopsAtWhatIsNotWanted) {
  NameRegistry registry;
  NamedItem items[] = {NamedItem(0), NamedItem(1), NamedItem(2), NamedItem(3)};
  for (NamedItem& item : items) {
    registry.link(&item, "name");
  }
  const size_t count = registry.take(
      "name", kAll, [](NamedNode* node) { return static_cast<NamedItem*>(node)->id < 2; },
      [](NamedNode*) {}, [] {});
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(take(registry, "name"), (std::vector<int>{2, 3}));
}

TEST(NameRegistry, TakeOfAnUnknownNameTakesNothing) {
  NameRegistry registry;
  NamedItem item;
  registry.link(&item, "name");
  EXPECT_TRUE(take(registry, "other").empty());
  EXPECT_TRUE(take(registry, "nam").empty());
  EXPECT_TRUE(take(registry, "names").empty());
  EXPECT_EQ(registry.count("name"), 1u);
  registry.unlink(&item);
}

TEST(NameRegistry, UnlinkIfAsksOnlyAboutLinkedNodes) {
  NameRegistry registry;
  NamedItem item;
  int asked = 0;
  const auto answer = [&asked](bool wanted) {
    return [&asked, wanted] {
      asked++;
      return wanted;
    };
  };
  EXPECT_FALSE(registry.unlink_if(&item, answer(true)));
  EXPECT_EQ(asked, 0);
  registry.link(&item, "name");
  EXPECT_FALSE(registry.unlink_if(&item, answer(false)));
  EXPECT_EQ(registry.count("name"), 1u);
  EXPECT_TRUE(registry.unlink_if(&item, answer(true)));
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(registry.unlink_if(&item, answer(true)));
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(registry.empty());
}

TEST(NameRegistry, GrowsToAMillionNames) {
  const size_t count = test_support::kSanitized ? 100'000 : 1'000'000;
  NameRegistry registry;
  std::vector<NamedItem> items(count);
  const auto name_of = [](size_t i) { return "session-" + std::to_string(i); };
  for (size_t i = 0; i < count; i++) {
    items[i].id = static_cast<int>(i);
    registry.link(&items[i], name_of(i));
  }
  EXPECT_EQ(registry.names().size(), count);
  test_support::TestRandom random(test_support::test_seed());
  for (int i = 0; i < 10'000; i++) {
    ASSERT_EQ(registry.count(name_of(random.below(count))), 1u);
  }
  for (size_t i = 0; i < count; i++) {
    if (i % 2 == 0) {
      ASSERT_TRUE(registry.unlink(&items[i]));
    } else {
      ASSERT_EQ(take(registry, name_of(i)), std::vector<int>{static_cast<int>(i)});
    }
  }
  EXPECT_TRUE(registry.empty());
}

TEST(NameRegistry, EachNodeIsTakenByExactlyOneThread) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  constexpr size_t kItems = 32;
  NameRegistry registry;
  std::atomic<size_t> taken{0};
  std::atomic<size_t> unlinked{0};
  const uint64_t seed = test_support::test_seed();
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      test_support::TestRandom random(seed, static_cast<uint64_t>(t));
      std::vector<NamedItem> items(kItems);
      for (int round = 0; round < kRounds; round++) {
        for (NamedItem& item : items) {
          registry.link(&item, random.one_in(2) ? "one" : "two");
        }
        taken += registry.take(
            random.one_in(2) ? "one" : "two", random.below(2 * kItems),
            [](NamedNode*) { return true; }, [](NamedNode*) {}, [] {});
        for (NamedItem& item : items) {
          unlinked += registry.unlink(&item);
        }
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(taken + unlinked, size_t{kThreads} * kRounds * kItems);
  EXPECT_TRUE(registry.empty());
}
