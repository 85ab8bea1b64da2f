#include "server/LingeringInput.h"

#include <cerrno>

#include "kernel/Socket.h"

namespace workflow {

LingeringInput::Result LingeringInput::discard(Stream& stream) {
  constexpr size_t kReadSize = size_t{64} * 1024;
  char buffer[kReadSize];
  const auto would_block = [] { return errno == EAGAIN || errno == EWOULDBLOCK; };
  ssize_t n = 0;
  if (stream.tls()) {
    bool drained = false;
    n = stream.read(buffer, sizeof buffer, &drained);
  }
  // The content of the bytes does not matter any more. But some TLS records carry no data, or only
  // end the session; their bytes must not count.
  if (n == 0 || (n < 0 && !would_block())) {
    n = socket_read(stream.fd(), buffer, sizeof buffer);
  }
  if (n < 0 && would_block()) return Result::kNothing;
  if (n <= 0) return Result::kEnd;
  size_ += static_cast<size_t>(n);
  is_sending_ = true;
  return Result::kSome;
}

}  // namespace workflow
