#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/MemoryEnded.h"
#include "store/MemoryJournal.h"
#include "store/MemoryTimer.h"
#include "store/StoreBytes.h"
#include "store/StoreRequest.h"

namespace workflow {

// The timers of a store in memory, by the rules 3 to 11 and 13 of StoreBackend.
//
// Not thread-safe. Pure: the caller says what time it is. A request costs O(log n) for each timer
// that it finds, except that a count walks over what it counts, a look over what has become due
// since the last one, and a call by name over the timers of that name that have failed.
//
// A claim ends marked timers before it takes any. So it can take a timer that one of them has
// blocked (rules 7 and 10).
//
// Where the rules leave a choice:
// 1. A claim takes the fresh timers of a kind before the overdue ones. Timers that are due at the
//    same time are taken in the order in which they were stored.
// 2. Lists show a timer whose lease is over as one that waits.
//
// If there is a journal, it learns of each change. Then each request is followed by write().
//
// Invariants:
// 1. The timers that wait or are leased are in the queue of their kind, and those that are marked
//    are in `marked_` besides. Blocked and failed ones are in neither.
// 2. `a.blocks` is b if and only if `b.blocked_by` is a; then b is blocked, and a waits or is
//    leased. Both have the same name.
// 3. Only leased timers are marked.
// 4. `failed_` has the timers that have failed.
// 5. `lease_ends_` has the number of leased timers by the ends of their leases, and `leased_` the
//    number of all of them.
// 6. A timer of which the journal does not know everything has its number in `changed_`.
class MemoryTimers {
 public:
  // What the other backends of the store might want to know.
  struct Change {
    int64_t earliest_us = kNeverUs;  // the earliest time until which a timer was made to wait
    bool marked = false;             // a running timer was cancelled
  };

  explicit MemoryTimers(int64_t now_us, MemoryJournal* journal = nullptr)
      : journal_(journal), ended_(now_us, journal) {}
  MemoryTimers(const MemoryTimers&) = delete;
  MemoryTimers& operator=(const MemoryTimers&) = delete;

  // The time for the requests that follow.
  void set_now(int64_t now_us) { now_us_ = now_us; }

  void carry_out(ScheduleRequest& request, StoreFailure& failure);
  void carry_out(CancelRequest& request);
  void carry_out(RescheduleRequest& request);
  void carry_out(ClaimRequest& request);
  void carry_out(FinishRequest& request);
  void carry_out(ExtendRequest& request);
  void carry_out(CountRequest& request) const;
  void carry_out(ListRequest& request) const;
  void carry_out(FailedRequest& request);
  void carry_out(LookRequest& request);

  // Forgets the oldest of the ended timers, so that at most `remembered` stay.
  void trim(size_t remembered) { ended_.trim(remembered); }
  // What has changed since the last call.
  Change take_change() { return std::exchange(change_, Change()); }

  // Writes what has changed to the journal.
  void write();
  // Writes a timer or an ended one again, as a whole.
  void write_again(MemoryTimer& timer);
  void write_again(MemoryEnded::Ended& ended) { ended_.write(ended); }

  // What the records of the journal do not say.
  struct Counters {
    uint64_t last_number = 0;
    uint64_t last_fence = 0;
    uint64_t next_ended = 0;  // the position of the next timer that ends
    int64_t since_us = 0;     // each timer that has ended since then is remembered
  };
  Counters counters() const;
  size_t size() const { return timers_.size(); }
  uint64_t last_number() const { return last_number_; }

  // Reads the rest of a record, before anything was carried out. Returns false if it is none.
  bool read(char kind, StoreBytes::Reader& record);
  // After all records were read. Leases with a fence of at most `over_fence` are over at `over_us`.
  // Returns false if the records do not fit together.
  bool restore(const Counters& counters, uint64_t over_fence, int64_t over_us);

 private:
  using Timer = MemoryTimer;
  using State = MemoryTimer::State;
  using Queue = MemoryKind::Queue;
  struct ByName {
    using is_transparent = void;
    using Key = std::pair<std::string_view, uint64_t>;
    static Key key(const Timer* timer) { return {timer->name, timer->number}; }
    static const Key& key(const Key& key) { return key; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return key(a) < key(b);
    }
  };
  using Names = std::set<Timer*, ByName>;
  using Key = ByName::Key;

  bool lease_is_live(const Timer& timer) const {
    return timer.state == State::kLeased && now_us_ < timer.wake_us;
  }
  WFStoreStage stage(const Timer& timer) const;
  WFStoreInfo info(const Timer& timer) const;
  WFStoreAnswer answer(const Timer& timer, WFStoreVerdict verdict) const;
  // The answer for a timer that waits or whose lease is over.
  WFStoreAnswer answer_won(const Timer& timer) const;
  WFStoreAnswer answer_gone(const std::string& name) const;

  Timer& at(uint64_t number) { return timers_.at(number); }
  const Timer& at(uint64_t number) const { return timers_.at(number); }
  // Returns null if the lease is over or belongs to another run.
  Timer* find_run(const RunId& run);
  const MemoryKind* find_kind(std::string_view name) const;
  // Calls visit(timer) for the timers of that name that have not failed, oldest first, until it
  // returns false. It may end the timer.
  template <class VISIT>
  void for_each_of(const std::string& name, const VISIT& visit);

  void enqueue(Timer& timer);
  void dequeue(Timer& timer);
  // The new timer is blocked by none; the caller makes it wait or blocks it.
  Timer& add(const StoredSpec& spec, int64_t due_us);
  MemoryKind* kind_of(std::string_view name);
  const std::string* owner_of(std::string_view name);
  void wait_until(Timer& timer, int64_t wake_us);
  void block(Timer& timer, Timer& by);
  void release_successor(Timer& timer);
  void end(Timer& timer, WFStoreOutcome outcome);
  void fail(Timer& timer, const FinishRequest& request, bool recurs);
  // Removes the timer without a trace, but for one in the journal.
  void erase(Timer& timer);
  void remove(Timer& timer);

  // Ends what rule 9 says. Returns the newest timer of the name that runs, or null.
  Timer* replace(ScheduleRequest& request);
  void move_successor(Timer& running, const RescheduleRequest& request);
  void end_cancelled();
  // Claims at most `max` timers of the kind that are due at `from_us` to `to_us`.
  void claim(ClaimRequest& request, const MemoryKind& kind, int64_t from_us, int64_t to_us,
             size_t max);

  // For the journal, before write(): the timer has changed, but not what has been stored of it; or
  // it is new, or all of it may have changed.
  void note_moved(Timer& timer) { note(timer, Timer::Change::kMoved); }
  void note_whole(Timer& timer) { note(timer, Timer::Change::kWhole); }
  void note(Timer& timer, Timer::Change change);
  bool read_erased(uint64_t number);

  MemoryJournal* const journal_;
  std::map<std::string, MemoryKind, std::less<>> kinds_;
  std::set<std::string, std::less<>> owners_;  // of leases that were given
  std::unordered_map<uint64_t, Timer> timers_;
  Names names_;
  Names failed_;
  std::vector<uint64_t> changed_;
  std::set<std::pair<int64_t, uint64_t>> marked_;  // the ends of their leases, and their numbers
  MemoryEnded ended_;
  Change change_;
  int64_t now_us_ = 0;
  uint64_t last_number_ = 0;
  uint64_t last_fence_ = 0;
  std::map<int64_t, size_t> lease_ends_;
  uint64_t leased_ = 0;
};

}  // namespace workflow
