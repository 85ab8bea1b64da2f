#include "workflow/HttpUtil.h"

namespace protocol {

const char* HttpUtil::get_reason_phrase(int status) {
  switch (status) {
    case HttpStatusContinue:
      return "Continue";
    case HttpStatusSwitchingProtocols:
      return "Switching Protocols";
    case HttpStatusProcessing:
      return "Processing";
    case HttpStatusEarlyHints:
      return "Early Hints";
    case HttpStatusOK:
      return "OK";
    case HttpStatusCreated:
      return "Created";
    case HttpStatusAccepted:
      return "Accepted";
    case HttpStatusNonAuthoritativeInfo:
      return "Non-Authoritative Information";
    case HttpStatusNoContent:
      return "No Content";
    case HttpStatusResetContent:
      return "Reset Content";
    case HttpStatusPartialContent:
      return "Partial Content";
    case HttpStatusMultiStatus:
      return "Multi-Status";
    case HttpStatusAlreadyReported:
      return "Already Reported";
    case HttpStatusIMUsed:
      return "IM Used";
    case HttpStatusMultipleChoices:
      return "Multiple Choices";
    case HttpStatusMovedPermanently:
      return "Moved Permanently";
    case HttpStatusFound:
      return "Found";
    case HttpStatusSeeOther:
      return "See Other";
    case HttpStatusNotModified:
      return "Not Modified";
    case HttpStatusUseProxy:
      return "Use Proxy";
    case HttpStatusTemporaryRedirect:
      return "Temporary Redirect";
    case HttpStatusPermanentRedirect:
      return "Permanent Redirect";
    case HttpStatusBadRequest:
      return "Bad Request";
    case HttpStatusUnauthorized:
      return "Unauthorized";
    case HttpStatusPaymentRequired:
      return "Payment Required";
    case HttpStatusForbidden:
      return "Forbidden";
    case HttpStatusNotFound:
      return "Not Found";
    case HttpStatusMethodNotAllowed:
      return "Method Not Allowed";
    case HttpStatusNotAcceptable:
      return "Not Acceptable";
    case HttpStatusProxyAuthRequired:
      return "Proxy Authentication Required";
    case HttpStatusRequestTimeout:
      return "Request Timeout";
    case HttpStatusConflict:
      return "Conflict";
    case HttpStatusGone:
      return "Gone";
    case HttpStatusLengthRequired:
      return "Length Required";
    case HttpStatusPreconditionFailed:
      return "Precondition Failed";
    case HttpStatusRequestEntityTooLarge:
      return "Content Too Large";
    case HttpStatusRequestURITooLong:
      return "URI Too Long";
    case HttpStatusUnsupportedMediaType:
      return "Unsupported Media Type";
    case HttpStatusRequestedRangeNotSatisfiable:
      return "Range Not Satisfiable";
    case HttpStatusExpectationFailed:
      return "Expectation Failed";
    case HttpStatusTeapot:
      return "I'm a Teapot";
    case HttpStatusMisdirectedRequest:
      return "Misdirected Request";
    case HttpStatusUnprocessableEntity:
      return "Unprocessable Content";
    case HttpStatusLocked:
      return "Locked";
    case HttpStatusFailedDependency:
      return "Failed Dependency";
    case HttpStatusTooEarly:
      return "Too Early";
    case HttpStatusUpgradeRequired:
      return "Upgrade Required";
    case HttpStatusPreconditionRequired:
      return "Precondition Required";
    case HttpStatusTooManyRequests:
      return "Too Many Requests";
    case HttpStatusRequestHeaderFieldsTooLarge:
      return "Request Header Fields Too Large";
    case HttpStatusUnavailableForLegalReasons:
      return "Unavailable For Legal Reasons";
    case HttpStatusInternalServerError:
      return "Internal Server Error";
    case HttpStatusNotImplemented:
      return "Not Implemented";
    case HttpStatusBadGateway:
      return "Bad Gateway";
    case HttpStatusServiceUnavailable:
      return "Service Unavailable";
    case HttpStatusGatewayTimeout:
      return "Gateway Timeout";
    case HttpStatusHTTPVersionNotSupported:
      return "HTTP Version Not Supported";
    case HttpStatusVariantAlsoNegotiates:
      return "Variant Also Negotiates";
    case HttpStatusInsufficientStorage:
      return "Insufficient Storage";
    case HttpStatusLoopDetected:
      return "Loop Detected";
    case HttpStatusNotExtended:
      return "Not Extended";
    case HttpStatusNetworkAuthenticationRequired:
      return "Network Authentication Required";
    default:
      return nullptr;
  }
}

}  // namespace protocol
