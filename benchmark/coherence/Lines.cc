#include "coherence/Lines.h"

#include <sys/mman.h>

#include <cstdlib>

namespace coherence {

namespace {

constexpr size_t kFirstSize = size_t{1} << 16;

uint64_t mix(uint64_t value) {
  value *= 0x9e3779b97f4a7c15U;
  return value ^ (value >> 29);
}

// The kernel's pages are zero, which is a free record of both tables. A line's owner is set when it
// is taken into use.
template <class Record>
Record* allocate(size_t size) {
  void* const memory = ::mmap(nullptr, size * sizeof(Record), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<Record*>(memory);
}

bool is_free(const Line& line) {
  return line.number == 0;
}

bool is_free(const Site& site) {
  return site.pc == 0;
}

uint64_t hash(const Line& line) {
  return mix(line.number);
}

uint64_t hash(const Site& site) {
  return mix(site.line ^ mix(site.pc ^ mix(site.caller)));
}

template <class Record>
void grow(Table<Record>& table) {
  Record* const old = table.begin();
  Record* const old_end = table.end();
  const size_t old_size = table.size();
  table.reset(allocate<Record>(old_size * 2), old_size * 2);
  for (Record* record = old; record != old_end; ++record) {
    if (is_free(*record)) continue;
    table.find(
        hash(*record), [](const Record&) { return false; },
        [](const Record& other) { return is_free(other); }) = *record;
    table.add_used();
  }
  ::munmap(old, old_size * sizeof(Record));
}

}  // namespace

Lines::Lines() {
  lines_.reset(allocate<Line>(kFirstSize), kFirstSize);
  sites_.reset(allocate<Site>(kFirstSize), kFirstSize);
}

Line& Lines::line(uintptr_t number) {
  if (lines_.full()) grow(lines_);
  Line& line = lines_.find(
      mix(number), [number](const Line& other) { return other.number == number; },
      [](const Line& other) { return is_free(other); });
  if (is_free(line)) {
    line.number = number;
    line.owner = -1;
    lines_.add_used();
  }
  return line;
}

void Lines::count_site(uintptr_t number, uintptr_t pc, uintptr_t caller) {
  if (sites_.full()) grow(sites_);
  Site key;
  key.line = number;
  key.pc = pc;
  key.caller = caller;
  Site& site = sites_.find(
      hash(key),
      [&](const Site& other) {
        return other.line == number && other.pc == pc && other.caller == caller;
      },
      [](const Site& other) { return is_free(other); });
  if (is_free(site)) {
    site = key;
    sites_.add_used();
  }
  site.transfers++;
}

Lines::Outcome Lines::access(int thread, uintptr_t number, Access kind, uintptr_t pc,
                             uintptr_t caller) {
  Line& found = line(number);
  const auto word = static_cast<size_t>(thread) / 64;
  const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(thread) % 64);
  bool alone = (found.copies[word] & ~bit) == 0;
  for (size_t i = 0; i < kMaxThreads / 64; ++i)
    alone = alone && (i == word || found.copies[i] == 0);
  const bool has_copy = (found.copies[word] & bit) != 0;

  bool transfer = false;
  if (kind == Access::kRead) {
    transfer = !has_copy && found.owner >= 0;
    found.copies[word] |= bit;
  } else {
    transfer = !alone;
    for (uint64_t& copies : found.copies)
      copies = 0;
    found.copies[word] = bit;
    found.owner = thread;
  }

  Counts& counts = counts_[thread];
  counts.accesses++;
  if (kind == Access::kReadModifyWrite) counts.read_modify_writes++;
  if (transfer) {
    counts.transfers++;
    found.transfers++;
    count_site(number, pc, caller);
  }
  return {&found, transfer};
}

void Lines::clear_counts() {
  for (Counts& counts : counts_)
    counts = {};
  for (Line& line : lines_)
    line.transfers = 0;
  for (Site& site : sites_)
    site.transfers = 0;
}

}  // namespace coherence
