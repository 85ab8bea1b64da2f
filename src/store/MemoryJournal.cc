#include "store/MemoryJournal.h"

namespace workflow {

std::string& MemoryJournal::begin(char kind) {
  if (written_.empty() || written_.back().bytes.size() >= kRowBytes) {
    written_.emplace_back().number = ++last_row_;
    sizes_.push_back(0);
  }
  std::string& row = written_.back().bytes;
  row.push_back(kind);
  record_ = row.size();
  return row;
}

void MemoryJournal::end(JournalEntry* complete) {
  const size_t size = written_.back().bytes.size() - record_;
  sizes_.back() += static_cast<uint32_t>(size) + 1;
  bytes_ += static_cast<int64_t>(size) + 1;
  if (complete != nullptr) {
    place(*complete, size);
  }
}

void MemoryJournal::place(JournalEntry& entry, size_t bytes) {
  forget(entry);
  entry.row = last_row_;
  entry.bytes = static_cast<uint32_t>(bytes);
  entry.older = list_.older;
  entry.newer = &list_;
  entry.older->newer = &entry;
  list_.older = &entry;
  live_bytes_ += entry.bytes;
}

void MemoryJournal::forget(JournalEntry& entry) {
  if (!entry.is_recorded()) return;
  entry.older->newer = entry.newer;
  entry.newer->older = entry.older;
  live_bytes_ -= entry.bytes;
  entry.row = 0;
}

size_t MemoryJournal::written_bytes() const {
  size_t bytes = 0;
  for (const Row& row : written_) {
    bytes += row.bytes.size();
  }
  return bytes;
}

void MemoryJournal::appended() {
  written_.clear();
}

size_t MemoryJournal::drop_first() {
  if (!has_appended_rows() || (list_.newer != &list_ && list_.newer->row == first_row_)) return 0;
  const size_t size = sizes_.front();
  sizes_.pop_front();
  bytes_ -= static_cast<int64_t>(size);
  ++first_row_;
  return size;
}

bool MemoryJournal::read(int64_t row, size_t bytes) {
  if (sizes_.empty() && row >= first_row_) {
    first_row_ = row;
  } else if (row != last_row_ + 1) {
    return false;
  }
  last_row_ = row;
  sizes_.push_back(static_cast<uint32_t>(bytes));
  bytes_ += static_cast<int64_t>(bytes);
  return true;
}

}  // namespace workflow
