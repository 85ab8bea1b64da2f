#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

namespace protocol {

// A message of type, length and value. On the wire: four bytes of type, four bytes of length, both
// in network byte order, and that many bytes of value, which may be any bytes, or none.
//
// Owns its value. Not thread-safe. Movable; what is moved from is empty and usable again. Users
// derive from it to give the value a meaning.
//
// The size limit counts the whole message, its head of 8 bytes included. It is checked as soon as
// the head is there (EMSGSIZE), and an announced length is believed only up to 64 KiB: beyond that
// memory is taken as the bytes arrive. Out of memory, append() and encode() fail with ENOMEM.
class TLVMessage : public ProtocolMessage {
 public:
  // Any 32 bits; 0 at first.
  int get_type() const { return type_; }
  void set_type(int type) { type_ = type; }

  // Never null; the user may change it. Valid until the message is destroyed.
  std::string *get_value() { return &value_; }
  const std::string *get_value() const { return &value_; }
  void set_value(std::string value) { value_ = std::move(value); }

  // ProtocolMessage. encode() fails with EMSGSIZE for a value of 4 GiB and more. A complete message
  // takes no more bytes; one that was refused stays so.
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
  // Of the message being received.
  Phase phase_ = Phase::kHead;
  uint32_t head_size_ = 0;   // what is there of the head
  uint32_t value_left_ = 0;  // what is to come of the value
  int refusal_ = 0;          // errno once refused
  std::string value_;
  // Received piece by piece, or written for encode().
  unsigned char head_[kHeadSize] = {};
  // Head and value in one, where encode() is given a single vector.
  std::string merged_;
};

using TLVRequest = TLVMessage;
using TLVResponse = TLVMessage;

}  // namespace protocol
