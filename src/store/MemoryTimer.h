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
class MemoryKind {
 public:
  using Queue = std::set<std::pair<int64_t, uint64_t>>;  // times, and the numbers of the timers

  // At first it counts what is due at that time without walking over it.
  MemoryKind(std::string name_of_kind, int64_t now_us)
      : name(std::move(name_of_kind)), due_{now_us, 0}, overdue_{now_us, 0} {}

  const std::string name;
  const Queue& queue() const { return queue_; }
  void insert(int64_t at_us, uint64_t number);
  void erase(int64_t at_us, uint64_t number);

  // How many may be claimed at these times. Each call walks over what has become due since the last
  // one.
  size_t count_due(int64_t now_us) { return due_.move_to(now_us, queue_); }
  size_t count_overdue(int64_t last_us) { return overdue_.move_to(last_us, queue_); }

 private:
  // `count` is the number of entries of the queue at `us` or earlier.
  struct Mark {
    int64_t us;
    size_t count;
    size_t move_to(int64_t to_us, const Queue& queue);
  };

  Queue queue_;
  Mark due_;
  Mark overdue_;
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
  int64_t wake_us = 0;  // kWaiting: when it is due or tried again; kLeased: the end of the lease
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
