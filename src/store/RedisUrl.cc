#include "store/RedisUrl.h"

#include <strings.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "client/ClientSettings.h"
#include "store/RedisGreeting.h"
#include "store/StoreText.h"
#include "util/PercentDecoding.h"
#include "workflow/WFTaskError.h"

namespace workflow {

namespace {

constexpr unsigned short kSentinelPort = 26379;
constexpr unsigned int kMaxDb = std::numeric_limits<int>::max();  // as the server's

template <class NUMBER>
std::optional<NUMBER> parse_number(std::string_view text, NUMBER max) {
  NUMBER number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && number <= max;
  return is_number ? std::optional<NUMBER>(number) : std::nullopt;
}

std::string_view view(const char* text) {
  return text ? std::string_view(text) : std::string_view();
}

bool is_scheme(std::string_view scheme, const char* name) {
  return scheme.size() == std::strlen(name) &&
         ::strncasecmp(scheme.data(), name, scheme.size()) == 0;
}

// The schemes, and what they say.
enum class Form { kUnknown, kServer, kUnixSocket, kSentinels };

Form form_of(std::string_view scheme, enum TransportType* transport) {
  const bool tls = is_scheme(scheme, "rediss") || is_scheme(scheme, "rediss+sentinel");
  *transport = tls ? TT_TCP_SSL : TT_TCP;
  if (is_scheme(scheme, "redis") || is_scheme(scheme, "rediss")) return Form::kServer;
  if (is_scheme(scheme, "redis+unix")) return Form::kUnixSocket;
  return tls || is_scheme(scheme, "redis+sentinel") ? Form::kSentinels : Form::kUnknown;
}

constexpr const char* kBadPort = "the port in the URL is not a number from 1 to 65535";

// Sets `*why`, if it is not null, and returns the code.
int refuse_url(int code, const std::string& reason, std::string* why) {
  if (why) {
    *why = reason;
  }
  return code;
}

// `port`: null or empty means the default. Returns 0 or an error.
int set_server(std::string_view host, std::string_view port, unsigned short default_port,
               RedisUrl::Server* server, std::string* why) {
  if (host.empty()) {
    return refuse_url(WFT_ERR_URI_PARSE_FAILED, "a host is missing in the URL", why);
  }
  server->host = percent_decoded(host);
  server->port = default_port;
  if (!port.empty()) {
    const auto number = parse_number<unsigned int>(port, 65535);
    if (!number || *number == 0) return refuse_url(WFT_ERR_URI_PORT_INVALID, kBadPort, why);
    server->port = static_cast<unsigned short>(*number);
  }
  return 0;
}

int set_userinfo(std::string_view userinfo, RedisUrl* url, std::string* why) {
  if (userinfo.empty() || userinfo == ":") return 0;
  const size_t colon = userinfo.find(':');
  if (colon == std::string_view::npos) {
    // It could be a user or a password.
    return refuse_url(WFT_ERR_URI_PARSE_FAILED,
                      "the login in the URL is neither user:password@ nor :password@", why);
  }
  url->logs_in = true;
  url->user = percent_decoded(userinfo.substr(0, colon));
  url->password = percent_decoded(userinfo.substr(colon + 1));
  return 0;
}

int set_db(std::string_view text, RedisUrl* url, std::string* why) {
  const auto number = parse_number<unsigned int>(text, kMaxDb);
  if (!number) {
    return refuse_url(WFT_ERR_URI_PARSE_FAILED,
                      "the database in the URL is " + StoreText::quoted(text) +
                          ", not a number from 0 to " + std::to_string(kMaxDb),
                      why);
  }
  url->db = *number;
  return 0;
}

int set_db_of_query(const char* query, RedisUrl* url, std::string* why) {
  if (!query) return 0;
  const auto pairs = URIParser::split_query(query);
  const auto db = pairs.find("db");
  return db == pairs.end() ? 0 : set_db(db->second, url, why);
}

// Divides "host:port", "[address]:port", or either without a port. Returns whether there is a colon
// before the port.
bool split_port(std::string_view text, std::string_view* host, std::string_view* port) {
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  *host = has_port ? text.substr(0, colon) : text;
  *port = has_port ? text.substr(colon + 1) : std::string_view();
  return has_port;
}

int add_sentinel(std::string_view text, RedisUrl* url, std::string* why) {
  std::string_view host;
  std::string_view port;
  if (split_port(text, &host, &port) && port.empty()) {
    return refuse_url(WFT_ERR_URI_PORT_INVALID, kBadPort, why);
  }
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  RedisUrl::Server sentinel;
  const int error = set_server(host, port, kSentinelPort, &sentinel, why);
  if (error == 0) {
    url->sentinels.push_back(std::move(sentinel));
  }
  return error;
}

int set_master_name(std::string_view path, RedisUrl* url, std::string* why) {
  url->master_name = percent_decoded(path.substr(std::min<size_t>(path.size(), 1)));
  if (url->master_name.empty()) {
    return refuse_url(WFT_ERR_URI_PARSE_FAILED,
                      "the URL lacks the name of the master: say redis+sentinel://host/name", why);
  }
  if (path.front() != '/' || url->master_name.find('/') != std::string::npos) {
    return refuse_url(WFT_ERR_URI_PARSE_FAILED,
                      "the name of the master in the URL contains a slash: " +
                          StoreText::quoted(url->master_name),
                      why);
  }
  return 0;
}

int set_unix_path(std::string_view host, std::string_view path, RedisUrl* url, std::string* why) {
  constexpr size_t kMax = sizeof(sockaddr_un::sun_path) - 1;
  url->unix_path = percent_decoded(path);
  std::string reason;
  if (!host.empty()) {
    reason = "a URL of a unix socket has no host: say redis+unix:///path, with three slashes";
  } else if (path.size() <= 1 || path[0] != '/') {
    reason = "the URL lacks the path of the unix socket: say redis+unix:///path";
  } else if (url->unix_path.size() > kMax) {
    reason = "the path of the unix socket in the URL has " + std::to_string(url->unix_path.size()) +
             " bytes; at most " + std::to_string(kMax) + " are allowed";
  } else if (url->unix_path.find('\0') != std::string::npos) {
    reason = "the path of the unix socket in the URL contains a zero byte";
  }
  return reason.empty() ? 0 : refuse_url(WFT_ERR_URI_PARSE_FAILED, reason, why);
}

// Why the text, in which hosts but the first are left out, is no URI.
const char* why_no_uri(std::string_view text) {
  const size_t authority = text.find("://");
  if (authority != std::string_view::npos) {
    std::string_view server = text.substr(authority + 3);
    server = server.substr(0, server.find_first_of("/?#"));
    std::string_view host;
    std::string_view port;
    split_port(server.substr(server.rfind('@') + 1), &host, &port);
    if (port.find_first_not_of("0123456789") != std::string_view::npos) return kBadPort;
  }
  return "the URL is malformed: other characters than letters, digits and -._~ have to be written "
         "as %XX in its parts";
}

}  // namespace

int RedisUrl::parse(const std::string& text, RedisUrl* url, std::string* why) {
  // Only the first Sentinel is the authority of the URI. The others are put aside.
  ParsedURI uri;
  std::vector<std::string> others;
  std::string plain = text;
  const size_t authority = text.find("://");
  enum TransportType transport = TT_TCP;
  if (authority != std::string::npos &&
      form_of(std::string_view(text).substr(0, authority), &transport) == Form::kSentinels) {
    const size_t end = std::min(text.find_first_of("/?#", authority + 3), text.size());
    const size_t at = text.rfind('@', end);
    const size_t begin = at == std::string::npos || at < authority ? authority + 3 : at + 1;
    size_t comma = text.find(',', begin);
    if (comma < end) {
      plain = text.substr(0, comma) + text.substr(end);
    }
    while (comma < end) {
      const size_t next = std::min(text.find(',', comma + 1), end);
      others.push_back(text.substr(comma + 1, next - comma - 1));
      comma = next;
    }
  }
  URIParser::parse(plain, uri);
  int error = parse(uri, url, why);
  if (error != 0 && why && uri.state != URI_STATE_SUCCESS) {
    *why = why_no_uri(plain);
  }
  for (const std::string& other : others) {
    if (error == 0) {
      error = add_sentinel(other, url, why);
    }
  }
  return error;
}

int RedisUrl::parse(const ParsedURI& uri, RedisUrl* url, std::string* why) {
  *url = RedisUrl();
  if (uri.state != URI_STATE_SUCCESS) {
    return uri.error == ENOMEM ? ENOMEM : int{WFT_ERR_URI_PARSE_FAILED};
  }
  const Form form = form_of(view(uri.scheme), &url->transport);
  if (form == Form::kUnknown) {
    return refuse_url(WFT_ERR_URI_SCHEME_INVALID,
                      "the scheme of the URL is none of redis, rediss, redis+unix, redis+sentinel, "
                      "rediss+sentinel, redis+cluster and rediss+cluster: " +
                          StoreText::quoted(view(uri.scheme)),
                      why);
  }
  int error = set_userinfo(view(uri.userinfo), url, why);
  if (error == 0) {
    error = set_db_of_query(uri.query, url, why);
  }
  if (error != 0) return error;
  const std::string_view path = view(uri.path);
  switch (form) {
    case Form::kUnixSocket:
      return set_unix_path(view(uri.host), path, url, why);
    case Form::kSentinels: {
      url->sentinels.resize(1);
      error = set_server(view(uri.host), view(uri.port), kSentinelPort, &url->sentinels[0], why);
      return error == 0 ? set_master_name(path, url, why) : error;
    }
    default:
      break;
  }
  if (path.size() > 1 && (error = set_db(path.substr(1), url, why)) != 0) return error;
  const char* const scheme = url->transport == TT_TCP_SSL ? "rediss" : "redis";
  const char* const port = SchemePorts::process().get(scheme);
  const auto default_port = parse_number<unsigned int>(view(port), 65535);
  return set_server(view(uri.host), view(uri.port),
                    static_cast<unsigned short>(default_port.value_or(6379)), &url->server, why);
}

std::string RedisUrl::address_of(const Server& server) {
  const bool is_ipv6 = server.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + server.host + "]" : server.host) + ":" + std::to_string(server.port);
}

std::string RedisUrl::address() const {
  if (!unix_path.empty()) return unix_path;
  return server.host.empty() ? "" : address_of(server);
}

ClientTarget RedisUrl::target() const {
  if (unix_path.empty()) return target_of(server);
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
  ClientTarget target = ClientTarget::of(
      transport, reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
  target.greeting = RedisGreeting::of(*this);
  return target;
}

ClientTarget RedisUrl::target_of(const Server& where) const {
  ClientTarget target = ClientTarget::of(transport, where.host, where.port);
  target.greeting = RedisGreeting::of(*this);
  return target;
}

ClientTarget RedisUrl::sentinel_target(const Server& sentinel) const {
  return ClientTarget::of(transport, sentinel.host, sentinel.port);
}

}  // namespace workflow
