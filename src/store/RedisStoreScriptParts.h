#pragma once

namespace workflow {

// The first two parts of the scripts that RedisStoreScripts.h describes, as Lua text. Each part
// uses what those before it have declared.

// The state of a call, and the timers. Invariants while a script runs:
//
// 1. `cache` has each timer that was read or made, as a table or still packed, or false for one
//    that is not there (any more). What is in the server for a timer in `changed`, `records` or
//    `erased` is out of date.
// 2. `later` and `fresh` have the members of sorted sets that are not written yet. Whoever reads
//    such a set calls settle() first, or looks into them as well. The same holds for
//    `ended_later`, `names_later` and what is `added` to `buckets`.
// 3. All is written when the script ends.
extern const char* const kRedisStoreTimers;

// The requests that change timers for a user, and the answers that are remembered.
extern const char* const kRedisStoreUsers;

}  // namespace workflow
