#pragma once

#include <stddef.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

namespace protocol {

// Several messages, one after the other, as one: sent as one unit, or received as one. A derived
// class says which message follows.
//
// Owns none of them. Not thread-safe. Movable; a package that is being received goes on in the
// object it is moved to. The size limit bounds all that is received.
class PackageWrapper : public ProtocolWrapper {
 public:
  // Describes the wrapped message, then each that next_out() names. All of them are alive, each is
  // another object, and none changes until what was encoded has been sent. Messages that need more
  // than `max` vectors together are merged into the last one.
  int encode(struct iovec vectors[], int max) override;

  // Receives the wrapped message, then, each time one is complete, the one that next_in() names;
  // complete with the last, at exactly its last byte.
  int append(const void *buf, size_t *size) override;
  using ProtocolWrapper::append;
  int end_of_input() override;

  explicit PackageWrapper(ProtocolMessage *wrapped) : ProtocolWrapper(wrapped) {}
  PackageWrapper(PackageWrapper &&wrapper) noexcept;
  PackageWrapper &operator=(PackageWrapper &&wrapper) noexcept;

 protected:
  // The message to be sent after `last`; null ends the package.
  virtual ProtocolMessage *next_out(ProtocolMessage *last);

  // The message to be received after `last`, which is complete; null ends the package. Called
  // once for each.
  virtual ProtocolMessage *next_in(ProtocolMessage *last);

 private:
  void take_content_of(PackageWrapper &wrapper) noexcept;

  ProtocolMessage *receiving_ = nullptr;  // null before the first byte
  size_t received_ = 0;                   // bytes in all
  size_t completed_ = 0;                  // those of complete messages
  bool complete_ = false;
  std::string merged_;
};

}  // namespace protocol
