#pragma once

#include <sqlite3.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include "store/Dial.h"
#include "store/FaultVfs.h"
#include "support/ChildProcess.h"

namespace store_test {

// The disk of a process of LedgerProcess.h, if LEDGER_DISK is set:
//
//   loss CHANGES DIRECTORY [lies]
//       The power is lost before that change of a file. What is left is written to the directory,
//       and the process ends. LEDGER_FILES names the files that are there in advance. With "lies"
//       a sync does nothing, and says that it did.
//   fail OPERATION COUNT CODE
//       FaultVfs::fail_once().
//   good
//       Nothing, but for what fail_soon() says.
//   readonly
//       While the dial is 1, nothing can be written (EROFS).
class Disk {
 public:
  Disk() {
    std::istringstream what(test_support::variable("LEDGER_DISK"));
    std::string how;
    if (!(what >> how)) return;
    vfs_ = std::make_unique<test_support::FaultVfs>();
    vfs_->use_for_all_files();
    if (how == "loss") {
      int64_t changes = 0;
      std::string directory;
      std::string lies;
      what >> changes >> directory >> lies;
      std::istringstream files(test_support::variable("LEDGER_FILES"));
      for (std::string file; files >> file;) {
        vfs_->adopt(file);
      }
      vfs_->lose_power_after(changes, directory, lies == "lies");
    } else if (how == "fail") {
      int operation = 0;
      int64_t count = 0;
      int code = 0;
      what >> operation >> count >> code;
      vfs_->fail_once(static_cast<test_support::FaultVfs::Operation>(operation), count, code);
    } else if (how != "good") {
      dial_ = std::make_unique<const Dial>(test_support::variable("LEDGER_DIAL"));
      be_read_only_at_times();
    }
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  bool has_failed() const { return vfs_ && vfs_->has_failed(); }
  // The next write fails, if this disk is one that fails.
  void fail_soon() {
    if (vfs_) {
      vfs_->fail_once(test_support::FaultVfs::kWrite, 0, SQLITE_IOERR_WRITE);
    }
  }

 private:
  using FaultVfs = test_support::FaultVfs;

  void be_read_only_at_times() {
    vfs_->set_fault([this](FaultVfs::Operation operation, bool) {
      if (dial_->get() == 0) return SQLITE_OK;
      errno = EROFS;
      switch (operation) {
        case FaultVfs::kWrite:
          return SQLITE_IOERR_WRITE;
        case FaultVfs::kTruncate:
          return SQLITE_IOERR_TRUNCATE;
        case FaultVfs::kDelete:
          return SQLITE_IOERR_DELETE;
        default:
          return SQLITE_OK;
      }
    });
  }

  std::unique_ptr<const Dial> dial_;
  std::unique_ptr<FaultVfs> vfs_;
};

}  // namespace store_test
