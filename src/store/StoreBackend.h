#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "store/StoreRequest.h"
#include "store/StoreTimes.h"
#include "util/Clock.h"

namespace workflow {

// What a store of some kind is given when it is opened.
struct StoreBackendOptions {
  bool create = true;
  size_t remembered = 10000;
  Clock* clock = nullptr;
  uint64_t session = 0;  // of the requests of this engine; not 0
  // Called on any thread, with no lock held and not after close(), when another process, or
  // another store on the same data, may have changed what this one has to do soon. A hint: it may
  // be missing.
  std::function<void()> changed;
  // What it measures; null: nobody wants to know.
  std::shared_ptr<StoreTimes> times;
};

// A place where timers are stored. The rules that each backend follows:
//
// 1. Each request is carried out as a whole or not at all, and as if all requests of all processes
//    were carried out one after the other. execute() carries out its requests in their order.
// 2. When execute() returns, a request of a user that changes something, and has no failure, is as
//    durable as receipt() says. Claims, extensions and the ends of runs may be less durable.
// 3. Every timer that was stored and not ended is waiting, leased, blocked or failed: never two of
//    these, never none.
// 4. Each move of a timer to another time and each claim gives it a fence that no timer of the
//    store has had before. Fences grow.
// 5. A timer is claimed only if it is due, and if it waits or its lease has ended. The end of a
//    lease is its first microsecond that is over: a lease that ends at t is live before t and over
//    at t. A timer whose lease has ended counts as due since then. A claim counts one more attempt.
// 6. Finish and extend do something only for a live lease with the same fence.
// 7. A cancel ends a timer that waits (kWon), that is blocked (kWon) or whose lease is over
//    (kWonAfter). It marks a running one (kRunning): that ends with its run or its lease, is not
//    retried and has no further date. A claim first ends all marked timers whose lease is over, in
//    the order of their leases. Failed timers are no timers for cancel, reschedule and schedule.
// 8. A reschedule moves a timer that waits (kWon); one whose lease is over waits again, with no
//    attempts so far and without its mark (kWonAfter). A running timer goes on (kAfterRun) and gets
//    one successor, a timer of its own that is blocked by it: a copy with the new time. If it has
//    one already, that one is moved. Blocked timers are not looked at by themselves.
// 9. WF_TIMER_REPLACE ends the timers of the name that wait or whose lease is over (kWon,
//    kWonAfter), and all that are blocked (no answer). If others are running (kAfterRun each), the
//    new timer is blocked by the newest of them; the mark of rule 7 makes no difference.
//    WF_TIMER_KEEP stores nothing if there is a timer of the name: EEXIST.
// 10. A blocked timer waits as soon as the timer that blocks it has ended or failed. Then its due
//    time counts, even if that has passed. A timer that blocks another has no further dates: the
//    next one is the other's.
// 11. Finish: kDone and kMissed make a recurring timer (next_us is not never) wait for its next
//    date, with a new fence and no attempts, unless it is marked or blocks another. Otherwise it
//    ends. kFailed makes the timer a failed one, even if it is marked. If it recurs, is not marked
//    and blocks no other, a new timer waits for the next date. The failed one recurs no more,
//    unless next_us is never. kRetry makes the timer wait until next_us with a new fence, its
//    attempts and its due time. A marked timer ends as kCancelled instead.
// 12. The answer to a request with an id is remembered as long as it is among the last `remembered`
//    ones of its session, failures of the rules (EEXIST) included. A place that sessions share may
//    forget those that were used the longest ago: when there are more than 256, or when all
//    together have more than four times `remembered` answers. A request with an id that was
//    answered already gets the same answer again, and changes nothing. An id that was asked for and
//    not found is used up: its request then ends with ECANCELED. ENODATA: it may be forgotten.
// 13. The last `remembered` timers that ended are remembered by name, with outcome and time. A
//    cancel, reschedule or replace that finds no timer answers kDone for the latest of the name, or
//    else kUnknown with the time since which every ended timer is remembered.
// 14. A list is in the order of names and numbers, and begins after its place. It has a timer if
//    any follows, and ends at the latest when ListRequest::is_full(): only its last timer may go
//    beyond kMaxBytes. In a place with shards that holds for the part of each shard.
//
// Used by one thread at a time, that of the engine. The thread may block.
class StoreBackend {
 public:
  virtual ~StoreBackend() = default;

  // Carries out the requests and stores their answers. Whatever fails has an error in `failure`.
  // Returns false if the store itself has failed (a disk, a connection): reopen() follows before
  // the next execute().
  virtual bool execute(std::span<StoreRequest* const> requests) = 0;

  // Tries to get a store that has failed to work again. Returns 0 or an errno value, and then a
  // message of one line. Nothing that was stored is lost by it.
  virtual int reopen(std::string* message) = 0;

  // After reopen() has failed: whether others may have taken what this store has claimed, although
  // these leases have not ended by the clock. Then the runs are told at once.
  virtual bool leases_are_lost() const { return false; }

  virtual WFStoreReceipt receipt() const = 0;

  // The present time of the store in microseconds. Any thread.
  virtual int64_t now_us() = 0;

  // Frees whatever processes share, and needs no memory for that. Only now_us() and the destructor
  // may be called afterwards.
  virtual void close() = 0;
};

// Opens the store at `place`: the part of the URL after "sqlite:" or "memory:", or the whole URL of
// a Redis. Returns null with an errno value in *error and a message of one line.
std::unique_ptr<StoreBackend> open_sqlite_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message);
std::unique_ptr<StoreBackend> open_memory_backend(const std::string& place,
                                                  const StoreBackendOptions& options, int* error,
                                                  std::string* message);
std::unique_ptr<StoreBackend> open_redis_backend(const std::string& url,
                                                 const StoreBackendOptions& options, int* error,
                                                 std::string* message);

}  // namespace workflow
