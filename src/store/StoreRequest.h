#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "workflow/WFTimerStore.h"

namespace workflow {

// What an engine asks of its backend, and what the backend answers. Plain data: an engine fills in
// the first part of a request, and the backend the rest.
//
// Times are microseconds since 1970 by the clock of the store, lengths of time are microseconds.
// kNeverUs means never.
inline constexpr int64_t kNeverUs = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kUsPerSec = 1'000'000;

// Everything about a timer that does not change from one run to the next.
struct StoredSpec {
  std::string name;
  std::string kind;
  std::string payload;
  // How it recurs, as StoreRepeat::to_text() writes it; empty: it does not. Backends do not read
  // it.
  std::string repeat;
  int64_t skip_after_us = -1;  // negative: it runs however late it is
};

// The data that identifies a run to the store.
struct RunId {
  uint64_t timer = 0;
  uint64_t fence = 0;
};

// Why a request was not carried out.
struct StoreFailure {
  int error = 0;  // an errno value; 0: it was carried out
  std::string message;
  // The store may have carried it out all the same.
  bool in_doubt = false;
};

struct ScheduleRequest {
  StoredSpec spec;
  int64_t due_us = 0;
  WFTimerPolicy policy = WF_TIMER_APPEND;

  uint64_t timer = 0;  // 0: kept out by WF_TIMER_KEEP
  std::vector<WFStoreAnswer> answers;
};

struct CancelRequest {
  std::string name;
  size_t max = SIZE_MAX;

  std::vector<WFStoreAnswer> answers;
};

struct RescheduleRequest {
  std::string name;
  size_t max = SIZE_MAX;
  int64_t due_us = 0;
  // Whether `repeat` replaces the recurrence of the timers.
  bool changes_repeat = false;
  std::string repeat;

  std::vector<WFStoreAnswer> answers;
};

// Takes timers that are due: each gets a lease, a new fence and one more attempt.
struct ClaimRequest {
  struct Kind {
    std::string name;
    // The most timers to claim. Timers that have been due for at most `fresh_us` come before the
    // overdue ones. Within each group, the oldest come first.
    size_t max = 0;
    size_t max_overdue = 0;  // of those that have been due for longer
  };
  std::vector<Kind> kinds;
  std::string owner;
  int64_t lease_us = 0;
  int64_t fresh_us = 0;  // how long a timer counts as fresh after it became due

  struct Claimed {
    StoredSpec spec;
    RunId run;
    int64_t due_us = 0;
    int64_t lease_end_us = 0;
    unsigned attempts = 0;  // with this one
    // Since when it could be claimed: since it was due or was to be tried again, or since its lease
    // had ended. It decides whether the timer was fresh.
    int64_t wake_us = 0;
  };
  std::vector<Claimed> claimed;
  // When the next timer of these kinds is due, or may be taken again; kNeverUs: none.
  int64_t next_us = kNeverUs;
  // Whether timers of these kinds are due that were not claimed.
  bool more = false;
  // Whether the limits would have allowed to claim some of those. The same claim takes them later.
  bool again = false;
};

// Ends a run, if its lease is live and it has that fence. Otherwise nothing changes.
struct FinishRequest {
  enum class How {
    kDone,    // acknowledged
    kMissed,  // left out because it was too late
    kRetry,   // runs again at next_us, unless it was cancelled
    kFailed   // moves to the failed ones
  };
  RunId run;
  How how = How::kDone;
  // kRetry: when it runs again. kDone and kMissed: the next date of a recurring timer, or kNeverUs:
  // then the timer ends, as one does that was cancelled meanwhile. kFailed: the date of the timer
  // that goes on in its place, or kNeverUs; this one becomes a failed one in any case.
  int64_t next_us = kNeverUs;
  std::string reason;  // kFailed

  bool accepted = false;
};

// Makes the leases of runs last until lease_us from now.
struct ExtendRequest {
  std::vector<RunId> runs;
  int64_t lease_us = 0;

  struct Extended {
    bool live = false;  // false: the lease was lost
    bool cancelled = false;
    int64_t lease_end_us = 0;
  };
  std::vector<Extended> extended;  // as runs
};

// Asks for the answer to an earlier request that changes something.
struct AskRequest {
  WFStoreRequestId asked;

  // Whether the asked request was carried out. If not, it never will be.
  bool found = false;
  WFStoreResult result;
};

struct CountRequest {
  std::string prefix;
  uint64_t count = 0;
};

// A list ends, and says that there are more, when it has `max` timers, or when those that it has
// take kMaxBytes.
struct ListRequest {
  static constexpr size_t kMaxBytes = 16'000'000;
  static constexpr size_t kTimerBytes = 200;  // beside its texts

  std::string prefix;
  std::string after_name;    // the place to go on from: after that timer of that name
  uint64_t after_timer = 0;  // 0: from the beginning of after_name
  size_t max = 0;
  bool failed_only = false;

  std::vector<WFStoreInfo> timers;
  bool more = false;
  size_t bytes = 0;  // that the timers take

  bool is_full() const { return timers.size() >= max || bytes >= kMaxBytes; }
  void add(WFStoreInfo info) {
    bytes += info.payload.size() + info.name.size() + info.reason.size() + kTimerBytes;
    timers.push_back(std::move(info));
  }
};

struct FailedRequest {
  std::string name;
  bool remove = false;  // otherwise they are due now, with no attempts so far

  uint64_t count = 0;
};

// What an engine wants to know from time to time.
struct LookRequest {
  // A shared file has no counters of what is due and what has failed. It counts them one by one,
  // and ends at this number.
  static constexpr uint64_t kMaxCounted = 1'000'000;

  std::vector<std::string> handled;  // the kinds that this process handles
  int64_t overdue_us = 0;            // what is due for longer than this counts as overdue

  uint64_t stored = 0;
  uint64_t due = 0;        // may be claimed now
  uint64_t overdue = 0;    // of them
  uint64_t unhandled = 0;  // of the overdue ones
  uint64_t leased = 0;     // by live leases, of all processes
  uint64_t failed_timers = 0;
};

// One request with its answer.
struct StoreRequest {
  std::variant<ScheduleRequest, CancelRequest, RescheduleRequest, ClaimRequest, FinishRequest,
               ExtendRequest, AskRequest, CountRequest, ListRequest, FailedRequest, LookRequest>
      what;
  // For those that users make and that change something (schedule, cancel, reschedule, failed): the
  // store remembers their answers by it. Otherwise number is 0.
  WFStoreRequestId id;

  StoreFailure failure;
};

// Takes back what an earlier attempt has answered.
void clear_answer(StoreRequest& request);

// Whether it changes nothing.
bool only_reads(const StoreRequest& request);

}  // namespace workflow
