#include "factory/NameTable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/TestSeed.h"

using workflow::NameEntry;
using workflow::NameTable;

namespace {

// Frees what is still in its table.
class Table : public NameTable {
 public:
  ~Table() {
    for (size_t i = 0; i < bucket_count(); i++) {
      while (NameEntry* entry = first_in(i)) {
        remove(entry);
        free(entry);
      }
    }
  }
  void erase(NameEntry* entry) {
    remove(entry);
    free(entry);
  }
  // What going through all buckets shows.
  std::multiset<std::string> names() const {
    std::multiset<std::string> names;
    for (size_t i = 0; i < bucket_count(); i++) {
      for (const NameEntry* entry = first_in(i); entry; entry = entry->chain) {
        EXPECT_EQ(first_at(entry->tag), first_in(i));
        names.emplace(entry->name());
      }
    }
    return names;
  }
};

constexpr uint32_t kHigh = 0xf0000000;

}  // namespace

TEST(NameTable, FindsNothingWhileItIsEmpty) {
  Table table;
  table.prefetch(7);
  EXPECT_EQ(table.find("name", 7), nullptr);
  EXPECT_EQ(table.size(), 0u);
  table.erase(table.add("name", 7));
  EXPECT_EQ(table.find("name", 7), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(NameTable, KeepsNamesOfAnyBytesAndLength) {
  Table table;
  const std::vector<std::string> names = {
      "", "a", "abcd", "abcde", std::string(70'000, 'x'), std::string("a\0b", 3)};
  for (const std::string& name : names) {
    EXPECT_EQ(table.add(name, 1)->name(), name);
  }
  for (const std::string& name : names) {
    ASSERT_NE(table.find(name, 1), nullptr);
    EXPECT_EQ(table.find(name, 1)->name(), name);
  }
}

// Each case of a bucket's mark: alone, several, alone again, another one alone.
TEST(NameTable, EntriesOfABucketAreFoundWhoeverIsAloneInIt) {
  const std::vector<uint32_t> tags = {0, kHigh, kHigh, 0x10000000};
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    Table table;
    std::vector<NameEntry*> entries;
    for (size_t i = 0; i < tags.size(); i++) {
      entries.push_back(table.add("name " + std::to_string(i), tags[i]));
    }
    for (size_t gone = 0; gone < order.size(); gone++) {
      for (size_t i = 0; i < order.size(); i++) {
        const size_t item = order[i];
        EXPECT_EQ(table.find("name " + std::to_string(item), tags[item]),
                  i < gone ? nullptr : entries[item]);
      }
      EXPECT_EQ(table.find("other", 0), nullptr);
      EXPECT_EQ(table.find("other", 0x20000000), nullptr);
      table.erase(entries[order[gone]]);
    }
    EXPECT_EQ(table.size(), 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(NameTable, HoldsWhatAMapHolds) {
  const uint64_t seed = test_support::test_seed();
  test_support::TestRandom random(seed);
  Table table;
  std::map<std::string, NameEntry*> map;
  // Few tags, so that names share tags, marks and buckets.
  const auto tag_of = [](const std::string& name) {
    const uint32_t hash = static_cast<uint32_t>(std::hash<std::string>()(name) % 97);
    return hash % 8 | hash / 8 << 28;
  };
  for (int step = 0; step < 200'000; step++) {
    const std::string name = std::to_string(random.below(400));
    const uint32_t tag = tag_of(name);
    const auto found = map.find(name);
    ASSERT_EQ(table.find(name, tag), found == map.end() ? nullptr : found->second);
    if (found == map.end()) {
      map.emplace(name, table.add(name, tag));
    } else if (random.one_in(2)) {
      table.erase(found->second);
      map.erase(found);
    }
    ASSERT_EQ(table.size(), map.size());
  }
  std::multiset<std::string> names;
  for (const auto& [name, entry] : map) {
    names.insert(name);
  }
  EXPECT_EQ(table.names(), names);
}

TEST(NameTable, GrowsWithWhatItHolds) {
  Table table;
  for (uint32_t i = 0; i < 10'000; i++) {
    table.add(std::to_string(i), i * 2654435761u);
    ASSERT_LE(table.size() * 2, table.bucket_count());
  }
  for (uint32_t i = 0; i < 10'000; i++) {
    ASSERT_NE(table.find(std::to_string(i), i * 2654435761u), nullptr);
  }
  EXPECT_EQ(table.names().size(), 10'000u);
}

// However much it grows between two steps of a visit, from one bucket to thousands at once.
TEST(NameTable, AVisitInStepsMeetsWhatStaysExactlyOnce) {
  test_support::TestRandom random(test_support::test_seed());
  for (int round = 0; round < 30; round++) {
    Table table;
    const size_t staying = random.below(5'000);
    for (size_t i = 0; i < staying; i++) {
      table.add("stays " + std::to_string(i), static_cast<uint32_t>(random.below(1LL << 32)));
    }
    std::multiset<std::string> seen;
    NameTable::Position position = 0;
    size_t more = random.one_in(2) ? random.below(20) : random.below(20'000);
    for (bool goes_on = true; goes_on;) {
      for (const NameEntry* entry = table.first_at(position); entry; entry = entry->chain) {
        if (entry->name().substr(0, 5) == "stays") {
          seen.emplace(entry->name());
        }
      }
      goes_on = table.advance(&position);
      for (; more > 0 && !random.one_in(100); more--) {
        table.add("new " + std::to_string(more), static_cast<uint32_t>(random.below(1LL << 32)));
      }
    }
    ASSERT_EQ(seen.size(), staying);
    ASSERT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), staying);
  }
}

// What keeps a caller waiting is what moves: the entries of the buckets that are split.
TEST(NameTable, GrowingSplitsAFewBucketsAtATime) {
  Table table;
  for (uint32_t i = 0; i < 30'000; i++) {
    const size_t before = table.bucket_count();
    table.add(std::to_string(i), i * 2654435761u);
    ASSERT_LE(table.bucket_count() - before, 16u);
    ASSERT_GE(table.bucket_count(), 2 * table.size());
  }
  EXPECT_EQ(table.names().size(), 30'000u);
}
