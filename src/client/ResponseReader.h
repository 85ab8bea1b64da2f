#pragma once

#include <array>
#include <cstddef>

#include "client/ClientFailure.h"
#include "kernel/Stream.h"
#include "workflow/ProtocolMessage.h"

namespace workflow {

// Reads the response of an exchange from a stream, or from a socket for datagrams, and parses it.
//
// Belongs to a connection. begin(), end() and read() are called under the connection's lock.
// parse() is called without it: between begin() and end() the response belongs to the poller's
// thread, which alone reads and parses. A part that has been read is parsed before the next one is
// read.
class ResponseReader {
 public:
  explicit ResponseReader(bool datagrams) : datagrams_(datagrams) {}

  // The response is to be received next. Until end(), `channel` serves the feedback that the
  // response may send.
  void begin(protocol::ProtocolMessage* response, protocol::MessageChannel* channel) {
    response_ = response;
    response_->set_channel(channel);
  }
  // Does nothing if no response is being received.
  void end();

  enum class Result {
    kNothing,  // an event tells when there is more
    kPart,
    kWhole,
    kWholeAndMore,  // bytes have come that do not belong to the response
    kEnd,           // the peer sends no more. `*failure` is set for the case that it should have
    kFailed         // `*failure` is set
  };
  using Buffer = std::array<char, size_t{64} * 1024>;
  // Returns kNothing, kEnd or kFailed, or else kPart: something has come for parse(), to which the
  // caller gives the same buffer. Sets `*drained` to whether more can be read only after the next
  // event.
  Result read(Stream& stream, Buffer& buffer, bool* drained, ClientFailure* failure);
  // Returns kPart, kWhole, kWholeAndMore or kFailed.
  Result parse(const Buffer& buffer, ClientFailure* failure);

 private:
  const bool datagrams_;
  protocol::ProtocolMessage* response_ = nullptr;
  size_t size_ = 0;  // how many bytes wait for parse()
};

}  // namespace workflow
