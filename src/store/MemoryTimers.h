#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "store/MemoryEnded.h"
#include "store/StoreRequest.h"

namespace workflow {

// The timers of a store in memory, by the rules 3 to 11 and 13 of StoreBackend.
//
// Not thread-safe. Pure: the caller says what time it is. A request costs O(log n) for each timer
// that it finds, except that count() and look() walk over what they count.
//
// Where the rules leave a choice:
// 1. What blocked the timers that a claim ends may be taken by the same claim.
// 2. Of each kind a claim takes fresh timers first. Of those that are due at the same time, it
//    takes first what was stored first.
// 3. Lists show a timer whose lease is over as one that waits.
//
// Invariants:
// 1. The timers that wait or are leased are in `queue_`, and those that are marked are in `marked_`
//    besides. Blocked and failed ones are in neither.
// 2. `a.blocks` is b if and only if `b.blocked_by` is a; then b is blocked, and a waits or is
//    leased. Both have the same name.
// 3. Only leased timers are marked.
class MemoryTimers {
 public:
  // What other processes might want to know.
  struct Change {
    int64_t earliest_us = kNeverUs;  // the earliest time at which a timer has become due
    bool marked = false;             // a running timer was cancelled
  };

  explicit MemoryTimers(int64_t now_us) : ended_(now_us) {}
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
  void carry_out(LookRequest& request) const;

  // Forgets the oldest of the ended timers, so that at most `remembered` stay.
  void trim(size_t remembered) { ended_.trim(remembered); }
  // What has changed since the last call.
  Change take_change() { return std::exchange(change_, Change()); }

 private:
  enum class State { kWaiting, kLeased, kBlocked, kFailed };

  struct Timer {
    uint64_t number = 0;
    StoredSpec spec;
    State state = State::kBlocked;
    int64_t due_us = 0;
    int64_t wake_us = 0;  // kWaiting: when it is due; kLeased: the end of the lease
    uint64_t fence = 0;
    unsigned attempts = 0;
    bool marked = false;
    uint64_t blocks = 0;      // the timer that waits for the end of this one, or 0
    uint64_t blocked_by = 0;  // kBlocked: the timer that this one waits for
    std::string owner;        // kLeased
    std::string reason;       // kFailed
  };

  // An entry of `queue_`; `kind` is in the timer.
  struct Wake {
    std::string_view kind;
    int64_t at_us = 0;
    uint64_t number = 0;
    friend bool operator<(const Wake& a, const Wake& b) {
      return std::tie(a.kind, a.at_us, a.number) < std::tie(b.kind, b.at_us, b.number);
    }
  };
  using Wakes = std::set<Wake>;
  // `first` is in the timer.
  using Names = std::set<std::pair<std::string_view, uint64_t>>;

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
  // Calls visit(timer) for the timers of that name that have not failed, oldest first, until it
  // returns false. It may end the timer.
  template <class VISIT>
  void for_each_of(const std::string& name, const VISIT& visit);

  void enqueue(Timer& timer);
  void dequeue(Timer& timer);
  // The new timer is blocked by none; the caller makes it wait or blocks it.
  Timer& add(StoredSpec spec, int64_t due_us);
  void wait_until(Timer& timer, int64_t wake_us);
  void block(Timer& timer, Timer& by);
  void release_successor(Timer& timer);
  void end(Timer& timer, WFStoreOutcome outcome);
  void fail(Timer& timer, const FinishRequest& request, bool recurs);
  // Removes the timer without a trace.
  void erase(Timer& timer);

  // Ends what rule 9 says. Returns the newest timer of the name that runs, or null.
  Timer* replace(ScheduleRequest& request);
  void move_successor(Timer& running, const RescheduleRequest& request);
  void end_cancelled();
  // Claims at most `max` timers of the kind that are due at `from_us` to `to_us`.
  void claim(ClaimRequest& request, std::string_view kind, int64_t from_us, int64_t to_us,
             size_t max);

  std::unordered_map<uint64_t, Timer> timers_;
  Names names_;
  Wakes queue_;
  std::set<std::pair<int64_t, uint64_t>> marked_;  // the ends of their leases, and their numbers
  MemoryEnded ended_;
  Change change_;
  int64_t now_us_ = 0;
  uint64_t last_number_ = 0;
  uint64_t last_fence_ = 0;
};

}  // namespace workflow
