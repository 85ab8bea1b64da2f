#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/RedisStoreCodec.h"
#include "store/RedisStoreLink.h"
#include "store/RedisStoreNews.h"
#include "store/RedisStoreNodes.h"
#include "store/RedisStoreOpening.h"
#include "store/RedisStorePlace.h"
#include "store/StoreBackend.h"

namespace workflow {

// A store in a Redis, or in the masters of a Redis Cluster. The server of a shard decides
// everything, by its own time: see RedisStoreScripts.h.
//
// Requests go out in rounds. A round is at most one script for each shard, with at most kMaxAtOnce
// of the requests that are ready, and about kMaxBytes. The next round begins when the replies of
// all shards are there. So the requests of a shard are carried out in their order, whatever the
// server refuses.
//
// Where the rules of StoreBackend leave a choice:
// 1. Numbers and fences grow within a shard, and the timers of a name are in one shard. Those of
//    different shards do not compare.
// 2. Requests that concern all shards (claim, count, list, look) see one shard after the other.
// 3. A list or a claim may end before its limit, if the payloads are large; then there is more.
// 4. The time of the store is that of the server whose clock is the slowest, among those that have
//    shards. Timers are due by it on all servers. Leases end by the clock of their server: two
//    processes may differ in how far that is ahead, but not in when a lease is over.
// 5. receipt() is that of the last execute(): whether replicas have it is found out each time.
// 6. No script takes very long. A cancel, reschedule or replace that would take more than 20,000
//    timers ends with E2BIG, and the oldest 20,000 failed timers of a name are retried or removed.
//    A script that has looked at some thousand timers leaves the requests that follow to the next
//    one.
//
// Used by one thread at a time, but for now_us().
class RedisStoreBackend final : public StoreBackend {
 public:
  // Returns null with an errno value and a message. `test_clock`: if it is not null, its wall clock
  // decides instead of that of the server. It is for tests.
  static std::unique_ptr<RedisStoreBackend> open(const std::string& url,
                                                 const StoreBackendOptions& options,
                                                 Clock* test_clock, int* error,
                                                 std::string* message);
  ~RedisStoreBackend() override;

  // StoreBackend
  bool execute(std::span<StoreRequest* const> requests) override;
  int reopen(std::string* message) override;
  WFStoreReceipt receipt() const override { return receipt_; }
  int64_t now_us() override;
  void close() override;

 private:
  // A request that is under way, and what is asked for it.
  struct Job {
    StoreRequest* request = nullptr;
    std::vector<RedisStorePart> parts;
    size_t answered = 0;
  };
  // What is to be asked of a shard, in order.
  struct Lane {
    std::vector<std::pair<Job*, RedisStorePart*>> waiting;
    size_t done = 0;  // of these
    size_t under_way = 0;
    // How the script is sent next.
    bool whole = false;  // as text, because the server does not know it
    bool full = false;   // the server has no memory left
    int openings = 0;    // in a row, because the server was a new one
  };
  // Why the store has failed.
  struct Failure {
    int error = 0;
    std::string message;
  };

  static constexpr int kMaxOpenings = 3;
  static constexpr size_t kMaxAtOnce = 100;
  static constexpr size_t kMaxBytes = 1'000'000;

  RedisStoreBackend(RedisStorePlace place, const StoreBackendOptions& options, Clock* test_clock);

  int connect(bool create, std::string* message);
  // A failover may lose requests, and so may a server that does not sync. One that has said that it
  // has synced them has broken its word.
  int refuse_broken_word(const RedisStoreOpening& opened, std::string* message);
  int load_scripts(std::string* message);
  std::string time_argument() const;
  std::string ahead_argument(const RedisStoreNode& node) const;
  // Listens for news at one of the servers.
  void keep_news();

  // How many of the requests, from the first on, are carried out together. A claim ends such a
  // part. It shares the part with what comes before it, unless
  // - there are several shards: then a claim takes two steps, and the others wait for them;
  // - that is more than ends of runs and extensions of leases: what users ask for may wait for
  //   replicas, which a lease should not, and may leave the claim no room in the reply;
  // - the last claim has failed: if it has met damage, the ends of runs should not fail with it.
  size_t part_size(std::span<StoreRequest* const> requests) const;
  // Carries out jobs of any kind, once. Return false if the store has failed: see failure_.
  bool carry_out(std::span<StoreRequest* const> requests);
  bool claim_over_shards(StoreRequest& request);
  bool run(std::vector<Job>& jobs);
  bool run_round(std::vector<Lane>& lanes);
  void fill(Lane& lane);
  std::string command_of(size_t shard, const Lane& lane, const RedisStoreNode& node) const;
  bool take_reply(Lane& lane, RedisStoreNodes::Question& asked);
  // Decides what follows from an error reply. Returns false if the store has failed.
  bool take_error(Lane& lane, RedisStoreNodes::Question& asked);
  void fail(int error, std::string message);
  void fail_lane(Lane& lane, bool in_doubt);
  // Ends what has no answer with the failure of the store.
  void settle(std::vector<Job>& jobs);
  // Finds out what the answers are worth, and waits for replicas if users get some.
  void confirm(std::span<StoreRequest* const> requests);
  void learn_time(RedisStoreNode& node, const RedisStoreLink::Reply& reply, int64_t server_us);

  const RedisStorePlace place_;
  const StoreBackendOptions options_;
  Clock* const test_clock_;
  const std::string sender_;
  RedisStoreNews news_;
  RedisStoreNodes nodes_{place_};  // none when closed
  RedisStoreOpening opened_;
  WFStoreReceipt receipt_;
  bool claims_apart_ = false;  // because the script of the last claim has failed
  bool has_waited_ = false;    // for replicas, in the present execute()
  bool said_fsync_ = false;    // whether the last receipt, replicas left aside, was fsync
  std::string script_sha_;
  std::string full_script_sha_;
  Failure failure_;  // of the last execute()
  Failure why_closed_;
  // The time of the store minus the monotonic clock. Changed by the thread that uses the backend,
  // and read by now_us() on any thread. It publishes nothing but itself, so relaxed would be enough
  // where it is sequentially consistent by default.
  std::atomic<int64_t> offset_us_{0};
};

}  // namespace workflow
