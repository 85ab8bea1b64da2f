#include "client/ResponseReader.h"

#include <cerrno>
#include <new>
#include <utility>

#include "kernel/Datagram.h"

namespace workflow {

namespace {

thread_local char buffer[size_t{64} * 1024];

}  // namespace

void ResponseReader::end() {
  if (response_) {
    std::exchange(response_, nullptr)->set_channel(nullptr);
  }
}

ResponseReader::Input ResponseReader::read(Stream& stream, bool* drained, ClientFailure* failure) {
  DatagramAddress from;
  *drained = false;
  const ssize_t n = datagrams_ ? receive_datagram(stream.fd(), buffer, sizeof buffer, &from)
                               : stream.read(buffer, sizeof buffer, drained);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return Input::kNothing;
  }
  if (n < 0) {
    const int error = errno;
    *failure = ClientFailure::of_stream(error, stream);
    failure->received = datagrams_ && error == EMSGSIZE;
    return Input::kFailed;
  }
  size_ = static_cast<size_t>(n);
  return n > 0 || datagrams_ ? Input::kBytes : Input::kEnd;
}

ResponseReader::Parsed ResponseReader::parse(ClientFailure* failure) {
  size_t taken = size_;
  errno = 0;
  int result = -1;
  try {
    result = response_->append(buffer, &taken);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  if (result == 0) {
    return Parsed::kPart;
  }
  if (result < 0 || (datagrams_ && taken != size_)) {
    const int error = result < 0 && errno != 0 ? errno : EBADMSG;
    *failure = ClientFailure::of_system(error);
    return Parsed::kFailed;
  }
  return taken == size_ ? Parsed::kWhole : Parsed::kWholeAndMore;
}

}  // namespace workflow
