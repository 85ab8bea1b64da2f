#include "store/MemoryJournal.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/TestSeed.h"

namespace {

using test_support::TestRandom;
using workflow::JournalEntry;
using workflow::MemoryJournal;

struct Entry : JournalEntry {
  Entry() : JournalEntry(Kind::kTimer) {}
};

void write(MemoryJournal& journal, Entry* entry, size_t size) {
  journal.begin('T').append(size, 'x');
  journal.end(entry);
}

TEST(MemoryJournal, ARowEndsWhenItIsLarge) {
  MemoryJournal journal;
  std::deque<Entry> entries(100);
  for (Entry& entry : entries) {
    write(journal, &entry, 1000);
  }
  ASSERT_EQ(journal.written().size(), 4U);
  EXPECT_GE(journal.written()[0].bytes.size(), MemoryJournal::kRowBytes);
  EXPECT_LE(journal.written()[0].bytes.size(), MemoryJournal::kRowBytes + 1001);
  EXPECT_EQ(entries.front().row, 1);
  EXPECT_EQ(entries.back().row, 4);
  EXPECT_EQ(journal.live_bytes(), 100'000);
  EXPECT_EQ(journal.bytes(), 100'100);
}

TEST(MemoryJournal, ARowIsDroppedOnlyWhenNothingInItCounts) {
  MemoryJournal journal;
  Entry first;
  Entry second;
  write(journal, &first, 10);
  journal.appended();
  write(journal, &second, 10);
  journal.appended();
  EXPECT_EQ(journal.drop_first(), 0U);
  EXPECT_EQ(&journal.oldest(), &first);
  write(journal, &first, 10);
  EXPECT_EQ(journal.drop_first(), 11U);
  EXPECT_EQ(journal.first_row(), 2);
  EXPECT_EQ(journal.drop_first(), 0U);
  journal.forget(second);
  EXPECT_EQ(journal.drop_first(), 11U);
  // What is just being written stays.
  journal.forget(first);
  EXPECT_EQ(journal.drop_first(), 0U);
  journal.appended();
  EXPECT_EQ(journal.drop_first(), 11U);
  EXPECT_EQ(journal.drop_first(), 0U);
  EXPECT_EQ(journal.bytes(), 0);
  EXPECT_EQ(journal.live_bytes(), 0);
}

TEST(MemoryJournal, RowsThatAreReadFollowEachOther) {
  MemoryJournal journal;
  EXPECT_TRUE(journal.read(7, 100));
  EXPECT_TRUE(journal.read(8, 100));
  EXPECT_FALSE(journal.read(10, 100));
  EXPECT_FALSE(journal.read(8, 100));
  Entry entry;
  write(journal, &entry, 10);
  EXPECT_EQ(entry.row, 9);
}

// Cleans as a store does, and never has much more than what counts.
TEST(MemoryJournal, CleaningKeepsUpWithWhatIsWritten) {
  TestRandom random(test_support::test_seed());
  MemoryJournal journal;
  std::deque<Entry> entries(3000);
  for (int step = 0; step < 20'000; step++) {
    const int64_t before = journal.bytes();
    Entry& entry = entries[random.below(entries.size())];
    if (random.one_in(3)) {
      journal.forget(entry);
      write(journal, nullptr, 5);
    } else {
      write(journal, &entry, 1 + random.below(2000));
    }
    int64_t left = 1000 + 2 * (journal.bytes() - before);
    while (left > 0 && journal.is_worth_cleaning()) {
      if (const size_t dropped = journal.drop_first()) {
        left -= static_cast<int64_t>(dropped);
      } else {
        left -= journal.oldest().bytes;
        write(journal, static_cast<Entry*>(&journal.oldest()), journal.oldest().bytes);
      }
    }
    journal.appended();
    ASSERT_LT(journal.bytes(), 3 * journal.live_bytes() + 2'000'000);
  }
  int64_t live = 0;
  for (const Entry& entry : entries) {
    live += entry.is_recorded() ? entry.bytes : 0;
    EXPECT_TRUE(!entry.is_recorded() || entry.row >= journal.first_row());
  }
  EXPECT_EQ(journal.live_bytes(), live);
}

}  // namespace
