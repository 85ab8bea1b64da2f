#pragma once

#include <cstdint>

#include "store/SqliteConnection.h"

namespace workflow {

// How many processes use a store, which decides what is in its file. The files hold these numbers.
enum class SqliteLayout {
  kShared = 1,  // any number of processes
  kOwned = 2    // one process
};

// The tables in the file of a store. In a shared one:
//
//   meta      one row: the counters of the store
//   kinds     the kinds of timers that there have been, so that rows have a small number instead
//   timers    every timer that has not ended, failed ones included
//   done      the timers that have ended last, numbered in the order of their ends
//   sessions  the engines whose requests are remembered
//   answers   the answers to requests with an id; NULL: asked for, and so used up
//
// In one that is owned by a process:
//
//   meta      one row: the counters of the store. `fence` is the last one that may have been given,
//             and `ended` the position of the next timer that ends.
//   journal   what has happened to the timers, numbered in the order in which it did
//   (MemoryJournal)
//
// Invariants of `timers`:
// 1. `wake` is the time from which a timer may be claimed: it is due or tried again then (waiting),
//    or its lease ends then (leased). It is NULL for a blocked or failed timer. So one index finds
//    what is next, and one over the leased timers how many they are.
// 2. `follows` is the number of the timer that blocks this one, and NULL unless it is blocked. At
//    most one timer follows another.
// 3. `marked` is 1 only for a leased timer: it was cancelled while it ran.
// 4. Numbers and fences come from counters in `meta`, which never go back.
struct SqliteSchema {
  // "WfTS", in the header of the file.
  static constexpr int kApplicationId = 0x57665453;
  // Stores of a later layout are refused.
  static constexpr int kLastLayout = 2;

  // Makes the last index of a shared store where it is missing: it was added without a new layout.
  static constexpr char kLeasedIndex[] =
      "CREATE INDEX IF NOT EXISTS timers_leased ON timers(wake) WHERE state = 1";

  enum State { kWaiting = 0, kLeased = 1, kBlocked = 2, kFailed = 3 };

  // Creates the tables in an empty file. Returns code() == SQLITE_OK.
  static bool create(SqliteConnection& connection, SqliteLayout layout, uint64_t identity,
                     int64_t now_us);
};

}  // namespace workflow
