#include "workflow/detail/HttpClientTask.h"

#include <openssl/evp.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "client/ClientSettings.h"
#include "protocol/HttpContent.h"
#include "protocol/HttpOutput.h"
#include "util/PercentDecoding.h"
#include "workflow/HttpLimits.h"
#include "workflow/HttpUtil.h"

using protocol::HttpMessage;
using protocol::HttpRequest;
using protocol::HttpResponse;
using Protocol = WFClientProtocol<HttpRequest, HttpResponse>;

namespace {

// There is no limit for the body here: users limit a response by set_size_limit().
constexpr struct protocol::HttpLimits kClientLimits = [] {
  struct protocol::HttpLimits limits;
  limits.body_bytes = UINT64_MAX;
  return limits;
}();

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string_view method_of(const HttpRequest* request) {
  const char* method = request->get_method();
  return method ? method : "GET";
}

void erase_header(HttpMessage* message, const char* name) {
  protocol::HttpHeaderCursor cursor(message);
  while (cursor.find_and_erase(name)) {
    cursor.rewind();
  }
}

bool has_header(const HttpMessage* message, const char* name) {
  return message->content()->fields.find(name) != protocol::HttpFields::kNotFound;
}

// Host and port as in a Host field or the authority of a URI (RFC 9110, 7.2).
std::string authority_of(const std::string& host, unsigned short port, const char* default_port) {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (!default_port || std::to_string(port) != default_port) {
    text += ":" + std::to_string(port);
  }
  return text;
}

// RFC 7617, section 2.
std::string basic_credentials(const char* userinfo) {
  std::string plain = workflow::percent_decoded(userinfo);
  if (plain.find(':') == std::string::npos) {
    plain += ':';
  }
  std::string encoded((plain.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                     reinterpret_cast<const unsigned char*>(plain.data()),
                                     static_cast<int>(plain.size()));
  encoded.resize(static_cast<size_t>(length));
  return "Basic " + encoded;
}

bool is_https(const ParsedURI& uri) {
  return ::strcasecmp(uri.scheme, "https") == 0;
}

// The port as text. Empty if neither the URI nor its scheme has one.
std::string_view port_text(const ParsedURI& uri) {
  const char* port = uri.port ? uri.port : workflow::SchemePorts::process().get(uri.scheme);
  return port ? port : std::string_view();
}

// RFC 6454, section 5.
bool same_origin(const ParsedURI& a, const ParsedURI& b) {
  return is_https(a) == is_https(b) && ::strcasecmp(a.host, b.host) == 0 &&
         port_text(a) == port_text(b);
}

// Removes the body, and the fields that belong to a body.
void drop_body(HttpRequest* request) {
  request->clear_output_body();
  for (const char* name : {"Content-Length", "Transfer-Encoding", "Content-Type",
                           "Content-Encoding", "Content-Language", "Content-Location"}) {
    erase_header(request, name);
  }
}

}  // namespace

namespace {

// Replaces the user's Content-Length, which may be wrong, and which must not be sent together with
// Transfer-Encoding (RFC 9112, 6.1). Returns false and sets errno if the body cannot be framed.
bool prepare_framing(HttpRequest* request) {
  erase_header(request, "Content-Length");
  switch (protocol::output_framing(request->content()->fields)) {
    case protocol::OutputFraming::kLength: {
      const size_t size = request->get_output_body_size();
      // For methods that define a meaning for a body, an empty body is announced, too (RFC
      // 9110, 8.6).
      const bool says = size > 0 || is_one_of(method_of(request), {"POST", "PUT", "PATCH"});
      return !says || request->add_header_pair("Content-Length", std::to_string(size));
    }
    case protocol::OutputFraming::kChunked:
      // HTTP/1.0 has no chunks.
      if (std::string_view(request->get_http_version()) != "HTTP/1.0" &&
          protocol::is_chunk_framed(request->content()->output)) {
        return true;
      }
      [[fallthrough]];
    default:
      errno = EINVAL;
      return false;
  }
}

// Returns false and sets errno if not.
bool is_sendable_version(const HttpRequest* request) {
  if (protocol::is_spoken_version(request->get_http_version())) return true;
  errno = EINVAL;
  return false;
}

std::string host_of(const workflow::ClientTarget& target) {
  if (!target.authority.empty()) return target.authority;
  const char* default_port =
      workflow::SchemePorts::process().get(target.is_tls() ? "https" : "http");
  const std::string& host = target.host.empty() ? target.verified_host : target.host;
  return host.empty() ? "localhost"  // a unix socket
                      : authority_of(host, target.port, default_port);
}

// Makes sure that there is exactly one Host (RFC 9112, 3.2): the user's, or else the target's,
// which goes before all other fields (RFC 9110, 7.2). Equal ones count as one, because a function
// given to set_prepare() may add the field again with each try. Returns false and sets errno on
// failure.
bool prepare_host(const workflow::ClientTarget& target, HttpRequest* request) {
  constexpr const char* kHost = "Host";
  protocol::HttpFields& fields = request->content()->fields;
  const size_t first = fields.find(kHost);
  if (first == protocol::HttpFields::kNotFound) {
    if (!request->add_header_pair(kHost, host_of(target))) return false;
    std::rotate(&fields[0], &fields[fields.size() - 1], &fields[0] + fields.size());
    return true;
  }
  for (size_t i = fields.find(kHost, first + 1); i != protocol::HttpFields::kNotFound;
       i = fields.find(kHost, i)) {
    if (fields[i].value_view() != fields[first].value_view()) {
      errno = EINVAL;
      return false;
    }
    fields.erase(i);
  }
  return true;
}

}  // namespace

bool Protocol::prepare(const workflow::ClientTarget& target, HttpRequest* request,
                       HttpResponse* response, bool keep_alive) {
  const bool complete = (request->get_method() || request->set_method("GET")) &&
                        (request->get_request_uri() || request->set_request_uri("/")) &&
                        (request->get_http_version() || request->set_http_version("HTTP/1.1")) &&
                        is_sendable_version(request) && prepare_host(target, request) &&
                        prepare_framing(request) &&
                        (keep_alive || request->has_connection_header() ||
                         request->add_header_pair("Connection", "close"));
  if (!complete) return false;
  response->set_limits(&kClientLimits);
  if (method_of(request) == "HEAD") {
    response->parse_zero_body();
  } else if (method_of(request) == "CONNECT") {
    response->parse_connect_reply();
  }
  return true;
}

bool Protocol::leaves_connection_usable(const HttpRequest* request, const HttpResponse* response) {
  const char* status = response->get_status_code();
  return request->is_keep_alive() && response->is_keep_alive() && method_of(request) != "CONNECT" &&
         status && std::string_view(status) != "101";
}

bool Protocol::is_repeatable(const HttpRequest* request) {
  return is_one_of(method_of(request), {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"});
}

namespace workflow {

HttpClientTask::HttpClientTask(const ParsedURI& uri, const ParsedURI* proxy, int redirect_max,
                               int retry_max, Callback callback)
    : WFClientTask(ClientTarget(), retry_max, std::move(callback)),
      uri_(uri),
      uses_proxy_(proxy != nullptr),
      redirects_left_(redirect_max) {
  if (proxy) {
    proxy_ = *proxy;
  }
  req_.set_method("GET");
  req_.set_http_version("HTTP/1.1");
  target_error_ = aim();
}

namespace {

// Returns 0, or the reason why the URI cannot be used for HTTP.
int check_uri(const ParsedURI& uri) {
  if (uri.state != URI_STATE_SUCCESS) {
    return uri.error == ENOMEM ? ENOMEM : int{WFT_ERR_URI_PARSE_FAILED};
  }
  if (!uri.scheme || (!is_https(uri) && ::strcasecmp(uri.scheme, "http") != 0)) {
    return WFT_ERR_URI_SCHEME_INVALID;
  }
  // A ParsedURI that was made by hand may hold anything. Only a host may get into a header field.
  const bool is_host =
      uri.host && *uri.host && std::none_of(uri.host, uri.host + std::strlen(uri.host), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || std::strchr("/?#@\\\"<>\x7f", c);
      });
  return is_host ? 0 : int{WFT_ERR_URI_PARSE_FAILED};
}

}  // namespace

int HttpClientTask::aim() {
  if (const int invalid = check_uri(uri_)) return invalid;
  ClientTarget target;
  if (const int invalid =
          ClientTarget::parse(is_https(uri_) ? TT_TCP_SSL : TT_TCP, uri_, &target)) {
    return invalid;
  }
  std::string path = uri_.path && *uri_.path ? uri_.path : "/";
  if (uri_.query) {
    path.append("?").append(uri_.query);
  }
  if (!req_.set_request_uri(path)) return WFT_ERR_URI_PARSE_FAILED;
  const std::string authority =
      authority_of(target.host, target.port, SchemePorts::process().get(uri_.scheme));
  if (uri_.userinfo && *uri_.userinfo) {
    req_.set_header_pair("Authorization", basic_credentials(uri_.userinfo));
  }
  if (uses_proxy_) {
    if (const int invalid = aim_at_proxy(path, &target)) return invalid;
  }
  target.authority = authority;
  target.ssl_ctx = target_.ssl_ctx;
  target.alpn_protocol = "http/1.1";
  target_ = target;
  return 0;
}

int HttpClientTask::aim_at_proxy(const std::string& path, ClientTarget* target) {
  ClientTarget proxy;
  if (const int invalid = check_uri(proxy_)) return invalid;
  if (is_https(proxy_)) return WFT_ERR_URI_SCHEME_INVALID;
  if (const int invalid = ClientTarget::parse(target->transport, proxy_, &proxy)) return invalid;
  const bool has_credentials = proxy_.userinfo && *proxy_.userinfo;
  const std::string credentials = has_credentials ? basic_credentials(proxy_.userinfo) : "";
  if (target->is_tls()) {
    const std::string authority = authority_of(target->host, target->port, nullptr);
    proxy.verified_host = target->host;
    proxy.tunnel_request = "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n" +
                           (has_credentials ? "Proxy-Authorization: " + credentials + "\r\n" : "") +
                           "\r\n";
  } else {
    // The absolute form (RFC 9112, 3.2.2).
    if (!req_.set_request_uri("http://" + authority_of(target->host, target->port, "80") + path)) {
      return WFT_ERR_URI_PARSE_FAILED;
    }
    if (has_credentials) {
      req_.set_header_pair("Proxy-Authorization", credentials);
    }
  }
  *target = proxy;
  return 0;
}

bool HttpClientTask::fail_redirect() {
  state = WFT_STATE_TASK_ERROR;
  error = WFT_ERR_HTTP_BAD_REDIRECT_HEADER;
  return false;
}

bool HttpClientTask::is_followed() const {
  return redirects_left_ > 0 &&
         is_one_of(resp_.get_status_code(), {"301", "302", "303", "307", "308"}) &&
         has_header(&resp_, "Location");
}

bool HttpClientTask::goes_on() {
  try {
    return state == WFT_STATE_SUCCESS && is_followed() && follow();
  } catch (const std::bad_alloc&) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOMEM;
    return false;
  }
}

// Returns false if the redirect cannot be followed.
bool HttpClientTask::follow() {
  const std::string status = resp_.get_status_code();
  std::string location;
  protocol::HttpHeaderCursor(&resp_).find("Location", location);
  ParsedURI next;
  if (URIParser::resolve(uri_, location, next) != 0) return fail_redirect();
  redirects_left_--;
  // The user's Host field was meant for the first target.
  const bool same = next.host && next.scheme && same_origin(uri_, next);
  erase_header(&req_, "Host");
  if (!same) {
    for (const char* name : {"Authorization", "Cookie", "Proxy-Authorization"}) {
      erase_header(&req_, name);
    }
  }
  const std::string_view method = method_of(&req_);
  const bool becomes_get =
      status == "303" ? method != "HEAD" : method == "POST" && is_one_of(status, {"301", "302"});
  if (becomes_get) {
    req_.set_method("GET");
    drop_body(&req_);
  }
  uri_ = std::move(next);
  if (aim() != 0) return fail_redirect();
  HttpResponse fresh;
  fresh.set_size_limit(resp_.get_size_limit());
  resp_ = std::move(fresh);
  return true;
}

}  // namespace workflow
