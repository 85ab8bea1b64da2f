#pragma once

#include <cstddef>
#include <vector>

#include "store/RedisStoreCodec.h"
#include "store/StoreRequest.h"

namespace workflow {

// What the replies of scripts mean for the requests of a store. Pure functions; see
// RedisStoreScripts.h, and RedisStoreCodec.h for what was asked.

// Gives the request the answer that its parts have got. Returns false if they make no sense.
bool redis_store_answer(const std::vector<RedisStorePart>& parts, size_t shards,
                        StoreRequest* request);

// Looks at the replies to a claim that only peeked, and returns for each shard what it should
// claim, such that the timers of all shards together are those that are due for longest. Returns
// false if the replies make no sense.
bool redis_store_share(const ClaimRequest& claim, const std::vector<RedisStorePart>& peeked,
                       std::vector<ClaimRequest>* shares);

}  // namespace workflow
