#pragma once

#include <sqlite3.h>

#include <cstdint>

namespace workflow {

// A virtual file system for SQLite that notices damage. It lies over another one, and changes the
// files of databases only:
//
// 1. Each page of a database has a seal in its last 8 bytes: a checksum of the rest of the page and
//    of its number. It is written with the page, and verified with each read of any part of it, but
//    for the header of the database: the first 100 bytes, if they are read alone. SQLite leaves
//    these bytes alone if that was configured when the database was created
//    (SQLITE_FCNTL_RESERVE_BYTES).
// 2. Each page that is read from a write-ahead log is verified by the checksum of its frame, which
//    SQLite itself looks at only when it recovers a log. This needs `PRAGMA cache_spill = OFF`: the
//    frames of a transaction that spills have no valid checksums before the commit.
// 3. A page beyond the end of a database is damage, too: SQLite would take it for an empty page.
//
// Damage is reported as SQLITE_IOERR_DATA. Rollback journals, which exist only while a store is
// being created, are not sealed.
struct SqliteSeals {
  static constexpr int kPageBytes = 4096;
  static constexpr int kSealBytes = 8;

  // Returns the name of the file system that seals what is written to `base`, a name too; null: the
  // default one. Registers it if it is new; it stays for the life of the process. Null if `base` is
  // unknown or memory has run out. Thread-safe.
  static const char* over(const char* base);

  // The seal of a page: of its first kPageBytes - kSealBytes bytes.
  static uint64_t of(const unsigned char* page, uint64_t number);
  // Whether a whole page has the right seal.
  static bool is_whole(const unsigned char* page, uint64_t number);

  // The errno value of the last write or truncation that failed on this thread, once; 0: none has.
  // sqlite3_system_errno() does not say why a commit has failed.
  static int take_write_error();
};

}  // namespace workflow
