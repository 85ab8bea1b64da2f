#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "store/SqliteConnection.h"
#include "util/UniqueFd.h"

namespace workflow {

// The side file `<store>-queue`: a page of memory that all processes share which have the store
// open, and locks by which they queue for the next transaction.
//
// SQLite's own lock lets in any process that happens to try at the right time, and those that come
// often starve the others. Here each one draws a ticket, and waits until the ticket before it was
// given back. Tickets are about fairness only: SQLite's lock still guards the file. So two stores
// in one process cost some fairness, and a process that was stopped makes the next one wait for all
// of its patience. If the file is deleted, a process that creates a new one shares no page with the
// others: they miss each other's news and failed syncs, and a loss of commits may go unnoticed.
//
// A store that one process owns needs this file: the lock of own() is what keeps others out. If
// is_same() is false, the file was deleted or replaced, and the owner must not go on.
//
// enter() and leave() are called by one thread at a time, open() and close() while no other thread
// uses this object, and the others by any thread.
//
// Invariants:
// 1. The holder of ticket t has locked byte kTickets + t of the file, by a lock that the system
//    takes back when the process dies (fcntl(2)). A ticket is drawn by locking its byte first and
//    then moving the counter, so that a ticket before the counter is never unlocked by mistake.
// 2. `commits` is never larger than the number of commits that are durable in the store. A store
//    that has fewer has lost some.
// 3. The page may be lost with the power. All zeros mean that nothing is known.
class SqliteQueue {
 public:
  struct Page {
    uint64_t magic;
    // Processes share these words, which are lock-free. All accesses are sequentially consistent by
    // default. Release when a word is changed and acquire when it is read would be enough:
    // - `commits` is raised after a commit, and is read before the store is read.
    // - `ticket` changes after a byte was locked, `turns` after one was unlocked. Both are read
    //   before a look at a lock. The system orders the locks, and the waits of a futex.
    // - `news`: see SqliteNews.
    // - `failed_syncs` is set to 0 after all was copied into the file, unless it has changed since.
    // - `identity` and `disk_is_full` publish nothing but themselves.
    std::atomic<uint64_t> identity;      // of the store; 0: not known
    std::atomic<int64_t> commits;        // of the store, at least
    std::atomic<uint64_t> ticket;        // the next one
    std::atomic<uint32_t> turns;         // changes when a ticket is given back; a futex
    std::atomic<uint32_t> news;          // changes when others have to look; a futex
    std::atomic<uint32_t> disk_is_full;  // so there is no reserve
    // How many syncs have failed since all of the log was last copied into the file. Unless it is
    // 0, what is in the log may not be on the disk, although it can be read.
    std::atomic<uint32_t> failed_syncs;
  };

  SqliteQueue() = default;
  ~SqliteQueue() { close(); }
  SqliteQueue(const SqliteQueue&) = delete;
  SqliteQueue& operator=(const SqliteQueue&) = delete;

  // Opens the file, and creates it if it is missing. `patience_ms` is as for lock_creation().
  // Returns 0, or an errno value and a message.
  int open(const std::string& path, std::string* message,
           int patience_ms = SqliteConnection::kBusyMs);
  void close();
  bool is_open() const { return page_ != nullptr; }
  // Whether the page can be used. It could be touched no more if somebody had cut the file.
  bool is_whole() const;
  // Whether the path still leads to the file that was opened. Otherwise the lock of own() keeps
  // nobody out.
  bool is_same() const;

  // While a process creates the store, others wait. Returns 0, or an errno value and a message:
  // EBUSY if that takes longer than `patience_ms`, because the process was stopped for example.
  int lock_creation(std::string* message, int patience_ms = SqliteConnection::kBusyMs);
  void unlock_creation();

  // Takes the lock of the process that owns the store, until the file is closed. Returns 0, EBUSY
  // if another process has it, or another errno value.
  int own();

  // Waits for the turn of this process, but not longer than `patience_ms`.
  void enter(int patience_ms);
  void leave();

  // Notes that the store has that many commits.
  void committed(int64_t commits);
  Page& page() { return *page_; }

  // wake() wakes the threads of all processes that wait() for `word`. wait() returns at once if
  // `word` differs from `seen`, otherwise when it is woken, and after `timeout_ms` at the latest.
  static void wake(std::atomic<uint32_t>& word);
  static void wait(std::atomic<uint32_t>& word, uint32_t seen, int timeout_ms);

 private:
  // Sets or removes (F_UNLCK) the lock of a byte. Returns 0, EBUSY if another process has it, or
  // another errno value.
  int lock(int type, int64_t byte) const;
  // The process that has locked the byte, unless none but this one has. It is 0 or less if the
  // system does not tell.
  std::optional<pid_t> holder(int64_t byte) const;
  bool draw_ticket(int64_t deadline_ns);

  std::string path_;
  UniqueFd file_;
  Page* page_ = nullptr;
  bool has_ticket_ = false;
  uint64_t ticket_ = 0;
};

}  // namespace workflow
