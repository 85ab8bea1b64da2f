#pragma once

#include <string>

namespace workflow {

// The scripts that a Redis runs for a store of timers, as Lua text. They have all rules of
// StoreBackend inside, so that each request is decided by the server alone.
//
// The keys of a shard, in the order in which the scripts take them, are those of
// kRedisStoreKeys with the prefix "{namespace:shard}:". Numbers and times are strings of 19 decimal
// digits in the keys and the arguments, which keeps them exact and in order: Lua knows only
// doubles.
inline constexpr const char* kRedisStoreKeys[] = {
    "meta",      // a hash: the layout, the id of the store, the number of shards, counters
    "timers",    // a hash: number to what is known about the timer, packed
    "payloads",  // a hash: number to payload; a small one is packed with the timer instead
    "names",     // a sorted set in the order of bytes: name, number
    "queue",     // the same: kind, time, number of the timers that wait or are leased
    "marked",    // the same: end of the lease, number of the running timers that were cancelled
    "failed",    // the same: name, number of the timers that have failed
    "ended",     // a hash: name to the latest timer that has ended
    "ring",      // a list: the names of timers that have ended, the oldest first, packed by scripts
    "answers",   // a hash: session and number without two digits to answers to requests, packed
    "order",     // a hash: session and place, a number without gaps, to such a number
    "sessions",  // a hash: session to what is known about it, packed
    "used",      // a sorted set: the sessions in the order in which they were used last
    "leased",    // a sorted set in the order of bytes: end of the lease, number of leased timers
    // Never there. While a slot of a Cluster moves, a server runs a script only if it has all of
    // its keys. It would stop the script in the middle when that looks for a key which is not there
    // (any more). With this one it refuses the script before it has begun, until the slot has
    // moved.
    "absent",
};

// Opens a shard. ARGV: 1 the id of the store (of a new one, if there is none), 2 the number of
// shards, or empty for that of the store, 3 this shard, 4 what may be done if there is none ("make"
// or "find"), 5 the identity of the server, 6 the present time, or empty for that of the server,
// 7 "done" if the store is complete now, 8 the session that opens it for the first time, or empty,
// 9 how many requests it wants to be remembered, 10 the highest number that the shard is known to
// have given out. Returns {word, id, shards, complete, progress, last}. The epoch rises if the
// server is another one than before, or if the shard has given out less than argument 10 says.
//
// The progress of a shard is how many requests of users and ends of timers it has seen. `last` is
// the highest number of a timer or fence that it has given out. Neither goes back, unless the
// server loses something.
//
// A store of another layout is left as it is.
//
// Both scripts end with the error USEDUP, and change nothing, when Lua could soon not count the
// numbers and fences of the shard exactly any more.
const std::string& redis_store_opening();

// Carries out requests. ARGV: 1 the id of the store, 2 the present time, or empty for that of the
// server, 3 how many requests and ended timers are remembered, 4 the session that asks, 5 "full" if
// nothing may be stored, 6 the channel for news, 7 the identity of the server, 8 how many
// microseconds its clock is ahead of the time of the store, or empty if that is not known,
// 9 the highest number that the shard is known to have given out, 10 numbers of timers and 11 names
// that the requests are about, to be read together; then one argument for each request: its letter
// and its arguments. From the tenth on they are MessagePack. Returns {time, progress, last, one
// answer for each request}. If the shard has not been opened on this server, or has lost numbers
// since, it returns the error NEWSERVER and has done nothing. After requests about names with very
// many timers, or about very many leases, it leaves out those that follow, and has not begun with
// them; but never the first one.
//
// The first one is refused by a server whose memory is full, before it has done anything; the
// second one is not.
const std::string& redis_store_script();
const std::string& redis_store_script_when_full();

}  // namespace workflow
