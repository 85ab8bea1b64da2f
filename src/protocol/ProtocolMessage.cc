#include "workflow/ProtocolMessage.h"

namespace protocol {

int ProtocolMessage::encode(struct iovec*, int) {
  errno = ENOSYS;
  return -1;
}

int ProtocolMessage::append(const void* buf, size_t* size) {
  if (delegating_) {
    errno = ENOSYS;
    return -1;
  }
  delegating_ = true;
  int result = append(buf, *size);
  delegating_ = false;
  return result;
}

int ProtocolMessage::append(const void* buf, size_t size) {
  if (delegating_) {
    errno = ENOSYS;
    return -1;
  }
  delegating_ = true;
  size_t taken = size;
  int result = append(buf, &taken);
  delegating_ = false;
  if (result > 0 && taken < size) {
    errno = EBADMSG;
    return -1;
  }
  return result;
}

int ProtocolMessage::feedback(const void* buf, size_t size) {
  if (channel_ == nullptr) {
    errno = ENOTCONN;
    return -1;
  }
  return channel_->write_now(buf, size);
}

void ProtocolMessage::renew() {
  if (channel_ != nullptr) channel_->restart_receive();
}

}  // namespace protocol
