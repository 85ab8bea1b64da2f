#include "workflow/ProtocolMessage.h"

#include <algorithm>
#include <cerrno>

namespace protocol {

namespace {

// Passes what a wrapped message sends while it receives on to its wrapper.
class Relay final : public MessageChannel {
 public:
  explicit Relay(ProtocolMessage* wrapper) : wrapper_(wrapper) {}
  int write_now(const void* buf, size_t size) override { return wrapper_->feedback(buf, size); }
  void restart_receive() override { wrapper_->renew(); }
  bool serves(std::string_view authority) override {
    MessageChannel* const channel = wrapper_->get_channel();
    return channel == nullptr || channel->serves(authority);
  }

 private:
  ProtocolMessage* const wrapper_;
};

}  // namespace

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

int ProtocolMessage::end_of_input() {
  errno = ECONNRESET;
  return -1;
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

int ProtocolWrapper::encode(struct iovec vectors[], int max) {
  if (message == nullptr) {
    errno = EINVAL;
    return -1;
  }
  return message->encode(vectors, max);
}

int ProtocolWrapper::append(const void* buf, size_t* size) {
  if (message == nullptr) {
    errno = EINVAL;
    return -1;
  }
  return append_to(message, buf, size, size_limit);
}

int ProtocolWrapper::end_of_input() {
  return message != nullptr ? message->end_of_input() : ProtocolMessage::end_of_input();
}

int ProtocolWrapper::append_to(ProtocolMessage* inner, const void* buf, size_t* size,
                               size_t limit) {
  // Connects the two only during this call, because neither message knows how long the other lives.
  MessageChannel* channel = inner->get_channel();
  size_t own_limit = inner->get_size_limit();
  Relay relay(this);
  inner->set_channel(&relay);
  inner->set_size_limit(std::min(own_limit, limit));
  int result = inner->append(buf, size);
  inner->set_channel(channel);
  inner->set_size_limit(own_limit);
  return result;
}

}  // namespace protocol
