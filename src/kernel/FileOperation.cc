#include "kernel/FileOperation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>

#include "kernel/FileThreads.h"
#include "util/UniqueFd.h"

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

// O_NONBLOCK keeps a FIFO or a terminal from making open(2) wait for a peer, perhaps for ever.
UniqueFd open_path(const FileRequest& request) {
  constexpr mode_t kMode = 0644;
  const int flags = (request.reads() ? O_RDONLY : O_WRONLY | O_CREAT) | O_CLOEXEC | O_NOCTTY;
  const auto open_with = [&](int more) {
    return UniqueFd(uninterrupted([&] { return ::open(request.path, flags | more, kMode); }));
  };
  UniqueFd fd = open_with(O_NONBLOCK);
  if (!fd.valid() && errno == EWOULDBLOCK) {
    // Another process holds a lease (fcntl(2)), which the system revokes soon.
    fd = open_with(0);
  }
  return fd;
}

long call_on_path(const FileRequest& request) {
  const UniqueFd fd = open_path(request);
  if (!fd.valid()) return -errno;
  const long result = call(request, fd.get());
  if (result == -EAGAIN && ::fcntl(fd.get(), F_SETFL, 0) == 0) {
    // A device for which O_NONBLOCK affects more than opening.
    return call(request, fd.get());
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

long FileRequest::perform() const {
  return path ? call_on_path(*this) : call(*this, fd);
}

void FileOperation::run_queued() {
  threads_->execute(this);
}

}  // namespace workflow
