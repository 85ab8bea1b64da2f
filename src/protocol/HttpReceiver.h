#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "protocol/ByteBuffer.h"
#include "protocol/HttpFraming.h"
#include "protocol/HttpHeadScanner.h"
#include "workflow/HttpLimits.h"

namespace protocol {

class ChunkedBody;
class HttpPieces;
struct HttpContent;

// Receives one message: head, framing and body. Bytes may come in any pieces; the result does not
// depend on how they are split. After a refusal nothing more is examined.
//
// The head is scanned where it arrives. When it is complete it is copied as a whole into the
// message's text. Only a head that comes in several pieces is collected here first.
class HttpReceiver {
 public:
  enum class Result {
    kMore,            // the message is not complete; some of the bytes may be left
    kHeaderComplete,  // the header section has been accepted; go on
    kInterim,         // an interim response was skipped; go on
    kComplete,
    kRefused,
  };

  struct Rules {
    const HttpLimits& limits;
    uint64_t size_limit;  // of the head and the body's data together
    bool is_request;
    bool zero_body;        // the response has no body, whatever its fields say
    bool answers_connect;  // the response has no body if its status is 2xx
    bool streams_body;     // the body goes to pieces(), not to body()
  };

  HttpReceiver();
  ~HttpReceiver();
  HttpReceiver(const HttpReceiver&) = delete;
  HttpReceiver& operator=(const HttpReceiver&) = delete;

  // Sets `*size` to the number of bytes taken. If bytes are left after kMore, kHeaderComplete or
  // kInterim, call it again with the rest.
  Result receive(const Rules& rules, const char* data, size_t* size, HttpContent* content);
  // The peer will send no more.
  Result end_of_input();
  void refuse(int status);
  // Ends the body early: what has been kept of it is all of it. No effect before the header is
  // complete, or if the body goes to pieces().
  void end_parsing() {
    if (header_complete_ && !pieces_) phase_ = Phase::kComplete;
  }

  bool has_started() const { return phase_ != Phase::kHead || scanner_.has_started(); }
  bool is_header_complete() const { return header_complete_; }
  bool is_complete() const { return phase_ == Phase::kComplete; }
  bool expects_body() const { return header_complete_ && phase_ != Phase::kComplete; }
  int refusal() const { return refusal_; }
  const ByteBuffer& body() const { return body_; }
  // Null if there are no pieces, or none yet.
  HttpPieces* pieces() const { return pieces_.get(); }
  // Whether more is to come of a body that goes to pieces(), and nothing has come of the next
  // piece.
  bool is_between_pieces() const;

 private:
  enum class Phase : uint8_t { kHead, kLength, kChunked, kUntilClose, kComplete, kRefused };

  Result receive_head(const Rules& rules, const char* data, size_t* size, HttpContent* content);
  Result accept_head(const Rules& rules, const char* bytes, HttpContent* content);
  int parse_into(const Rules& rules, const char* head, size_t size, HttpContent* content);
  Result begin_body(const Rules& rules, const HttpContent& content);
  bool store(const char* data, size_t size);
  Result receive_length(const char* data, size_t* size);
  Result receive_chunked(const Rules& rules, const char* data, size_t* size);
  Result receive_until_close(const char* data, size_t* size);
  Result refused(int status);

  HttpHeadScanner scanner_;
  ByteBuffer pending_;  // the head so far, while it is incomplete
  ByteBuffer body_;
  std::unique_ptr<HttpPieces> pieces_;
  std::unique_ptr<ChunkedBody> chunked_;
  uint64_t body_left_ = 0;  // bytes still to come (kLength) or allowed (kChunked, kUntilClose)
  int refusal_ = 0;
  Phase phase_ = Phase::kHead;
  bool header_complete_ = false;
  uint8_t interim_count_ = 0;
};

}  // namespace protocol
