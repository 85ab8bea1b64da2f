#pragma once

#include <stddef.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

namespace protocol {

// Several messages, one after the other, that are sent or received as one. A derived class says
// which message follows.
//
// It owns none of them. Not thread-safe. Movable; a package that is being received continues in the
// object it is moved to. The size limit applies to all the bytes received.
class PackageWrapper : public ProtocolWrapper {
 public:
  // Describes the wrapped message, then each that next_out() returns. They must all be alive and be
  // different objects, and none may change until what was encoded has been sent. If they need more
  // than `max` vectors together, the rest is merged into the last one.
  int encode(struct iovec vectors[], int max) override;

  // Receives the wrapped message, and each time one is complete, the one that next_in() returns.
  // The package is complete with the last byte of the last message.
  int append(const void *buf, size_t *size) override;
  using ProtocolWrapper::append;
  int end_of_input() override;

  explicit PackageWrapper(ProtocolMessage *wrapped) : ProtocolWrapper(wrapped) {}
  PackageWrapper(PackageWrapper &&wrapper) noexcept;
  PackageWrapper &operator=(PackageWrapper &&wrapper) noexcept;

 protected:
  // Returns the message to send after `last`. Null ends the package.
  virtual ProtocolMessage *next_out(ProtocolMessage *last);

  // Returns the message to receive after `last`, which is complete. Null ends the package. Called
  // once for each message.
  virtual ProtocolMessage *next_in(ProtocolMessage *last);

 private:
  void take_content_of(PackageWrapper &wrapper) noexcept;

  ProtocolMessage *receiving_ = nullptr;  // null before the first byte
  size_t received_ = 0;                   // bytes in all
  size_t completed_ = 0;                  // bytes of complete messages
  bool complete_ = false;
  std::string merged_;
};

}  // namespace protocol
