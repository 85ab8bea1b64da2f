#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace workflow {

// Something that a journal has a record of: a timer, an ended one, an answer, a session.
struct JournalEntry {
  enum class Kind : uint8_t { kTimer, kEnded, kAnswer, kSession };

  explicit JournalEntry(Kind kind_of_entry) : kind(kind_of_entry) {}
  // A copy is in no journal.
  JournalEntry(const JournalEntry& other) : kind(other.kind) {}
  JournalEntry& operator=(const JournalEntry&) = delete;

  bool is_recorded() const { return row != 0; }

  JournalEntry* older = nullptr;
  JournalEntry* newer = nullptr;
  int64_t row = 0;     // of the journal, where its last complete record is; 0: there is none
  uint32_t bytes = 0;  // of that record
  const Kind kind;
};

// What is appended to the journal of a store in memory, and which of it still counts.
//
// A journal is a sequence of numbered rows, each of which has some records. Rows are appended at
// its end and dropped at its beginning, so that it is a queue. Whoever reads all rows in their
// order knows the store. An entry has one complete record that counts, the last one. There are
// other records, which matter only to readers of an earlier record: what has changed of an entry,
// and that it is gone. Such a record may be dropped with its row, because all rows before it have
// been dropped by then.
//
// Not thread-safe. Pure: it knows no file. Its user owns the entries, and calls forget() before it
// frees one.
//
// Invariants:
// 1. The entries that are recorded are in a list, ordered by their rows.
// 2. live_bytes() is the sum of the bytes of their records.
// 3. A row is dropped only if no entry has its record there.
// 4. Rows have numbers without gaps, from first_row() on.
class MemoryJournal {
 public:
  struct Row {
    int64_t number = 0;
    std::string bytes;
  };

  // A row ends with the record that makes it so large. So dropping one never takes long.
  static constexpr size_t kRowBytes = 32768;

  MemoryJournal() { clear_list(); }
  MemoryJournal(const MemoryJournal&) = delete;
  MemoryJournal& operator=(const MemoryJournal&) = delete;

  // A record of that kind is written between these two calls, to the end of what begin() returns.
  // `complete` is the entry that can be read from it, or null.
  std::string& begin(char kind);
  void end(JournalEntry* complete);
  // The entry is gone, or its record no longer counts.
  void forget(JournalEntry& entry);

  // What was written since it was last appended to the file.
  const std::vector<Row>& written() const { return written_; }
  size_t written_bytes() const;
  // Rows are dropped from the beginning up to this one, exclusively.
  int64_t first_row() const { return first_row_; }
  // All of it is in the file now.
  void appended();

  // Whether rows at the beginning should be dropped: most of the journal does not count.
  bool is_worth_cleaning() const { return bytes_ > 2 * live_bytes_ + kIdleBytes; }
  // Whether the first row is one that was appended, and not one that is being written. That stays.
  bool has_appended_rows() const {
    return first_row_ < (written_.empty() ? last_row_ + 1 : written_.front().number);
  }
  // Drops the first row if it was appended and nothing in it counts, and returns its size.
  // Otherwise returns 0. Then, if has_appended_rows(), there is an oldest() entry, which has to be
  // written again.
  size_t drop_first();
  JournalEntry& oldest() { return *list_.newer; }

  // For a row that was read from the file, each after the one before it; its entries follow.
  // Returns false if its number does not follow that of the row before it.
  bool read(int64_t row, size_t bytes);
  // A record of that row is the last complete one of the entry. Sizes of records are without the
  // byte that says their kind.
  void place(JournalEntry& entry, size_t bytes);

  int64_t bytes() const { return bytes_; }
  int64_t live_bytes() const { return live_bytes_; }

 private:
  // As long as there is not more than this that does not count, nothing is dropped.
  static constexpr int64_t kIdleBytes = int64_t{1} << 20;

  void clear_list() { list_.older = list_.newer = &list_; }

  JournalEntry list_{JournalEntry::Kind::kTimer};  // before the oldest and after the newest one
  int64_t first_row_ = 1;
  int64_t last_row_ = 0;
  std::deque<uint32_t> sizes_;  // of the rows from first_row_ to last_row_
  int64_t bytes_ = 0;
  int64_t live_bytes_ = 0;
  std::vector<Row> written_;
  size_t record_ = 0;  // where the record that is being written begins
};

}  // namespace workflow
