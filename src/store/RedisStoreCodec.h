#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/StoreRequest.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// The requests of a store as its scripts take them. Pure functions; see RedisStoreScripts.h, and
// RedisStoreReplies.h for the replies.
//
// A shard counts its timers and fences by itself. Outside their numbers are
// (number of the shard) * shards + shard, so that no two shards give out the same.

// Lua counts exactly up to this number.
inline constexpr int64_t kLuaCountsTo = int64_t{1} << 53;

// What one shard is asked for the sake of a request.
struct RedisStorePart {
  size_t shard = 0;
  char letter = ' ';
  std::vector<std::string> arguments;
  // The reply, and how far the clock of its server was ahead of the time of the store.
  protocol::RedisValue reply;
  int64_t ahead_us = 0;

  size_t bytes() const;
  // Whether a script leaves what follows to the next one.
  bool ends_script() const;
  // Letter and arguments as one argument of a script.
  std::string packed() const;
  // Appends what the script should read before it begins: numbers of timers, and names.
  void look_ahead(std::string* numbers, std::string* names) const;
};

// A session as the scripts know it.
std::string redis_store_session(uint64_t session);

// Returns what has to be asked of which shards. `session`: the one that asks, which is not named
// in its own requests. A claim is divided into one part for each shard, by `peek` such that nothing
// is claimed.
std::vector<RedisStorePart> redis_store_parts(const StoreRequest& request, size_t shards,
                                              uint64_t session, bool peek = false);

}  // namespace workflow
