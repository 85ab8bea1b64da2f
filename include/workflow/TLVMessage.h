#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

namespace protocol {

// A message of type, length and value. On the wire it has four bytes of type and four bytes of
// length, both in network byte order, and then that many bytes of value. The value may be any
// bytes, or none.
//
// The message owns its value. Not thread-safe. Movable; a moved-from message is empty and usable
// again. Users derive from it to give the value a meaning.
//
// The size limit counts the whole message, its head of 8 bytes included. It is checked as soon as
// the head has arrived (EMSGSIZE). At most 64 KiB are allocated because of an announced length;
// beyond that memory is allocated as the bytes arrive. If there is no memory, append() and encode()
// fail with ENOMEM.
class TLVMessage : public ProtocolMessage {
 public:
  // The type may be any 32 bits. It is 0 at first.
  int get_type() const { return type_; }
  void set_type(int type) { type_ = type; }

  // Never returns null. The user may change the value. The pointer is valid until the message is
  // destroyed.
  std::string *get_value() { return &value_; }
  const std::string *get_value() const { return &value_; }
  void set_value(std::string value) { value_ = std::move(value); }

  // These override ProtocolMessage. encode() fails with EMSGSIZE for a value of 4 GiB or more. A
  // complete message takes no more bytes, and a message that was refused stays refused.
  int encode(struct iovec vectors[], int max) override;
  int append(const void *buf, size_t *size) override;
  using ProtocolMessage::append;

  TLVMessage() = default;
  TLVMessage(TLVMessage &&message) noexcept;
  TLVMessage &operator=(TLVMessage &&message) noexcept;

 private:
  static constexpr size_t kHeadSize = 8;

  enum class Phase : uint8_t { kHead, kValue, kComplete, kRefused };

  int take_head();
  int refuse(int error);
  void take_content_of(TLVMessage &message) noexcept;

  int type_ = 0;
  // The state of the message being received.
  Phase phase_ = Phase::kHead;
  uint32_t head_size_ = 0;   // bytes of the head that have arrived
  uint32_t value_left_ = 0;  // bytes of the value still to arrive
  int refusal_ = 0;          // errno once refused
  std::string value_;
  // The head as it is received piece by piece, or as encode() writes it.
  unsigned char head_[kHeadSize] = {};
  // Head and value in one block, used when encode() is given a single vector.
  std::string merged_;
};

using TLVRequest = TLVMessage;
using TLVResponse = TLVMessage;

}  // namespace protocol
