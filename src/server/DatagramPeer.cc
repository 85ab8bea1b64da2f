#include <cerrno>
#include <cstring>

#include "server/DatagramPort.h"

namespace workflow {

void DatagramPeer::send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) {
  port_.reply(this, exchange, reply);
}

void DatagramPeer::drop() {
  MutexLock lock(port_.mutex_);
  replied_ = true;
  port_.take_out(this);
}

int DatagramPeer::push(const void* buffer, size_t size) {
  const struct iovec vector = {const_cast<void*>(buffer), size};
  MutexLock lock(port_.mutex_);
  const int error = replied_ || cut_ ? ENOTCONN : port_.send(*this, &vector, 1);
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

int DatagramPeer::write_now(const void* buffer, size_t size) {
  return push(buffer, size);
}

int DatagramPeer::peer_addr(struct sockaddr* address, socklen_t* length) const {
  if (*length < address_.peer_length) {
    errno = ENOBUFS;
    return -1;
  }
  std::memcpy(address, &address_.peer, address_.peer_length);
  *length = address_.peer_length;
  return 0;
}

int DatagramPeer::begin_stream(std::shared_ptr<ReplyStream> /*stream*/, const std::string& /*head*/,
                               int /*send_timeout*/) {
  errno = EOPNOTSUPP;
  return -1;
}

bool DatagramPeer::shutting_down() const {
  return port_.shutting_down();
}

ServerHost& DatagramPeer::host() const {
  return port_.host_;
}

void DatagramPeer::release() {
  if (!references_.drop()) return;
  DatagramPort& port = port_;
  WFConnection* const user = user_;
  delete this;
  port.request_ended(user);
}

}  // namespace workflow
