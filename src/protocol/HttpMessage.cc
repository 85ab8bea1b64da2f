#include "workflow/HttpMessage.h"

#include <cerrno>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include "protocol/HttpContent.h"
#include "protocol/HttpFraming.h"
#include "protocol/HttpGrammar.h"
#include "workflow/HttpLimits.h"

namespace protocol {

namespace {

constexpr HttpLimits kRequestLimits;

// The body is not bounded here: the user of a client bounds it by set_size_limit(), or not at all.
constexpr HttpLimits make_response_limits() {
  HttpLimits limits;
  limits.body_bytes = std::numeric_limits<uint64_t>::max();
  return limits;
}

constexpr HttpLimits kResponseLimits = make_response_limits();

int error_of_refusal(int status) {
  switch (status) {
    case 413:
    case 414:
    case 431:
      return EMSGSIZE;
    case 500:
      return ENOMEM;
    default:
      return EBADMSG;
  }
}

bool succeed_or_enomem(bool success) {
  if (!success) errno = ENOMEM;
  return success;
}

bool refuse_argument() {
  errno = EINVAL;
  return false;
}

bool are_bytes(const void* bytes, size_t size) {
  return bytes != nullptr || size == 0;
}

bool is_whole(const struct HttpMessageHeader* header) {
  return header != nullptr && are_bytes(header->name, header->name_len) &&
         are_bytes(header->value, header->value_len);
}

bool has_field(const HttpContent* content, std::string_view name) {
  return content != nullptr && content->has_field(name);
}

// Whether the channel serves each host for which a program may take the request. If the target
// names one, that counts, and not the field (RFC 9112, 3.2.2). But a program may look at the field
// only, even if it is empty or missing.
bool is_served(const HttpContent& content, MessageChannel* channel) {
  const std::string_view authority = authority_of(content.start[HttpContent::kSecond]);
  if (!authority.empty() && !channel->serves(authority)) return false;
  const size_t host = content.fields.find("Host");
  return channel->serves(host == HttpFields::kNotFound ? std::string_view()
                                                       : content.fields[host].value_view());
}

}  // namespace

void HttpMessage::ContentDeleter::operator()(HttpContent* content) const {
  delete content;
}

HttpMessage::~HttpMessage() = default;

HttpMessage::HttpMessage(HttpMessage&& message) noexcept
    : ProtocolMessage(std::move(message)),
      zero_body_(std::exchange(message.zero_body_, false)),
      is_connect_reply_(std::exchange(message.is_connect_reply_, false)),
      streams_body_(std::exchange(message.streams_body_, false)),
      is_request_(message.is_request_),
      content_(std::move(message.content_)) {}

HttpMessage& HttpMessage::operator=(HttpMessage&& message) noexcept {
  if (this != &message) {
    zero_body_ = std::exchange(message.zero_body_, false);
    is_connect_reply_ = std::exchange(message.is_connect_reply_, false);
    streams_body_ = std::exchange(message.streams_body_, false);
    content_ = std::move(message.content_);
    ProtocolMessage::operator=(std::move(message));
  }
  return *this;
}

HttpContent* HttpMessage::use_content() {
  if (!content_) {
    content_.reset(new (std::nothrow) HttpContent);
    if (!content_) errno = ENOMEM;
  }
  return content_.get();
}

const char* HttpMessage::get_start_part(int part) const {
  return content_ ? content_->start[part].data() : nullptr;
}

bool HttpMessage::set_start_part(int part, std::string_view text, bool is_allowed) {
  if (!is_allowed) return refuse_argument();
  HttpContent* content = use_content();
  return content != nullptr && content->set_start_part(part, text);
}

const char* HttpMessage::get_http_version() const {
  return get_start_part(HttpContent::kVersion);
}

bool HttpMessage::put_http_version(std::string_view version) {
  return set_start_part(HttpContent::kVersion, version, is_http_version(version));
}

const char* HttpRequest::get_method() const {
  return get_start_part(HttpContent::kFirst);
}

bool HttpRequest::put_method(std::string_view method) {
  return set_start_part(HttpContent::kFirst, method, is_token(method));
}

const char* HttpRequest::get_request_uri() const {
  return get_start_part(HttpContent::kSecond);
}

bool HttpRequest::put_request_uri(std::string_view uri) {
  return set_start_part(HttpContent::kSecond, uri, is_sendable_target(uri));
}

const char* HttpResponse::get_status_code() const {
  return get_start_part(HttpContent::kFirst);
}

bool HttpResponse::put_status_code(std::string_view code) {
  return set_start_part(HttpContent::kFirst, code, is_status_code(code));
}

const char* HttpResponse::get_reason_phrase() const {
  return get_start_part(HttpContent::kSecond);
}

bool HttpResponse::put_reason_phrase(std::string_view phrase) {
  return set_start_part(HttpContent::kSecond, phrase, is_safe_text(phrase));
}

bool HttpMessage::is_chunked() const {
  return content_ && protocol::is_chunked(content_->fields);
}

bool HttpMessage::is_keep_alive() const {
  return !content_ ||
         protocol::is_keep_alive(content_->fields, content_->start[HttpContent::kVersion]);
}

bool HttpMessage::add_field(std::string_view name, std::string_view value) {
  HttpContent* content = use_content();
  return content != nullptr && content->add_field(name, value);
}

bool HttpMessage::set_field(std::string_view name, std::string_view value) {
  HttpContent* content = use_content();
  return content != nullptr && content->set_field(name, value);
}

bool HttpMessage::add_header(const struct HttpMessageHeader* header) {
  if (!is_whole(header)) return refuse_argument();
  return add_field({static_cast<const char*>(header->name), header->name_len},
                   {static_cast<const char*>(header->value), header->value_len});
}

bool HttpMessage::set_header(const struct HttpMessageHeader* header) {
  if (!is_whole(header)) return refuse_argument();
  return set_field({static_cast<const char*>(header->name), header->name_len},
                   {static_cast<const char*>(header->value), header->value_len});
}

bool HttpMessage::has_connection_header() const {
  return has_field(content(), "Connection");
}

bool HttpMessage::has_content_length_header() const {
  return has_field(content(), "Content-Length");
}

bool HttpMessage::has_keep_alive_header() const {
  return has_field(content(), "Keep-Alive");
}

int HttpMessage::encode(struct iovec vectors[], int max) {
  if (max < 1) {
    errno = EINVAL;
    return -1;
  }
  HttpContent* content = use_content();
  if (content == nullptr) return -1;
  // With a single vector the body is merged behind the head.
  const size_t merged = max == 1 ? content->output.size() : 0;
  if (!content->encode_head(is_request_, merged, &vectors[0])) return -1;
  if (max == 1) {
    content->output.copy_to(content->encoded + vectors[0].iov_len);
    vectors[0].iov_len += merged;
    return 1;
  }
  const int blocks = content->output.describe(vectors + 1, max - 1);
  if (blocks < 0) {
    errno = ENOMEM;
    return -1;
  }
  return 1 + blocks;
}

int HttpMessage::append(const void* buf, size_t* size) {
  HttpContent* content = use_content();
  if (content == nullptr) return -1;
  const HttpLimits& defaults = is_request_ ? kRequestLimits : kResponseLimits;
  HttpReceiver::Rules rules{limits_ != nullptr ? *limits_ : defaults,
                            size_limit,
                            is_request_,
                            zero_body_,
                            is_connect_reply_,
                            streams_body_};
  HttpReceiver& receiver = content->receiver;
  const char* data = static_cast<const char*>(buf);
  size_t taken = 0;
  do {
    size_t step = *size - taken;
    HttpReceiver::Result result = receiver.receive(rules, data + taken, &step, content);
    taken += step;
    if (result == HttpReceiver::Result::kInterim) {
      renew();
    } else if (result == HttpReceiver::Result::kHeaderComplete) {
      int status = header_completed(*size - taken);
      if (status != 0) receiver.refuse(status);
    }
  } while (taken < *size && !receiver.is_complete() && receiver.refusal() == 0);
  if (receiver.refusal() != 0) {
    errno = error_of_refusal(receiver.refusal());
    return -1;
  }
  *size = taken;
  if (receiver.is_between_pieces()) renew();
  return receiver.is_complete() ? 1 : 0;
}

int HttpMessage::end_of_input() {
  if (content_ && content_->receiver.end_of_input() == HttpReceiver::Result::kComplete) return 1;
  errno = ECONNRESET;
  return -1;
}

int HttpMessage::header_completed(size_t) {
  return 0;
}

int HttpRequest::header_completed(size_t rest) {
  static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
  if (get_channel() != nullptr && !is_served(*content(), get_channel())) return 421;
  // An HTTP/1.0 client knows no Expect (RFC 9110, 10.1.1).
  if (content()->start[HttpContent::kVersion] == "HTTP/1.0") return 0;
  switch (expectation_of(content()->fields)) {
    case Expectation::kUnknown:
      return 417;
    case Expectation::kContinue:
      // If this fails, the client sends its body after a while anyway, or has left.
      if (rest == 0 && content()->receiver.expects_body()) {
        feedback(kContinue, sizeof(kContinue) - 1);
      }
      return 0;
    default:
      return 0;
  }
}

bool HttpMessage::has_started() const {
  return content_ && content_->receiver.has_started();
}

bool HttpMessage::is_complete() const {
  return content_ && content_->receiver.is_complete();
}

bool HttpMessage::is_header_complete() const {
  return content_ && content_->receiver.is_header_complete();
}

size_t HttpMessage::get_received_body_size() const {
  return content_ ? content_->receiver.body().size() : 0;
}

int HttpMessage::refusal_status() const {
  return content_ ? content_->receiver.refusal() : 0;
}

void HttpMessage::end_parsing() {
  if (content_) content_->receiver.end_parsing();
}

bool HttpMessage::get_parsed_body(const void** body, size_t* size) const {
  bool complete = is_complete();
  *body = complete ? content_->receiver.body().data() : nullptr;
  *size = complete ? content_->receiver.body().size() : 0;
  return complete;
}

bool HttpMessage::append_output_body(const void* buf, size_t size) {
  if (!are_bytes(buf, size)) return refuse_argument();
  HttpContent* content = use_content();
  return content != nullptr && succeed_or_enomem(content->output.append(buf, size, &content->text));
}

bool HttpMessage::append_output_body_nocopy(const void* buf, size_t size) {
  if (!are_bytes(buf, size)) return refuse_argument();
  HttpContent* content = use_content();
  return content != nullptr && succeed_or_enomem(content->output.append_nocopy(buf, size));
}

size_t HttpMessage::get_output_body_size() const {
  return content_ ? content_->output.size() : 0;
}

size_t HttpMessage::get_output_body_blocks(const void* buf[], size_t size[], size_t max) const {
  size_t count = content_ ? content_->output.block_count() : 0;
  if (count > max) count = max;
  for (size_t i = 0; i < count; ++i) {
    buf[i] = content_->output.block(i).iov_base;
    size[i] = content_->output.block(i).iov_len;
  }
  return count;
}

bool HttpMessage::get_output_body_merged(void* buf, size_t* size) const {
  size_t needed = get_output_body_size();
  if (*size < needed) {
    errno = ENOSPC;
    return false;
  }
  if (needed > 0) content_->output.copy_to(static_cast<char*>(buf));
  *size = needed;
  return true;
}

bool HttpMessage::get_output_body_merged(std::string& body) const {
  body.resize(get_output_body_size());
  if (!body.empty()) content_->output.copy_to(body.data());
  return true;
}

void HttpMessage::clear_output_body() {
  if (content_) content_->output.clear();
}

}  // namespace protocol
