#pragma once

#include <cstdint>

namespace redis_test {

// What redis/SyncNotes.cc writes next to a file when that was synced, into the file of the same
// name with kSyncNoteEnding behind it.
struct SyncNote {
  int64_t bytes = 0;     // how many the file had when the last sync that is noted began
  int64_t began_ns = 0;  // when it was written last before that, by CLOCK_MONOTONIC
  int64_t syncs = 0;     // all that have succeeded, also those that are not noted
};

inline constexpr const char* kSyncNoteEnding = ".synced";

}  // namespace redis_test
