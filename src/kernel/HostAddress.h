#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace workflow {

// Where a host is: an IPv4 or IPv6 address with its port, as connect(2) takes it. A plain value.
struct HostAddress {
  struct sockaddr_storage address;
  socklen_t length;

  static HostAddress of(const struct in_addr& address, uint16_t port = 0);
  static HostAddress of(const struct in6_addr& address, uint16_t port = 0, uint32_t scope = 0);
  // Null when it is of another family, or not complete.
  static std::optional<HostAddress> of(const struct sockaddr* address, socklen_t length);

  int family() const { return address.ss_family; }
  void set_port(uint16_t port);
};

// What a name stands for; shared by the cache and those who asked, the ports are 0.
using HostAddresses = std::shared_ptr<const std::vector<HostAddress>>;

// The address that `host` writes out: IPv4 as four decimal numbers, or IPv6 with or without a scope
// ("fe80::1%eth0", RFC 4007, 11), without brackets. Nothing is looked up. The older notations of
// inet_aton(3) ("127.1", "0x7f.1") are none: what one program takes for a name and another for an
// address is a way around checks.
std::optional<HostAddress> numeric_host(std::string_view host);

// The same with an optional port: "192.0.2.1", "192.0.2.1:53", "2001:db8::1", "[2001:db8::1]:53".
std::optional<HostAddress> numeric_host_and_port(std::string_view text, uint16_t default_port);

// Whether `host` could be known to a name server: at most 253 characters, labels of 1 to 63
// letters, digits, hyphens and underscores between dots, perhaps a dot at the end; and the last
// label is no number, which only a badly written address has (RFC 1123, 2.1). Names in other
// scripts come in their ASCII form (RFC 5890).
bool is_host_name(std::string_view host);

// A copy with ASCII letters in lower case.
std::string lower_case(std::string_view text);

// Puts the family first that the machine prefers: IPv6, if it has a route to the first of these
// addresses, else IPv4. Within a family the order stays: name servers turn it to spread load. (Of
// RFC 6724 these are rules 1, 6 and 10. The others need addresses of both ends for each pair.)
void order_by_route(std::vector<HostAddress>& addresses);

}  // namespace workflow
