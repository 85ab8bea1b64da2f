#pragma once

#include <cstdint>

#include "store/SqliteConnection.h"

namespace workflow {

// The layout of the file of a store.
//
//   meta      one row: the counters of the store
//   kinds     the kinds of timers that there have been, so that rows have a small number instead
//   timers    every timer that has not ended, failed ones included
//   done      the timers that have ended last, numbered in the order of their ends
//   sessions  the engines whose requests are remembered
//   answers   the answers to requests with an id; NULL: asked for, and so used up
//
// Invariants of `timers`:
// 1. `wake` is the time from which a timer may be claimed: it is due or tried again then (waiting),
//    or its lease ends then (leased). It is NULL for a blocked or failed timer. So one index finds
//    what is next.
// 2. `follows` is the number of the timer that blocks this one, and NULL unless it is blocked. At
//    most one timer follows another.
// 3. `marked` is 1 only for a leased timer: it was cancelled while it ran.
// 4. Numbers and fences come from counters in `meta`, which never go back.
struct SqliteSchema {
  // "WfTS", in the header of the file.
  static constexpr int kApplicationId = 0x57665453;
  // Stores of a later layout are refused.
  static constexpr int kLayout = 1;

  enum State { kWaiting = 0, kLeased = 1, kBlocked = 2, kFailed = 3 };

  // Creates the tables in an empty file. Returns code() == SQLITE_OK.
  static bool create(SqliteConnection& connection, uint64_t identity, int64_t now_us);
};

}  // namespace workflow
