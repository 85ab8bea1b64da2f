#pragma once

#include <cstddef>
#include <cstdint>

namespace coherence {

inline constexpr size_t kLineBytes = 64;
inline constexpr int kMaxThreads = 512;

enum class Access : uint8_t { kRead, kWrite, kReadModifyWrite };

// What was counted between two calls of Lines::clear_counts().
struct Counts {
  uint64_t accesses = 0;  // of all kinds; one for each line that an access touches
  uint64_t read_modify_writes = 0;
  uint64_t transfers = 0;

  Counts& operator+=(const Counts& other) {
    accesses += other.accesses;
    read_modify_writes += other.read_modify_writes;
    transfers += other.transfers;
    return *this;
  }
};

// A line of the cache, as all cores see it.
struct Line {
  uintptr_t number = 0;  // its address divided by kLineBytes; 0 for a free place of the table
  int owner = -1;        // the thread that has written it last
  uint64_t transfers = 0;
  int64_t free_at_ns = 0;                  // when the last transfer of it ends
  uint64_t copies[kMaxThreads / 64] = {};  // the threads whose core has it
};

// How often a place in the program has made a line change hands.
struct Site {
  uintptr_t line = 0;
  uintptr_t pc = 0;
  uintptr_t caller = 0;  // where the function was called that contains the place
  uint64_t transfers = 0;
};

// How long a mutex was locked, and where last.
struct HeldMutex {
  const void* mutex = nullptr;
  uintptr_t pc = 0;
  uintptr_t caller = 0;
  int64_t since_ns = 0;
  int64_t held_ns = 0;
};

// A place of memory for records that are found by a hash; never allocates by malloc(), because the
// program under test is between two of its own accesses. Records stay until clear(). Grows by
// doubling. Not thread-safe.
template <class Record>
class Table {
 public:
  // The record for which `is` returns true, among those with that hash; a free one if there is
  // none. `is_free` of a record says whether it is one. Valid until the next call.
  template <class Is, class IsFree>
  Record& find(uint64_t hash, Is is, IsFree is_free) {
    for (size_t i = hash & (size_ - 1);; i = (i + 1) & (size_ - 1)) {
      if (is_free(records_[i]) || is(records_[i])) return records_[i];
    }
  }

  Record* begin() { return records_; }
  Record* end() { return records_ + size_; }
  size_t size() const { return size_; }
  bool full() const { return used_ >= size_ / 2; }
  void add_used() { used_++; }
  void reset(Record* records, size_t size) {
    records_ = records;
    size_ = size;
    used_ = 0;
  }

 private:
  Record* records_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
};

// The model of coherence: which core has a copy of which line. It knows neither time nor threads
// but by their numbers.
//
// A thread is a core with a cache that is never full. A line may be in many caches while nobody
// writes it. A core that writes it, or modifies it atomically, takes it from all others. A transfer
// is an access for which the line has to come from another core, or its copies there have to be
// taken away: a read of a line that another core has written since, or that this core never had;
// and a write of a line of which another core has a copy. The first access to memory that nobody
// has touched is none.
//
// Not thread-safe.
class Lines {
 public:
  Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  struct Outcome {
    Line* line;  // valid until the next call
    bool transfer;
  };
  // An access to one line by the instruction at `pc`, in a function that was called at `caller`.
  Outcome access(int thread, uintptr_t line, Access kind, uintptr_t pc, uintptr_t caller);

  void clear_counts();
  const Counts& counts(int thread) const { return counts_[thread]; }
  Table<Line>& lines() { return lines_; }
  Table<Site>& sites() { return sites_; }

 private:
  Line& line(uintptr_t number);
  void count_site(uintptr_t line, uintptr_t pc, uintptr_t caller);

  Table<Line> lines_;
  Table<Site> sites_;
  Counts counts_[kMaxThreads];
};

}  // namespace coherence
