#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace workflow {

// Which file it is, and how large, without its times.
//
// A store looks at its files before each commit, and stat(2) would make that expensive: when
// somebody has asked for the times of a file, Linux 6.13 and later give the next write a time of
// its own (Documentation/filesystems/multigrain-ts.rst). An ext4 without a journal then writes the
// inode, too, in each sync, which takes half as much processor time again. statx(2) does not ask
// for times unless it is told to.
struct FileStatus {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0;

  bool is_same_file(const FileStatus& other) const {
    return device == other.device && inode == other.inode;
  }

  // Return 0 or an errno value.
  int read(const std::string& path) { return read(AT_FDCWD, path.c_str(), 0); }
  int read(int fd) { return read(fd, "", AT_EMPTY_PATH); }

 private:
  int read(int fd, const char* path, int flags) {
    struct statx status = {};
    if (::statx(fd, path, flags, STATX_INO | STATX_SIZE, &status) != 0) {
      // A filter of system calls may not know statx(2).
      return errno == ENOSYS || errno == EPERM ? read_all(fd, path, flags) : errno;
    }
    device = ::makedev(status.stx_dev_major, status.stx_dev_minor);
    inode = status.stx_ino;
    bytes = static_cast<int64_t>(status.stx_size);
    return 0;
  }
  int read_all(int fd, const char* path, int flags) {
    struct stat status = {};
    if (::fstatat(fd, path, &status, flags) != 0) return errno;
    device = status.st_dev;
    inode = status.st_ino;
    bytes = status.st_size;
    return 0;
  }
};

}  // namespace workflow
