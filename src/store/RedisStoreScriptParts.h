#pragma once

namespace workflow {

// The parts of the scripts that RedisStoreScripts.h describes, as Lua text.

// The variables that change and are used by several parts, and the sorted sets. Invariants while a
// script runs:
//
// 1. `cache` has each timer that was read or made, as a table or still packed, or false for one
//    that is not there (any more). What is in the server for a timer in `changed`, `records` (of
//    the timers' part) or `erased` is out of date.
// 2. `later`, `fresh` and `gone` have what is not written yet of sorted sets. Whoever reads such a
//    set calls settle() first, or looks into them as well. The same holds for `ended_later`
//    and `names_later` (of the timers' part) and for what is `added` to `buckets` (of the users').
// 3. All is written when the script ends, and before a claim that is not its first request. A claim
//    that finds a timer missing stops the script.
extern const char* const kRedisStoreState;

// A part that becomes the body of a Lua function, which is called at once and returns what the
// parts after it use of it. Only what never gets another value may be returned: the parts after it
// have a copy. A name that is missing there stops the script when it is used.
//
// The server makes all functions of a script anew in each call. To make one, Lua looks for each
// variable of the enclosing function that it uses in a list of all such variables. In one large
// function with 90 small ones that took a sixth of the time of a short call. Now Lua looks for a
// variable once for each part, when the function around it is made. (That may use 60 variables at
// most.)
struct RedisStoreScriptPart {
  const char* body;
  const char* gives;  // names with ", " between them
};

// The timers, and what is remembered of those that have ended.
extern const RedisStoreScriptPart kRedisStoreTimers;

// The requests that change timers for a user, and the answers that are remembered.
extern const RedisStoreScriptPart kRedisStoreUsers;

}  // namespace workflow
