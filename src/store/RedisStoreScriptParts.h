#pragma once

namespace workflow {

// The parts of the scripts that RedisStoreScripts.h describes, as Lua text. Each part uses what
// those before it have declared.

// The variables and sets that all parts share. Invariants while a script runs:
//
// 1. `cache` has each timer that was read or made, as a table or still packed, or false for one
//    that is not there (any more). What is in the server for a timer in `changed`, `records` or
//    `erased` is out of date.
// 2. `later` and `fresh` have the members of sorted sets that are not written yet. Whoever reads
//    such a set calls settle() first, or looks into them as well. The same holds for
//    `ended_later`, `names_later` and what is `added` to `buckets`.
// 3. All is written when the script ends.
extern const char* const kRedisStoreState;

// A part that becomes the body of a Lua function, which is called at once and returns what the
// parts after it use.
//
// The server makes all functions of a script anew in each call. To make one, Lua looks for each
// variable of the enclosing function that it uses in a list of all such variables. In one large
// function with 90 small ones that took a sixth of the time of a short call. The functions of a
// part share what was looked for once, when the function around them was made. (That may use 60
// variables at most.)
struct RedisStoreScriptPart {
  const char* body;
  const char* gives;  // names with ", " between them
};

// The timers, and what is remembered of those that have ended.
extern const RedisStoreScriptPart kRedisStoreTimers;

// The requests that change timers for a user, and the answers that are remembered.
extern const RedisStoreScriptPart kRedisStoreUsers;

}  // namespace workflow
