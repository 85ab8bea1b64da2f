#pragma once

#include <stddef.h>

#include <map>
#include <string>
#include <vector>

#include "workflow/HttpMessage.h"

namespace protocol {

// The names can be written as HttpStatusOK and as protocol::HttpStatusOK.
namespace http_constants {

inline constexpr const char *HttpMethodGet = "GET";
inline constexpr const char *HttpMethodHead = "HEAD";
inline constexpr const char *HttpMethodPost = "POST";
inline constexpr const char *HttpMethodPut = "PUT";
inline constexpr const char *HttpMethodPatch = "PATCH";
inline constexpr const char *HttpMethodDelete = "DELETE";
inline constexpr const char *HttpMethodOptions = "OPTIONS";
inline constexpr const char *HttpMethodConnect = "CONNECT";
inline constexpr const char *HttpMethodTrace = "TRACE";

// The IANA registry of HTTP status codes, and some unregistered ones that servers use.
enum HttpStatus {
  HttpStatusContinue = 100,
  HttpStatusSwitchingProtocols = 101,
  HttpStatusProcessing = 102,
  HttpStatusEarlyHints = 103,

  HttpStatusOK = 200,
  HttpStatusCreated = 201,
  HttpStatusAccepted = 202,
  HttpStatusNonAuthoritativeInfo = 203,
  HttpStatusNoContent = 204,
  HttpStatusResetContent = 205,
  HttpStatusPartialContent = 206,
  HttpStatusMultiStatus = 207,
  HttpStatusAlreadyReported = 208,
  HttpStatusIMUsed = 226,

  HttpStatusMultipleChoices = 300,
  HttpStatusMovedPermanently = 301,
  HttpStatusFound = 302,
  HttpStatusSeeOther = 303,
  HttpStatusNotModified = 304,
  HttpStatusUseProxy = 305,
  HttpStatusTemporaryRedirect = 307,
  HttpStatusPermanentRedirect = 308,

  HttpStatusBadRequest = 400,
  HttpStatusUnauthorized = 401,
  HttpStatusPaymentRequired = 402,
  HttpStatusForbidden = 403,
  HttpStatusNotFound = 404,
  HttpStatusMethodNotAllowed = 405,
  HttpStatusNotAcceptable = 406,
  HttpStatusProxyAuthRequired = 407,
  HttpStatusRequestTimeout = 408,
  HttpStatusConflict = 409,
  HttpStatusGone = 410,
  HttpStatusLengthRequired = 411,
  HttpStatusPreconditionFailed = 412,
  HttpStatusRequestEntityTooLarge = 413,
  HttpStatusRequestURITooLong = 414,
  HttpStatusUnsupportedMediaType = 415,
  HttpStatusRequestedRangeNotSatisfiable = 416,
  HttpStatusExpectationFailed = 417,
  HttpStatusTeapot = 418,
  HttpStatusMisdirectedRequest = 421,
  HttpStatusUnprocessableEntity = 422,
  HttpStatusLocked = 423,
  HttpStatusFailedDependency = 424,
  HttpStatusTooEarly = 425,
  HttpStatusUpgradeRequired = 426,
  HttpStatusPreconditionRequired = 428,
  HttpStatusTooManyRequests = 429,
  HttpStatusRequestHeaderFieldsTooLarge = 431,
  HttpStatusUnavailableForLegalReasons = 451,

  // Not registered. The spelling of the first name is the one that programs use.
  HttpStatusEnhanceYourCaim = 420,
  HttpStatusNoResponse = 444,
  HttpStatusBlocked = 450,
  HttpStatusTooLargeForNginx = 494,

  HttpStatusInternalServerError = 500,
  HttpStatusNotImplemented = 501,
  HttpStatusBadGateway = 502,
  HttpStatusServiceUnavailable = 503,
  HttpStatusGatewayTimeout = 504,
  HttpStatusHTTPVersionNotSupported = 505,
  HttpStatusVariantAlsoNegotiates = 506,
  HttpStatusInsufficientStorage = 507,
  HttpStatusLoopDetected = 508,
  HttpStatusNotExtended = 510,
  HttpStatusNetworkAuthenticationRequired = 511,
};

}  // namespace http_constants

using namespace http_constants;

class HttpUtil {
 public:
  // Sets the status code and its usual reason phrase ("Unknown" if it has none). False with EINVAL
  // unless 100 <= status <= 999, and for a null response.
  static bool set_response_status(HttpResponse *response, int status);

  // Returns the decoded body of a received message. The chunk framing is removed if the message is
  // chunked; otherwise this is a copy of the body. Empty if there is no body, or no message.
  static std::string decode_chunked_body(const HttpMessage *message);

  // Returns the reason phrase of RFC 9110 and the IANA registry, or null if the status has none.
  static const char *get_reason_phrase(int status);
};

// Iterates over the header fields of a message in order. The message must outlive the cursor;
// erase() changes it. Fields that are added meanwhile are visited, too. A null message has none.
class HttpHeaderCursor {
 public:
  explicit HttpHeaderCursor(const HttpMessage *message) : message_(message) {}

  // Returns the next field; false at the end.
  bool next(struct HttpMessageHeader *header);
  bool next(std::string &name, std::string &value);

  // Returns the next field of that name, without regard to case; false at the end. In the first
  // form, name and name_len are input.
  bool find(struct HttpMessageHeader *header);
  bool find(const std::string &name, std::string &value);

  // Erases the field that the last successful call returned. False if there is none.
  bool erase();
  bool find_and_erase(struct HttpMessageHeader *header);
  bool find_and_erase(const std::string &name);

  void rewind();

 private:
  bool find_field(const char *name, size_t name_len);
  HttpContent *content() const { return message_ ? message_->content() : nullptr; }

  const HttpMessage *message_;
  size_t next_ = 0;        // index of the field that next() returns
  bool at_field_ = false;  // the field before next_ is the one to erase
};

// Iterates over the decoded chunks of a received message. The body of a message that is not chunked
// is its only chunk. The message must outlive the cursor. A null message has no body.
class HttpChunkCursor {
 public:
  explicit HttpChunkCursor(const HttpMessage *message);

  // Returns the next chunk's data; false at the end of the body.
  bool next(const void **chunk, size_t *size);
  void rewind();

 private:
  const char *body_ = nullptr;
  size_t body_size_ = 0;
  size_t offset_ = 0;
  bool chunked_ = false;
};

// A snapshot of the header fields, for lookups by name without regard to case. A null message has
// none.
class HttpHeaderMap {
 public:
  explicit HttpHeaderMap(const HttpMessage *message);

  bool key_exists(const std::string &key) const;

  // Return the first value of that name. If there is none, they return an empty string or false.
  std::string get(const std::string &key) const;
  bool get(const std::string &key, std::string &value) const;

  // Return all values of that name, in order.
  std::vector<std::string> get_strict(const std::string &key) const;
  bool get_strict(const std::string &key, std::vector<std::string> &values) const;

 private:
  struct LessIgnoringCase {
    bool operator()(const std::string &a, const std::string &b) const;
  };
  std::map<std::string, std::vector<std::string>, LessIgnoringCase> values_;
};

}  // namespace protocol

using namespace protocol::http_constants;
