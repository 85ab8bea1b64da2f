#include "store/SqliteReserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "util/UniqueFd.h"

namespace workflow {

int SqliteReserve::make() const {
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) {
    return errno;
  }
  const int error = ::posix_fallocate(file.get(), 0, bytes_);
  if (error != 0 && ::ftruncate(file.get(), 0) != 0) {
    return errno;
  }
  return error;
}

void SqliteReserve::release() const {
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (file.valid()) {
    // If even this fails, the disk stays full, which the next attempt finds out.
    [[maybe_unused]] const int ignored = ::ftruncate(file.get(), 0);
  }
}

}  // namespace workflow
