#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "store/MemoryJournal.h"
#include "store/StoreBytes.h"
#include "store/StoreRequest.h"

namespace workflow {

// The timers of one kind that wait or are leased, by the time from which they may be claimed.
struct MemoryKind {
  explicit MemoryKind(std::string name_of_kind) : name(std::move(name_of_kind)) {}
  const std::string name;
  std::set<std::pair<int64_t, uint64_t>> queue;  // times, and the numbers of the timers
};

// One timer of a store in memory. There may be millions, so what few of them have is elsewhere.
struct MemoryTimer : JournalEntry {
  enum class State : uint8_t { kWaiting, kLeased, kBlocked, kFailed };
  // What the journal does not know yet.
  enum class Change : uint8_t { kNone, kMoved, kWhole };

  MemoryTimer() : JournalEntry(Kind::kTimer) {}

  StoredSpec spec() const;
  std::string repeat_text() const { return repeat ? *repeat : std::string(); }
  std::string reason_text() const { return reason ? *reason : std::string(); }
  static void set(std::unique_ptr<std::string>& place, std::string_view text) {
    place = text.empty() ? nullptr : std::make_unique<std::string>(text);
  }

  State state = State::kBlocked;
  bool marked = false;
  Change change = Change::kNone;
  unsigned attempts = 0;
  uint64_t number = 0;
  std::string name;
  std::string payload;
  MemoryKind* kind = nullptr;
  std::unique_ptr<std::string> repeat;  // null: it does not recur
  std::unique_ptr<std::string> reason;  // kFailed
  const std::string* owner = nullptr;   // kLeased
  int64_t skip_after_us = -1;
  int64_t due_us = 0;
  int64_t wake_us = 0;  // kWaiting: when it is due; kLeased: the end of the lease
  uint64_t fence = 0;
  uint64_t blocks = 0;      // the timer that waits for the end of this one, or 0
  uint64_t blocked_by = 0;  // kBlocked: the timer that this one waits for
};

// Records of a timer, without what they begin with: their kind and the number of the timer. Whoever
// reads finds the kind and the owner by their names, which stay valid as long as the record. read()
// returns false if it is no such record.
struct MemoryTimerRecord {
  static void put_whole(std::string& out, const MemoryTimer& timer);
  static void put_move(std::string& out, const MemoryTimer& timer);

  struct Names {
    std::string_view kind;  // only of a whole one
    std::string_view owner;
  };
  static bool read_whole(StoreBytes::Reader& record, MemoryTimer& timer, Names& names);
  static bool read_move(StoreBytes::Reader& record, MemoryTimer& timer, Names& names);
};

}  // namespace workflow
