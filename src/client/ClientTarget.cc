#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/ClientSettings.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskError.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

namespace {

// Returns 0 if the text is not a port: nobody listens there.
unsigned short port_of(const char* text) {
  char* end = nullptr;
  const unsigned long port = std::strtoul(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0' && port <= 65535
             ? static_cast<unsigned short>(port)
             : 0;
}

ClientTarget new_target(enum TransportType transport) {
  ClientTarget target;
  target.transport = transport;
  target.params = default_endpoint_params();
  target.error = is_transport(transport) ? 0 : EINVAL;
  return target;
}

}  // namespace

ClientTarget ClientTarget::of(enum TransportType transport, const std::string& host,
                              unsigned short port) {
  ClientTarget target = new_target(transport);
  target.host = host;
  target.port = port;
  return target;
}

ClientTarget ClientTarget::of(enum TransportType transport, const struct sockaddr* address,
                              socklen_t length) {
  ClientTarget target = new_target(transport);
  if (!address || length < sizeof address->sa_family || length > sizeof target.address) {
    target.error = EINVAL;
    return target;
  }
  target.address_length = length;
  std::memcpy(&target.address, address, length);
  // A certificate has to name at least that.
  char text[INET6_ADDRSTRLEN] = "";
  if (target.address.ss_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const struct sockaddr_in*>(&target.address);
    ::inet_ntop(AF_INET, &ipv4->sin_addr, text, sizeof text);
    target.port = ntohs(ipv4->sin_port);
  } else if (target.address.ss_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const struct sockaddr_in6*>(&target.address);
    ::inet_ntop(AF_INET6, &ipv6->sin6_addr, text, sizeof text);
    target.port = ntohs(ipv6->sin6_port);
  }
  target.verified_host = text;
  return target;
}

int ClientTarget::parse(enum TransportType transport, const std::string& url,
                        ClientTarget* target) {
  ParsedURI uri;
  return URIParser::parse(url, uri) == 0 ? parse(transport, uri, target) : WFT_ERR_URI_PARSE_FAILED;
}

int ClientTarget::parse(enum TransportType transport, const ParsedURI& uri, ClientTarget* target) {
  if (uri.state != URI_STATE_SUCCESS || !uri.host) return WFT_ERR_URI_PARSE_FAILED;
  const char* port = uri.port;
  if (!port) {
    port = uri.scheme ? SchemePorts::process().get(uri.scheme) : nullptr;
    if (!port) return WFT_ERR_URI_SCHEME_INVALID;
  }
  if (port_of(port) == 0) return WFT_ERR_URI_PORT_INVALID;
  *target = of(transport, uri.host, port_of(port));
  return 0;
}

}  // namespace workflow
