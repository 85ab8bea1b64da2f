#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/Eventually.h"
#include "support/Program.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

// Disks of the system itself, small ones, that really are full or fail. They are mounted where only
// the program of the test sees them, and are gone with it.

namespace store_test {

// Gives this process and its children mounts of their own. Must be called before there is a second
// thread. Returns why that is impossible; empty: it was done.
inline std::string take_own_mounts() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWNS) != 0) {
    // Whoever may not do that may do it as the root of users of its own.
    if (::unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) {
      return std::string("unshare: ") + std::strerror(errno);
    }
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
    std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("mount: ") + std::strerror(errno);
  }
  return {};
}

// A file system in memory, which has room for so many bytes.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes);
    if (::mount("tmpfs", directory().c_str(), "tmpfs", 0, size.c_str()) != 0) {
      error_ = std::string("tmpfs: ") + std::strerror(errno);
    }
  }
  ~SmallDisk() { ::umount2(directory().c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // Why it was not mounted; empty: it was.
  const std::string& error() const { return error_; }
  std::string directory() const { return directory_.path("."); }
  std::string path(const std::string& name) const { return directory_.path(name); }

  int64_t free_bytes() const {
    struct statvfs room = {};
    if (::statvfs(directory().c_str(), &room) != 0) return -1;
    return static_cast<int64_t>(room.f_bavail * room.f_frsize);
  }
  // Another program takes all room that there is now, but for so many bytes.
  void fill(int64_t left = 0) const {
    const workflow::UniqueFd file(::open(path(kOther).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct stat status = {};
    ::fstat(file.get(), &status);
    int64_t size = status.st_size;
    int64_t more = (free_bytes() - left) / kBlock * kBlock;
    // The processes of a test may take some of it at the same time.
    for (int64_t step = more; more > 0 && step >= kBlock;) {
      step = std::min(step, more);
      if (::posix_fallocate(file.get(), size, step) == 0) {
        size += step;
        more -= step;
      } else {
        step = step / 2 / kBlock * kBlock;
      }
    }
  }
  // And gives all of it back.
  void make_room() const { std::filesystem::remove(path(kOther)); }

 private:
  static constexpr int64_t kBlock = 4096;
  static constexpr const char* kOther = "of-another-program";

  const test_support::FastDir directory_;
  std::string error_;
};

// A file system that the system makes read-only when it finds an error: ext4, in a file. Needs
// root and loop devices. It has no journal: with one, a sync that is under way when the
// journal is aborted may succeed although what it was to sync is gone (seen in Linux 6.18).
class BreakableDisk {
 public:
  BreakableDisk() {
    std::filesystem::create_directory(directory());
    std::ofstream(image()).flush();
    std::filesystem::resize_file(image(), kBytes);
    if (test_support::run_program("mkfs.ext4", {"-q", "-F", "-O", "^has_journal", image()})
            .exit_code != 0) {
      error_ = "mkfs.ext4 does not make a file system";
    } else {
      mount();
    }
  }
  ~BreakableDisk() { ::umount2(directory().c_str(), MNT_DETACH); }
  BreakableDisk(const BreakableDisk&) = delete;
  BreakableDisk& operator=(const BreakableDisk&) = delete;

  // Why it is not mounted; empty: it is.
  const std::string& error() const { return error_; }
  std::string directory() const { return place_.path("disk"); }

  // The system finds an error. Returns whether it did.
  bool break_it() const {
    struct stat status = {};
    std::error_code error;
    if (::stat(directory().c_str(), &status) != 0) return false;
    const std::string device =
        std::filesystem::canonical("/sys/dev/block/" + std::to_string(::major(status.st_dev)) +
                                       ':' + std::to_string(::minor(status.st_dev)),
                                   error)
            .filename();
    std::ofstream trigger("/sys/fs/ext4/" + device + "/trigger_fs_error");
    return static_cast<bool>(trigger << 1 << std::flush);
  }
  // Mounts it anew, which works again. No process may use it meanwhile.
  bool repair() {
    // The system may still let go of files of processes that have ended.
    test_support::eventually([this] {
      error_ = ::umount2(directory().c_str(), 0) == 0 ? "" : std::strerror(errno);
      return error_.empty() || errno != EBUSY;
    });
    if (error_.empty()) {
      mount();
    }
    return error_.empty();
  }

 private:
  static constexpr uintmax_t kBytes = uintmax_t{48} * 1024 * 1024;

  std::string image() const { return place_.path("image"); }
  void mount() {
    const auto mounted = test_support::run_program(
        "mount", {"-t", "ext4", "-o", "loop,errors=remount-ro", image(), directory()});
    error_ = mounted.exit_code == 0 ? "" : "mount -o loop does not work";
  }

  const test_support::FastDir place_;
  std::string error_;
};

}  // namespace store_test
