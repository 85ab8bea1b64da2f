#pragma once

#include <sqlite3.h>
#include <sys/statvfs.h>

#include <algorithm>
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
//   small DIRECTORY
//       The disk with that directory has as many bytes as the dial says.
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
      if (how == "small") {
        std::string directory;
        what >> directory;
        be_small(directory);
      } else {
        be_read_only_at_times();
      }
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

  // For a program whose own statvfs(3) tells of this disk: changes what the system says of the
  // room.
  static void tell_room(struct statvfs* room) {
    if (small_ == nullptr) return;
    small_->vfs_->resize_disk(small_->dial_->get());
    const int64_t bytes = std::max<int64_t>(small_->vfs_->free_bytes(), 0);
    room->f_bavail = static_cast<fsblkcnt_t>(bytes) / room->f_frsize;
  }

 private:
  using FaultVfs = test_support::FaultVfs;

  void be_small(const std::string& directory) {
    vfs_->set_disk(directory, dial_->get());
    vfs_->set_fault([this](FaultVfs::Operation, bool) {
      vfs_->resize_disk(dial_->get());
      return SQLITE_OK;
    });
    small_ = this;
  }

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

  static inline Disk* small_ = nullptr;
  std::unique_ptr<const Dial> dial_;
  std::unique_ptr<FaultVfs> vfs_;
};

}  // namespace store_test
