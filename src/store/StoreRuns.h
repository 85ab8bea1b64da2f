#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/StoreRequest.h"
#include "store/StoreRun.h"
#include "util/Mutex.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// The kinds of timers that a process handles, and its runs with their leases. It knows neither
// clock nor store nor thread: it is given the present time of the store, says what to ask of the
// store, and takes the answers.
//
// 1. A run is known from begin() until forget(), or until extended() or lose_all() finds that its
//    lease was lost while its series goes on. A run whose series has ended stays known until
//    forget().
// 2. A run is live from begin() to end(), known or not. A kind has a place for each live run.
// 3. next_us() is never too late; it may be too early.
//
// Thread-safe. Its mutex may be taken while those of the engine and its alarms are held, and is a
// leaf.
class StoreRuns {
 public:
  // What is done with a run that should stop.
  struct Notice {
    std::shared_ptr<StoreRun> run;
    int reason;  // ECANCELED or ESTALE
  };

  StoreRuns(int64_t lease_us, size_t catch_up_rate, std::string owner)
      : lease_us_(lease_us), catch_up_rate_(catch_up_rate), owner_(std::move(owner)) {}

  // Returns the handler that was replaced, or null. To be freed without the mutex: it is the
  // user's.
  std::shared_ptr<StoreHandler> handle(const std::string& kind,
                                       const WFTimerStore::Handler& handler,
                                       const WFStoreHandlerOptions& options, int64_t now_us);
  bool handles(const std::string& kind) const;
  std::vector<std::string> handled() const;
  // The handler of a kind for which handles() is true.
  std::shared_ptr<StoreHandler> handler_of(const std::string& kind) const;

  // No more timers are to be taken.
  void refuse();
  bool refuses() const;
  // Whether timers may be claimed: it does not refuse them, and handles some kind.
  bool takes_timers() const;

  // Takes timers for the places that are free; it has no kinds if there are none.
  ClaimRequest claim(int64_t now_us);
  // Whether the last claim could not use all free places. Then what it has left is to be claimed a
  // little later. Otherwise the end of a run makes room for it.
  bool left_places() const;
  // Extends the leases of all known and live runs, which are stored in `runs` in the same order.
  ExtendRequest extend(std::vector<std::shared_ptr<StoreRun>>& runs) const;

  // Throws std::bad_alloc; then nothing has changed.
  void begin(const std::shared_ptr<StoreRun>& run);
  // The series of the run has ended. Returns whether the store has to be told.
  bool end(StoreRun& run);
  // The store was told, or is not told any more.
  void forget(const StoreRun& run);
  // Takes the answers to extend(). Runs whose lease was lost are forgotten.
  std::vector<Notice> extended(const std::vector<std::shared_ptr<StoreRun>>& runs,
                               const std::vector<ExtendRequest::Extended>& answers);
  // All leases were lost. Runs that go on are forgotten, and returned. Those that have ended are
  // known until the store has taken their end or refused it.
  std::vector<Notice> lose_all();
  // The run with that fence, or null.
  std::shared_ptr<StoreRun> find(const RunId& id) const;

  // Whether leases must be extended now. After it has returned true, it returns false for a while,
  // so that a store that does not answer is not asked again and again.
  bool must_extend(int64_t now_us);
  // The runs whose leases are about to be lost, each once.
  std::vector<Notice> about_to_be_lost(int64_t now_us);
  // When one of these two has to be called again.
  int64_t next_us() const;

  bool any_known() const;
  size_t live() const { return live_.load(std::memory_order_relaxed); }

  // Tells runs that they should stop. The caller holds at most StoreAlarms::set_mutex_.
  static void tell(const std::vector<Notice>& notices, Runtime& runtime);

  // A timer that has been due for longer counts as overdue.
  static constexpr int64_t kFreshUs = 1'000'000;

 private:
  struct Kind {
    std::shared_ptr<StoreHandler> handler;
    size_t running = 0;          // live runs, also those of handlers that were replaced
    size_t running_overdue = 0;  // those among them that were overdue when they were claimed
    double tokens = 0;           // how many overdue timers may begin now
    int64_t filled_us = 0;
  };

  void find_next_times() WF_REQUIRES(mutex_);
  void find_next_warning() WF_REQUIRES(mutex_);

  const int64_t lease_us_;
  const size_t catch_up_rate_;
  const std::string owner_;

  mutable Mutex mutex_;
  std::map<std::string, Kind> kinds_ WF_GUARDED_BY(mutex_);
  // The known ones, by fence.
  std::unordered_map<uint64_t, std::shared_ptr<StoreRun>> runs_ WF_GUARDED_BY(mutex_);
  int64_t next_extend_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  int64_t next_warning_us_ WF_GUARDED_BY(mutex_) = kNeverUs;
  bool refuses_ WF_GUARDED_BY(mutex_) = false;
  bool left_places_ WF_GUARDED_BY(mutex_) = false;
  // Relaxed would be enough for the changes, too, which are sequentially consistent by default.
  // Runs begin and end under the engine's mutex, or on its thread before that says under the mutex
  // that it is not busy any more. So StoreEngine::stop() does not miss the end of the last run.
  std::atomic<size_t> live_{0};  // changed while mutex_ is held
};

}  // namespace workflow
