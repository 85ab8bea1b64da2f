#include "workflow/TLVMessage.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace protocol {

namespace {

constexpr size_t kTrustedValueBytes = size_t{64} * 1024;

void store(uint32_t number, unsigned char* to) {
  number = htonl(number);
  std::memcpy(to, &number, sizeof number);
}

uint32_t load(const unsigned char* from) {
  uint32_t number;
  std::memcpy(&number, from, sizeof number);
  return ntohl(number);
}

}  // namespace

TLVMessage::TLVMessage(TLVMessage&& message) noexcept : ProtocolMessage(std::move(message)) {
  take_content_of(message);
}

TLVMessage& TLVMessage::operator=(TLVMessage&& message) noexcept {
  if (this != &message) {
    take_content_of(message);
    ProtocolMessage::operator=(std::move(message));
  }
  return *this;
}

void TLVMessage::take_content_of(TLVMessage& message) noexcept {
  type_ = std::exchange(message.type_, 0);
  phase_ = std::exchange(message.phase_, Phase::kHead);
  head_size_ = std::exchange(message.head_size_, 0);
  value_left_ = std::exchange(message.value_left_, 0);
  refusal_ = std::exchange(message.refusal_, 0);
  value_ = std::move(message.value_);
  message.value_.clear();
  std::memcpy(head_, message.head_, kHeadSize);
  merged_.clear();
  message.merged_.clear();
}

int TLVMessage::encode(struct iovec vectors[], int max) {
  if (max < 1) {
    errno = EINVAL;
    return -1;
  }
  if (value_.size() > UINT32_MAX) {
    errno = EMSGSIZE;
    return -1;
  }
  unsigned char head[kHeadSize];
  store(static_cast<uint32_t>(type_), head);
  store(static_cast<uint32_t>(value_.size()), head + sizeof(uint32_t));
  if (max == 1 && !value_.empty()) {
    try {
      merged_.reserve(kHeadSize + value_.size());
      merged_.assign(reinterpret_cast<const char*>(head), kHeadSize);
      merged_.append(value_);
    } catch (const std::bad_alloc&) {
      errno = ENOMEM;
      return -1;
    }
    vectors[0] = {merged_.data(), merged_.size()};
    return 1;
  }
  std::memcpy(head_, head, kHeadSize);
  vectors[0] = {head_, kHeadSize};
  if (value_.empty()) return 1;
  vectors[1] = {value_.data(), value_.size()};
  return 2;
}

int TLVMessage::append(const void* buf, size_t* size) {
  const char* data = static_cast<const char*>(buf);
  size_t taken = 0;
  if (phase_ == Phase::kHead) {
    taken = std::min(*size, kHeadSize - head_size_);
    if (taken > 0) std::memcpy(head_ + head_size_, data, taken);
    head_size_ += static_cast<uint32_t>(taken);
    if (head_size_ < kHeadSize) return 0;
    if (take_head() < 0) return -1;
  }
  if (phase_ == Phase::kRefused) return refuse(refusal_);
  size_t count = std::min<size_t>(*size - taken, value_left_);
  if (count > 0) {
    try {
      value_.append(data + taken, count);
    } catch (const std::bad_alloc&) {
      return refuse(ENOMEM);
    }
  }
  value_left_ -= static_cast<uint32_t>(count);
  *size = taken + count;
  if (value_left_ > 0) return 0;
  phase_ = Phase::kComplete;
  return 1;
}

int TLVMessage::take_head() {
  uint32_t length = load(head_ + sizeof(uint32_t));
  if (size_limit < kHeadSize || length > size_limit - kHeadSize) return refuse(EMSGSIZE);
  try {
    value_.clear();
    value_.reserve(std::min<size_t>(length, kTrustedValueBytes));
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM);
  }
  type_ = static_cast<int>(load(head_));
  value_left_ = length;
  phase_ = Phase::kValue;
  return 0;
}

int TLVMessage::refuse(int error) {
  phase_ = Phase::kRefused;
  refusal_ = error;
  errno = error;
  return -1;
}

}  // namespace protocol
