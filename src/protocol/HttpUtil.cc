#include "workflow/HttpUtil.h"

#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>

#include "protocol/HttpContent.h"
#include "protocol/HttpGrammar.h"

namespace protocol {

namespace {

struct StatusPhrase {
  int status;
  const char* phrase;
};

// In the order of the codes.
constexpr StatusPhrase kStatusPhrases[] = {
    {HttpStatusContinue, "Continue"},
    {HttpStatusSwitchingProtocols, "Switching Protocols"},
    {HttpStatusProcessing, "Processing"},
    {HttpStatusEarlyHints, "Early Hints"},
    {HttpStatusOK, "OK"},
    {HttpStatusCreated, "Created"},
    {HttpStatusAccepted, "Accepted"},
    {HttpStatusNonAuthoritativeInfo, "Non-Authoritative Information"},
    {HttpStatusNoContent, "No Content"},
    {HttpStatusResetContent, "Reset Content"},
    {HttpStatusPartialContent, "Partial Content"},
    {HttpStatusMultiStatus, "Multi-Status"},
    {HttpStatusAlreadyReported, "Already Reported"},
    {HttpStatusIMUsed, "IM Used"},
    {HttpStatusMultipleChoices, "Multiple Choices"},
    {HttpStatusMovedPermanently, "Moved Permanently"},
    {HttpStatusFound, "Found"},
    {HttpStatusSeeOther, "See Other"},
    {HttpStatusNotModified, "Not Modified"},
    {HttpStatusUseProxy, "Use Proxy"},
    {HttpStatusTemporaryRedirect, "Temporary Redirect"},
    {HttpStatusPermanentRedirect, "Permanent Redirect"},
    {HttpStatusBadRequest, "Bad Request"},
    {HttpStatusUnauthorized, "Unauthorized"},
    {HttpStatusPaymentRequired, "Payment Required"},
    {HttpStatusForbidden, "Forbidden"},
    {HttpStatusNotFound, "Not Found"},
    {HttpStatusMethodNotAllowed, "Method Not Allowed"},
    {HttpStatusNotAcceptable, "Not Acceptable"},
    {HttpStatusProxyAuthRequired, "Proxy Authentication Required"},
    {HttpStatusRequestTimeout, "Request Timeout"},
    {HttpStatusConflict, "Conflict"},
    {HttpStatusGone, "Gone"},
    {HttpStatusLengthRequired, "Length Required"},
    {HttpStatusPreconditionFailed, "Precondition Failed"},
    {HttpStatusRequestEntityTooLarge, "Content Too Large"},
    {HttpStatusRequestURITooLong, "URI Too Long"},
    {HttpStatusUnsupportedMediaType, "Unsupported Media Type"},
    {HttpStatusRequestedRangeNotSatisfiable, "Range Not Satisfiable"},
    {HttpStatusExpectationFailed, "Expectation Failed"},
    {HttpStatusTeapot, "I'm a Teapot"},
    {HttpStatusMisdirectedRequest, "Misdirected Request"},
    {HttpStatusUnprocessableEntity, "Unprocessable Content"},
    {HttpStatusLocked, "Locked"},
    {HttpStatusFailedDependency, "Failed Dependency"},
    {HttpStatusTooEarly, "Too Early"},
    {HttpStatusUpgradeRequired, "Upgrade Required"},
    {HttpStatusPreconditionRequired, "Precondition Required"},
    {HttpStatusTooManyRequests, "Too Many Requests"},
    {HttpStatusRequestHeaderFieldsTooLarge, "Request Header Fields Too Large"},
    {HttpStatusUnavailableForLegalReasons, "Unavailable For Legal Reasons"},
    {HttpStatusInternalServerError, "Internal Server Error"},
    {HttpStatusNotImplemented, "Not Implemented"},
    {HttpStatusBadGateway, "Bad Gateway"},
    {HttpStatusServiceUnavailable, "Service Unavailable"},
    {HttpStatusGatewayTimeout, "Gateway Timeout"},
    {HttpStatusHTTPVersionNotSupported, "HTTP Version Not Supported"},
    {HttpStatusVariantAlsoNegotiates, "Variant Also Negotiates"},
    {HttpStatusInsufficientStorage, "Insufficient Storage"},
    {HttpStatusLoopDetected, "Loop Detected"},
    {HttpStatusNotExtended, "Not Extended"},
    {HttpStatusNetworkAuthenticationRequired, "Network Authentication Required"},
};

void describe(const HttpFields::Field& field, struct HttpMessageHeader* header) {
  *header = {field.name, field.name_size, field.value, field.value_size};
}

}  // namespace

const char* HttpUtil::get_reason_phrase(int status) {
  const StatusPhrase* const found =
      std::lower_bound(std::begin(kStatusPhrases), std::end(kStatusPhrases), status,
                       [](const StatusPhrase& each, int wanted) { return each.status < wanted; });
  return found != std::end(kStatusPhrases) && found->status == status ? found->phrase : nullptr;
}

bool HttpUtil::set_response_status(HttpResponse* response, int status) {
  if (!response || status < 100 || status > 999) {
    errno = EINVAL;
    return false;
  }
  const char code[] = {static_cast<char>('0' + status / 100),
                       static_cast<char>('0' + status / 10 % 10),
                       static_cast<char>('0' + status % 10), '\0'};
  const char* phrase = get_reason_phrase(status);
  return response->set_status_code(code) &&
         response->set_reason_phrase(phrase != nullptr ? phrase : "Unknown");
}

std::string HttpUtil::decode_chunked_body(const HttpMessage* message) {
  std::string body;
  const void* chunk;
  size_t size;
  HttpChunkCursor cursor(message);
  while (cursor.next(&chunk, &size))
    body.append(static_cast<const char*>(chunk), size);
  return body;
}

bool HttpHeaderCursor::next(struct HttpMessageHeader* header) {
  const HttpContent* content = this->content();
  at_field_ = content != nullptr && next_ < content->fields.size();
  if (!at_field_) return false;
  describe(content->fields[next_++], header);
  return true;
}

bool HttpHeaderCursor::next(std::string& name, std::string& value) {
  struct HttpMessageHeader header;
  if (!next(&header)) return false;
  name.assign(static_cast<const char*>(header.name), header.name_len);
  value.assign(static_cast<const char*>(header.value), header.value_len);
  return true;
}

// Moves to the position after the next field of that name.
bool HttpHeaderCursor::find_field(const char* name, size_t name_len) {
  const HttpContent* content = this->content();
  at_field_ = false;
  if (content == nullptr) return false;
  size_t found = content->fields.find({name, name_len}, next_);
  at_field_ = found != HttpFields::kNotFound;
  next_ = at_field_ ? found + 1 : content->fields.size();
  return at_field_;
}

bool HttpHeaderCursor::find(struct HttpMessageHeader* header) {
  if (!find_field(static_cast<const char*>(header->name), header->name_len)) return false;
  describe(message_->content()->fields[next_ - 1], header);
  return true;
}

bool HttpHeaderCursor::find(const std::string& name, std::string& value) {
  if (!find_field(name.data(), name.size())) return false;
  value = message_->content()->fields[next_ - 1].value_view();
  return true;
}

bool HttpHeaderCursor::erase() {
  if (!at_field_) return false;
  message_->content()->fields.erase(--next_);
  at_field_ = false;
  return true;
}

bool HttpHeaderCursor::find_and_erase(struct HttpMessageHeader* header) {
  return find(header) && erase();
}

bool HttpHeaderCursor::find_and_erase(const std::string& name) {
  return find_field(name.data(), name.size()) && erase();
}

void HttpHeaderCursor::rewind() {
  next_ = 0;
  at_field_ = false;
}

HttpChunkCursor::HttpChunkCursor(const HttpMessage* message) {
  if (!message) return;
  chunked_ = message->is_chunked();
  const void* body;
  message->get_parsed_body(&body, &body_size_);
  body_ = static_cast<const char*>(body);
}

bool HttpChunkCursor::next(const void** chunk, size_t* size) {
  constexpr size_t kLineBreakSize = 2;
  if (offset_ >= body_size_) return false;
  std::string_view rest(body_ + offset_, body_size_ - offset_);
  if (!chunked_) {
    *chunk = rest.data();
    *size = rest.size();
    offset_ = body_size_;
    return true;
  }
  // The framing was checked on reception. The bounds are for a message whose Transfer-Encoding
  // was set by hand afterwards.
  size_t digits = 0;
  while (digits < rest.size() && hex_digit_value(rest[digits]) >= 0)
    ++digits;
  auto length = parse_chunk_size(rest.substr(0, digits));
  size_t line_end = rest.find('\n');
  offset_ = body_size_;
  if (!length || *length == 0 || line_end == std::string_view::npos) return false;
  size_t left = rest.size() - line_end - 1;
  if (left < kLineBreakSize || *length > left - kLineBreakSize) return false;
  *chunk = rest.data() + line_end + 1;
  *size = static_cast<size_t>(*length);
  offset_ -= left - *size - kLineBreakSize;
  return true;
}

void HttpChunkCursor::rewind() {
  offset_ = 0;
}

bool HttpHeaderMap::LessIgnoringCase::operator()(const std::string& a, const std::string& b) const {
  return strcasecmp(a.c_str(), b.c_str()) < 0;
}

HttpHeaderMap::HttpHeaderMap(const HttpMessage* message) {
  HttpHeaderCursor cursor(message);
  std::string name, value;
  while (cursor.next(name, value))
    values_[name].push_back(value);
}

bool HttpHeaderMap::key_exists(const std::string& key) const {
  return values_.count(key) != 0;
}

bool HttpHeaderMap::get(const std::string& key, std::string& value) const {
  auto found = values_.find(key);
  if (found == values_.end()) return false;
  value = found->second.front();
  return true;
}

std::string HttpHeaderMap::get(const std::string& key) const {
  std::string value;
  get(key, value);
  return value;
}

bool HttpHeaderMap::get_strict(const std::string& key, std::vector<std::string>& values) const {
  auto found = values_.find(key);
  if (found == values_.end()) return false;
  values = found->second;
  return true;
}

std::vector<std::string> HttpHeaderMap::get_strict(const std::string& key) const {
  std::vector<std::string> values;
  get_strict(key, values);
  return values;
}

}  // namespace protocol
