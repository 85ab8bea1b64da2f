#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "store/StoreAlarms.h"
#include "store/StoreBackend.h"
#include "store/StoreCounters.h"
#include "store/StoreGroup.h"
#include "store/StoreRun.h"
#include "store/StoreRuns.h"

namespace workflow {

// Makes the answers of the store to a group known: to the users who asked, to the runs and their
// handlers, to the counters, and to the alarms. What to ask of the store next is not its business.
//
// 1. Each call of a group is answered, with its error if it has failed.
// 2. Each finish that the store has accepted or refused is marked as settled, and its run is
//    forgotten. A refusal is a loss, which the handler is told, unless an earlier attempt is in
//    doubt: then it may mean that the store has accepted that one. What has failed is left to the
//    caller: finishes, an extension, a claim.
// 3. Each timer that was claimed begins a run: its handler is called, or the run ends without that
//    because it is too late, has no attempts left or no memory for its series. If the lease is over
//    already, or there is no memory for a run, there is none: the timer is taken after its lease.
// 4. User code is posted to handler threads, and never called. The tasks that a group ends and the
//    runs that it begins are posted together, because it costs more to wake a thread than most
//    callbacks take; on_lost and the ends of scopes are posted one by one. More than kPosts items
//    are posted in pieces, so that the first need not wait for the last.
// 5. settle() throws std::bad_alloc when memory runs out. Everything that it has made known by then
//    stays so: what was answered or settled must not be settled again.
//
// It has no state of its own. Used by the thread of the engine, which holds no lock.
class StoreSettlement {
 public:
  // `owner_name`: the owner of the runs, as users see it.
  StoreSettlement(Runtime& runtime, StoreBackend& backend, StoreRuns& runs, StoreAlarms& alarms,
                  StoreCounters& counters, std::string owner_name)
      : runtime_(runtime),
        backend_(backend),
        runs_(runs),
        alarms_(alarms),
        counters_(counters),
        owner_name_(std::move(owner_name)) {}

  // `owner` is told when the runs end that begin here.
  void settle(StoreGroup& group, const std::shared_ptr<StoreRunOwner>& owner);

  // Answers one call. Without memory it ends with ENOMEM, in doubt if the store may have carried it
  // out.
  void answer(StoreCall& call);

  // All leases were lost: the runs that go on are told.
  void lose_leases();

 private:
  static constexpr size_t kPosts = 64;

  class MissedReport;
  class Posts;

  void settle_finishes(StoreGroup& group, StoreRunOwner& owner);
  void settle_extend(const StoreGroup& group);
  void answer(StoreCall& call, Posts& posts);
  void settle_claim(StoreGroup& group, const std::shared_ptr<StoreRunOwner>& owner, Posts& posts);
  void settle_look(const StoreGroup& group);
  StoreCounters::Count& counter_of(FinishRequest::How how);
  // What an answer to a user's request means for this process.
  void note_answer(const StoreRequest& request);
  void tell_cancelled(const WFStoreAnswer& answer);
  // `claimed_us` is when the store has made the claim.
  void begin_run(ClaimRequest::Claimed& claimed, int64_t claimed_us,
                 const std::shared_ptr<StoreRunOwner>& owner, Posts& posts);
  void call_handler(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info, int64_t late_us,
                    const std::shared_ptr<StoreRunOwner>& owner, Posts& posts);
  void report_missed(const std::shared_ptr<StoreRun>& run, WFStoreInfo&& info,
                     const std::shared_ptr<StoreRunOwner>& owner, Posts& posts);

  Runtime& runtime_;
  StoreBackend& backend_;
  StoreRuns& runs_;
  StoreAlarms& alarms_;
  StoreCounters& counters_;
  const std::string owner_name_;
};

}  // namespace workflow
