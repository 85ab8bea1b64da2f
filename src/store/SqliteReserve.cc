#include "store/SqliteReserve.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "util/UniqueFd.h"

namespace workflow {

int SqliteReserve::make() const {
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return errno;
  const int error = ::posix_fallocate(file.get(), 0, bytes_);
  if (error != 0) {
    // What was occupied of it stays occupied if even this fails. The error is the first one.
    [[maybe_unused]] const int ignored = ::ftruncate(file.get(), 0);
  }
  return error;
}

int64_t SqliteReserve::free_bytes() const {
  if (free_bytes_) return free_bytes_(path_);
  struct statvfs status = {};
  if (::statvfs(path_.c_str(), &status) != 0) return INT64_MAX;  // who needs the room will see
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

bool SqliteReserve::is_full(int error) {
  return error == ENOSPC || error == EDQUOT;
}

void SqliteReserve::release() const {
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (file.valid()) {
    // If even this fails, the disk stays full, which the next attempt finds out.
    [[maybe_unused]] const int ignored = ::ftruncate(file.get(), 0);
  }
}

}  // namespace workflow
