#include "client/ResponseReader.h"

#include <cerrno>
#include <new>
#include <utility>

#include "kernel/Datagram.h"

namespace workflow {

void ResponseReader::end() {
  if (response_) {
    std::exchange(response_, nullptr)->set_channel(nullptr);
  }
}

ResponseReader::Result ResponseReader::read(Stream& stream, Buffer& buffer, bool* drained,
                                            ClientFailure* failure) {
  DatagramAddress from;
  *drained = false;
  const ssize_t n = datagrams_ ? receive_datagram(stream.fd(), buffer.data(), buffer.size(), &from)
                               : stream.read(buffer.data(), buffer.size(), drained);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Result::kNothing;
  if (n < 0) {
    const int error = errno;
    *failure = ClientFailure::of_stream(error, stream);
    failure->received = datagrams_ && error == EMSGSIZE;
    return Result::kFailed;
  }
  size_ = static_cast<size_t>(n);
  *failure = ClientFailure::of_system(ECONNRESET);
  return n > 0 || datagrams_ ? Result::kPart : Result::kEnd;
}

ResponseReader::Result ResponseReader::parse(const Buffer& buffer, ClientFailure* failure) {
  size_t taken = size_;
  errno = 0;
  int result = -1;
  try {
    result = response_->append(buffer.data(), &taken);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  if (result == 0) return Result::kPart;
  if (result < 0 || (datagrams_ && taken != size_)) {
    const int error = result < 0 && errno != 0 ? errno : EBADMSG;
    *failure = ClientFailure::of_system(error);
    return Result::kFailed;
  }
  return taken == size_ ? Result::kWhole : Result::kWholeAndMore;
}

}  // namespace workflow
