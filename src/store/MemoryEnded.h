#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "store/MemoryJournal.h"
#include "store/StoreBytes.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// The last timers of a store in memory that have ended (rule 13 of StoreBackend).
//
// Not thread-safe. Pure: it knows no clock.
//
// Invariants:
// 1. `order_` has the timers in the order in which they ended, at positions without gaps. The
//    journal, if there is one, knows them by their positions.
// 2. latest() finds the last one of a name among those in `order_`.
// 3. Every timer that ended at since_us() or later is in `order_`.
class MemoryEnded {
 public:
  struct Ended : JournalEntry {
    Ended() : JournalEntry(Kind::kEnded) {}
    Ended(std::string name_of_timer, uint64_t number, unsigned runs, WFStoreOutcome how, int64_t us)
        : JournalEntry(Kind::kEnded),
          name(std::move(name_of_timer)),
          timer(number),
          attempts(runs),
          outcome(how),
          when_us(us) {}

    uint64_t position = 0;
    std::string name;
    uint64_t timer = 0;
    unsigned attempts = 0;
    WFStoreOutcome outcome = WFStoreOutcome::kNone;
    int64_t when_us = 0;
  };

  // The journal, if there is one, has a record of each.
  explicit MemoryEnded(int64_t since_us, MemoryJournal* journal = nullptr)
      : journal_(journal), since_us_(since_us) {}

  void remember(Ended ended);
  // Forgets the oldest ones, so that at most `remembered` stay.
  void trim(size_t remembered);

  // Null if none of that name is remembered. Valid until the next call.
  const Ended* latest(const std::string& name) const;
  int64_t since_us() const { return since_us_; }
  uint64_t next_position() const { return next_position_; }

  // Writes the record of one that is remembered.
  void write(Ended& ended);
  // Reads the rest of a record of `size` bytes: those of a journal come in any order. Returns the
  // timer that has ended, whether there still is a failed one or not; null if it is no record.
  const Ended* read(StoreBytes::Reader& record, size_t size);
  // After all records were read.
  void restore(uint64_t next_position, int64_t since_us);

 private:
  using Order = std::map<uint64_t, Ended>;  // by their positions

  void forget(Order::iterator ended);

  MemoryJournal* const journal_;
  Order order_;
  uint64_t next_position_ = 0;
  std::unordered_map<std::string, const Ended*> latest_;
  int64_t since_us_;
};

}  // namespace workflow
