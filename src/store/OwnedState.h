#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "store/MemoryJournal.h"
#include "store/MemoryTimers.h"
#include "store/OwnedAnswers.h"
#include "store/StoreRequest.h"

namespace workflow {

// Everything that a store of the owned layout knows, and the journal from which it can be known
// again: the pure part of OwnedBackend, without clock or file.
//
// Requests are carried out one after the other; write() then puts what they have changed into the
// journal. What the counters are after that has to be kept with the journal.
//
// Not thread-safe.
class OwnedState {
 public:
  struct Counters {
    MemoryTimers::Counters timers;
    bool has_dropped = false;  // whether any session was forgotten
    uint64_t stored = 0;       // how many timers there are
  };

  explicit OwnedState(size_t remembered) : remembered_(remembered) {}
  OwnedState(const OwnedState&) = delete;
  OwnedState& operator=(const OwnedState&) = delete;

  void set_now(int64_t now_us) { timers_.set_now(now_us); }
  // Returns false if it is a schedule, and nothing is to be stored: then it was not carried out.
  bool carry_out(StoreRequest& request, bool stores);
  void know_session(uint64_t session);

  // How soon what was written has to survive the loss of power.
  enum class Sync {
    kNotNeeded,  // reads, claims and longer leases: the loss of power ends all leases anyway
    kSoon,       // ends of runs, for which nobody waits: they may run again
    kNow         // a user has asked for it, and the answer will say that it is stored
  };
  // Writes what has changed to the journal, with some of what is old in it (see clean()).
  Sync write();
  MemoryJournal& journal() { return journal_; }
  Counters counters() const;

  // Reads a row of the journal. Returns false if it is damaged.
  bool read(int64_t row, std::string_view bytes);
  // After all rows; see MemoryTimers::restore().
  bool restore(const Counters& counters, uint64_t over_fence, int64_t over_us);

 private:
  // How much of the beginning of the journal is dropped, or written again at its end, when
  // something is written: twice as much as was written, and this. So it goes away faster than
  // anything new comes, whatever has to be written again.
  static constexpr size_t kCleanedBytes = 16384;

  void carry_out_new(StoreRequest& request);
  static Sync sync_of(const StoreRequest& request);
  void clean(size_t written);
  void write_again(JournalEntry& entry);

  const size_t remembered_;
  MemoryJournal journal_;
  MemoryTimers timers_{0, &journal_};
  OwnedAnswers answers_{journal_, remembered_};
  Sync sync_ = Sync::kNotNeeded;  // of what was carried out since the last write()
};

}  // namespace workflow
