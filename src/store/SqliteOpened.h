#pragma once

#include <string>

#include "util/Mutex.h"

namespace workflow {

// A store that this process has open, by its path. SQLite and fcntl(2) lock files for a process as
// a whole. So there are three rules, which files alone cannot enforce:
//
// 1. A child of fork(2) does not open a store that its parent had open at that moment: it has a
//    copy of what SQLite knows about its locks, and has not the locks. This stays so whatever the
//    child does with its copy of the parent's store.
// 2. The threads of a process create the files of a store one after the other.
// 3. A store that has one owner is open once in its process.
//
// Each store has an object of its own, which one thread at a time uses.
class SqliteOpened {
 public:
  SqliteOpened() = default;
  ~SqliteOpened() { leave(); }
  SqliteOpened(const SqliteOpened&) = delete;
  SqliteOpened& operator=(const SqliteOpened&) = delete;

  // To be called before the files are opened. Returns 0, ECHILD by rule 1, or EBUSY by rule 3.
  int enter(const std::string& path, bool owns);
  // To be called when the files have been closed. No effect without enter().
  void leave();

  // Held by a thread that opens, creates or closes the file of a queue (rule 2). Any thread.
  static Mutex& creation();

 private:
  std::string path_;  // empty: it has not been entered
  int forks_ = 0;     // how many calls of fork(2) there had been by then
};

}  // namespace workflow
