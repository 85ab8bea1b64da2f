#include "protocol/HttpReceiver.h"

#include <algorithm>
#include <new>

#include "protocol/ChunkedBody.h"
#include "protocol/HttpContent.h"
#include "protocol/HttpParser.h"
#include "protocol/HttpPieces.h"

namespace protocol {

namespace {

// How much is copied at a time while a head comes in pieces. The rest of a large read is the body.
constexpr size_t kPendingStep = size_t{4} * 1024;
// At most this much memory is reserved for a body because of its announced length.
constexpr size_t kTrustedBodyBytes = size_t{64} * 1024;
constexpr uint8_t kMaxInterimResponses = 32;

}  // namespace

HttpReceiver::HttpReceiver() = default;
HttpReceiver::~HttpReceiver() = default;

HttpReceiver::Result HttpReceiver::receive(const Rules& rules, const char* data, size_t* size,
                                           HttpContent* content) {
  switch (phase_) {
    case Phase::kHead:
      return receive_head(rules, data, size, content);
    case Phase::kLength:
      return receive_length(data, size);
    case Phase::kChunked:
      return receive_chunked(rules, data, size);
    case Phase::kUntilClose:
      return receive_until_close(data, size);
    case Phase::kComplete:
      *size = 0;
      return Result::kComplete;
    default:
      *size = 0;
      return Result::kRefused;
  }
}

HttpReceiver::Result HttpReceiver::refused(int status) {
  refuse(status);
  return Result::kRefused;
}

void HttpReceiver::refuse(int status) {
  phase_ = Phase::kRefused;
  refusal_ = status;
  pending_.release();
  chunked_.reset();
}

bool HttpReceiver::is_between_pieces() const {
  if (!pieces_ || !expects_body() || phase_ == Phase::kRefused) return false;
  return !chunked_ || chunked_->is_between_pieces(body_);
}

HttpReceiver::Result HttpReceiver::end_of_input() {
  if (phase_ == Phase::kUntilClose) phase_ = Phase::kComplete;
  if (phase_ == Phase::kComplete) return Result::kComplete;
  if (phase_ != Phase::kRefused) refuse(400);
  return Result::kRefused;
}

HttpReceiver::Result HttpReceiver::receive_head(const Rules& rules, const char* data, size_t* size,
                                                HttpContent* content) {
  size_t collected = pending_.size();
  const char* bytes = data;
  if (collected > 0) {
    *size = std::min(*size, kPendingStep);
    if (!pending_.append(data, *size)) return refused(kOutOfMemory);
    bytes = pending_.data();
  }
  switch (scanner_.scan(bytes, collected + *size, rules.is_request, rules.limits)) {
    case HttpHeadScanner::Result::kRefused:
      return refused(scanner_.refusal());
    case HttpHeadScanner::Result::kComplete:
      *size = scanner_.end() - collected;
      return accept_head(rules, bytes, content);
    default:
      break;
  }
  if (collected == 0) {
    if (!pending_.append(data + scanner_.start(), *size - scanner_.start())) {
      return refused(kOutOfMemory);
    }
    scanner_.drop_front();
  }
  return Result::kMore;
}

// Moves the head, found in `bytes`, into the message and decides what follows it.
HttpReceiver::Result HttpReceiver::accept_head(const Rules& rules, const char* bytes,
                                               HttpContent* content) {
  size_t size = scanner_.end() - scanner_.start();
  if (size > rules.size_limit) return refused(413);
  int status = parse_into(rules, bytes + scanner_.start(), size, content);
  pending_.release();
  if (status != 0) return refused(status);
  std::string_view code = content->start[HttpContent::kFirst];
  if (!rules.is_request && code[0] == '1' && code != "101") {
    if (++interim_count_ > kMaxInterimResponses) return refused(400);
    content->clear_head();
    scanner_ = HttpHeadScanner();
    return Result::kInterim;
  }
  return begin_body(rules, *content);
}

int HttpReceiver::parse_into(const Rules& rules, const char* head, size_t size,
                             HttpContent* content) {
  char* text = content->text.allocate(size);
  if (text == nullptr) return kOutOfMemory;
  std::memcpy(text, head, size);
  int status = parse_head(rules.is_request, text, size, rules.limits, &content->fields);
  if (status != 0) return status;
  static constexpr int kRequestOrder[] = {HttpContent::kFirst, HttpContent::kSecond,
                                          HttpContent::kVersion};
  static constexpr int kResponseOrder[] = {HttpContent::kVersion, HttpContent::kFirst,
                                           HttpContent::kSecond};
  for (int i = 0; i < HttpContent::kStartParts; ++i) {
    std::string_view part = scanner_.start_part(text, i);
    content->start[rules.is_request ? kRequestOrder[i] : kResponseOrder[i]] = part;
    // Overwrites the space or CR after the part, because users get the part as a C string.
    text[static_cast<size_t>(part.data() - text) + part.size()] = '\0';
  }
  return 0;
}

HttpReceiver::Result HttpReceiver::begin_body(const Rules& rules, const HttpContent& content) {
  std::string_view version = content.start[HttpContent::kVersion];
  std::string_view first = content.start[HttpContent::kFirst];
  Framing framing;
  if (rules.is_request) {
    framing = frame_request(content.fields, first, version);
  } else if (!rules.answers_connect || first[0] != '2') {
    framing = frame_response(content.fields, version, first, rules.zero_body);
  }
  if (framing.refusal != 0) return refused(framing.refusal);
  uint64_t head_size = scanner_.end() - scanner_.start();
  uint64_t body_limit = std::min(rules.limits.body_bytes, rules.size_limit - head_size);
  body_left_ = body_limit;
  if (rules.streams_body && framing.body != BodyKind::kNone) {
    pieces_.reset(new (std::nothrow) HttpPieces);
    if (!pieces_) return refused(kOutOfMemory);
  }
  switch (framing.body) {
    case BodyKind::kNone:
      phase_ = Phase::kComplete;
      break;
    case BodyKind::kLength:
      if (framing.length > body_limit) return refused(413);
      phase_ = Phase::kLength;
      body_left_ = framing.length;
      if (!pieces_ &&
          !body_.reserve(static_cast<size_t>(std::min<uint64_t>(body_left_, kTrustedBodyBytes)))) {
        return refused(kOutOfMemory);
      }
      break;
    case BodyKind::kChunked:
      phase_ = Phase::kChunked;
      chunked_.reset(new (std::nothrow) ChunkedBody(scanner_.field_bytes(), scanner_.field_count(),
                                                    pieces_.get()));
      if (!chunked_) return refused(kOutOfMemory);
      break;
    case BodyKind::kUntilClose:
      phase_ = Phase::kUntilClose;
      break;
  }
  header_complete_ = true;
  return Result::kHeaderComplete;
}

bool HttpReceiver::store(const char* data, size_t size) {
  return pieces_ ? pieces_->append_whole(data, size) : body_.append(data, size);
}

HttpReceiver::Result HttpReceiver::receive_length(const char* data, size_t* size) {
  *size = static_cast<size_t>(std::min<uint64_t>(*size, body_left_));
  if (!store(data, *size)) return refused(kOutOfMemory);
  body_left_ -= *size;
  if (body_left_ > 0) return Result::kMore;
  phase_ = Phase::kComplete;
  return Result::kComplete;
}

HttpReceiver::Result HttpReceiver::receive_chunked(const Rules& rules, const char* data,
                                                   size_t* size) {
  switch (chunked_->feed(data, size, rules.limits, body_left_, &body_)) {
    case ChunkedBody::Result::kMore:
      return Result::kMore;
    case ChunkedBody::Result::kRefused:
      return refused(chunked_->refusal());
    default:
      chunked_.reset();
      phase_ = Phase::kComplete;
      return Result::kComplete;
  }
}

HttpReceiver::Result HttpReceiver::receive_until_close(const char* data, size_t* size) {
  if (*size > body_left_) return refused(413);
  if (!store(data, *size)) return refused(kOutOfMemory);
  body_left_ -= *size;
  return Result::kMore;
}

}  // namespace protocol
