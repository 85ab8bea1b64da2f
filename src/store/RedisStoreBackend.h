#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/RedisStoreCodec.h"
#include "store/RedisStoreLink.h"
#include "store/RedisStoreNews.h"
#include "store/RedisStorePlace.h"
#include "store/RedisStoreServer.h"
#include "store/StoreBackend.h"

namespace workflow {

// A store in a Redis. The server decides everything, by its own time: see RedisStoreScripts.h.
//
// Requests go out in rounds. A round is at most one script for each shard, with as many requests as
// are ready. The next script of a shard goes out when the reply to the last one is there, so that
// the requests of a shard are carried out in their order whatever the server refuses.
//
// Where the rules of StoreBackend leave a choice:
// 1. Numbers and fences grow within a shard, and the timers of a name are in one shard. Those of
//    different shards do not compare.
// 2. Requests that concern all shards (claim, count, list, look) see one shard after the other.
// 3. A list or a claim may end before its limit, if the payloads are large; then there is more.
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
  WFStoreReceipt receipt() const override { return server_.receipt; }
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
  };
  // Why the store has failed.
  struct Failure {
    int error = 0;
    std::string message;
  };

  static constexpr size_t kMostAtOnce = 100;
  static constexpr size_t kMostBytes = 1'000'000;

  RedisStoreBackend(RedisStorePlace place, const StoreBackendOptions& options, Clock* test_clock);

  int connect(const std::string& known_id, bool create, std::string* message);
  std::string time_argument() const;

  // Carries out jobs of any kind, once. Return false if the store has failed: see failure_.
  bool carry_out(std::span<StoreRequest* const> requests);
  bool claim_over_shards(StoreRequest& request);
  bool run(std::vector<Job>& jobs);
  bool run_round(std::vector<Lane>& lanes);
  std::string command_of(size_t shard, Lane& lane);
  bool take_reply(size_t shard, Lane& lane, RedisStoreLink::Reply& reply);
  void fail(int error, std::string message);
  void fail_lane(Lane& lane, bool in_doubt);
  // Ends what has no answer with the failure of the store.
  void settle(std::vector<Job>& jobs);
  void learn_time(const RedisStoreLink::Reply& reply, int64_t server_us);

  const RedisStorePlace place_;
  const StoreBackendOptions options_;
  Clock* const test_clock_;
  const std::string sender_;
  RedisStoreNews news_;
  std::unique_ptr<RedisStoreLink> link_;  // null when closed
  RedisStoreServer server_;
  std::string script_sha_;
  std::string full_script_sha_;
  Failure failure_;  // of the last execute()
  // The time of the server minus the monotonic clock.
  std::atomic<int64_t> offset_us_{0};
  bool knows_offset_ = false;
};

}  // namespace workflow
