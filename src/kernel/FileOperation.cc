#include "kernel/FileOperation.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <numeric>

#include "kernel/FileThreads.h"
#include "kernel/FileWait.h"
#include "util/UniqueFd.h"
#include "util/VirtualScheduler.h"

namespace workflow {

namespace {

template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

long call_once(const FileRequest& request, int fd) {
  using Kind = FileRequest::Kind;
  switch (request.kind) {
    case Kind::kRead:
      return ::pread(fd, request.buffer, request.size, request.offset);
    case Kind::kWrite:
      return ::pwrite(fd, request.buffer, request.size, request.offset);
    case Kind::kReadVector:
      return ::preadv(fd, request.vector, request.vector_count, request.offset);
    case Kind::kWriteVector:
      return ::pwritev(fd, request.vector, request.vector_count, request.offset);
    case Kind::kSync:
      return ::fsync(fd);
    case Kind::kDataSync:
      return ::fdatasync(fd);
  }
  errno = EINVAL;
  return -1;
}

// What the call returned, or the negated errno.
long call(const FileRequest& request, int fd) {
  const long result = uninterrupted([&] { return call_once(request, fd); });
  return result < 0 ? -errno : result;
}

// Whether the call may wait for a device: its user has not asked it not to wait, and it is not
// refused at once. A call for nothing tells that, and asks nothing of the device.
bool may_wait_for_device(const FileRequest& request, int fd) {
  struct stat status = {};
  if (!(request.reads() || request.writes()) || ::fstat(fd, &status) != 0 ||
      !S_ISCHR(status.st_mode) || (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) {
    return false;
  }
  const struct iovec nothing = {};
  return (request.reads() ? ::preadv(fd, &nothing, 1, request.offset)
                          : ::pwritev(fd, &nothing, 1, request.offset)) == 0;
}

// The same as call(), but it waits for a device before the buffer is used, not inside. A call that
// finds that another one was faster than it waits inside all the same.
long call_with(FileWait& wait, const FileRequest& request, int fd) {
  if (may_wait_for_device(request, fd)) {
    const short events = request.reads() ? POLLIN : POLLOUT;
    if (wait.wait(fd, events, FileWait::kForEver) == FileWait::Result::kInterrupted) {
      return -wait.error();
    }
  }
  return call(request, fd);
}

// Once the lease is gone. Its holder tells nobody, so this looks again and again.
UniqueFd open_when_allowed(FileWait& wait, const std::function<UniqueFd(int)>& open_with) {
  constexpr int kMostMs = 32;
  for (int ms = 1;; ms = std::min(2 * ms, kMostMs)) {
    switch (wait.wait(-1, 0, ms)) {
      case FileWait::Result::kInterrupted:
        errno = wait.error();
        return UniqueFd();
      case FileWait::Result::kCannot:
        return open_with(0);
      case FileWait::Result::kOver:
        break;
    }
    UniqueFd fd = open_with(O_NONBLOCK);
    if (fd.valid() || errno != EWOULDBLOCK) {
      return fd;
    }
  }
}

// O_NONBLOCK keeps a FIFO or a terminal from making open(2) wait for a peer, perhaps for ever.
UniqueFd open_path(const FileRequest& request, FileWait* wait) {
  constexpr mode_t kMode = 0644;
  const int flags = (request.reads() ? O_RDONLY : O_WRONLY | O_CREAT) | O_CLOEXEC | O_NOCTTY;
  const auto open_with = [&](int more) {
    return UniqueFd(uninterrupted([&] { return ::open(request.path, flags | more, kMode); }));
  };
  UniqueFd fd = open_with(O_NONBLOCK);
  if (!fd.valid() && errno == EWOULDBLOCK) {
    // Another process holds a lease (fcntl(2)), which the system takes from it before long.
    fd = wait ? open_when_allowed(*wait, open_with) : open_with(0);
  }
  return fd;
}

long call_on_path(const FileRequest& request, FileWait* wait) {
  const UniqueFd fd = open_path(request, wait);
  if (!fd.valid()) {
    return -errno;
  }
  const long result = call(request, fd.get());
  if (result == -EAGAIN && ::fcntl(fd.get(), F_SETFL, 0) == 0) {
    // A device that took O_NONBLOCK for more than opening.
    return wait ? call_with(*wait, request, fd.get()) : call(request, fd.get());
  }
  return result;
}

}  // namespace

size_t FileRequest::bytes() const {
  switch (kind) {
    case Kind::kRead:
    case Kind::kWrite:
      return size;
    case Kind::kReadVector:
    case Kind::kWriteVector:
      return std::accumulate(
          vector, vector + vector_count, size_t{0},
          [](size_t sum, const struct iovec& part) { return sum + part.iov_len; });
    case Kind::kSync:
    case Kind::kDataSync:
      break;
  }
  return 0;
}

long FileRequest::perform(FileWait* wait) const {
  if (path) {
    return call_on_path(*this, wait);
  }
  return wait ? call_with(*wait, *this, fd) : call(*this, fd);
}

void FileOperation::end_early(int error) {
  schedule_point();
  ending_.store(error, std::memory_order_release);
}

void FileOperation::take_turn() {
  threads_->carry_out(this);
}

}  // namespace workflow
