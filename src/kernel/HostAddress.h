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

// An IPv4 or IPv6 address with a port, in the form that connect(2) takes. A plain value.
struct HostAddress {
  struct sockaddr_storage address;
  socklen_t length;

  static HostAddress of(const struct in_addr& address, uint16_t port = 0);
  static HostAddress of(const struct in6_addr& address, uint16_t port = 0, uint32_t scope = 0);
  // Null if the address is of another family or incomplete.
  static std::optional<HostAddress> of(const struct sockaddr* address, socklen_t length);

  int family() const { return address.ss_family; }
  void set_port(uint16_t port);
};

// The addresses of a name, shared by the cache and its users. The ports are 0.
using HostAddresses = std::shared_ptr<const std::vector<HostAddress>>;

// The address that `host` writes out: IPv4 as four decimal numbers, or IPv6 with or without a scope
// ("fe80::1%eth0", RFC 4007, 11), without brackets. Nothing is looked up. The older notations of
// inet_aton(3) ("127.1", "0x7f.1") are not accepted: a text that one program takes for a name and
// another for an address can be used to get around checks.
std::optional<HostAddress> numeric_host(std::string_view host);

// The address that `text` writes out, with an optional port: "192.0.2.1", "192.0.2.1:53",
// "2001:db8::1", "[2001:db8::1]:53".
std::optional<HostAddress> numeric_host_and_port(std::string_view text, uint16_t default_port);

// Whether `host` could be known to a name server: at most 253 characters, labels of 1 to 63
// letters, digits, hyphens and underscores between dots, perhaps a dot at the end; and the last
// label is not a number, because only a malformed address ends in one (RFC 1123, 2.1). Names in
// other scripts must be in their ASCII form (RFC 5890).
bool is_host_name(std::string_view host);

// Returns a copy with ASCII letters in lower case.
std::string lower_case(std::string_view text);

// Puts the family first that the machine prefers: IPv6, if the machine has a route to the first
// IPv6 address, else IPv4. Within a family the order stays, because name servers rotate it to
// spread load. (These are rules 1, 6 and 10 of RFC 6724. The other rules need both ends' addresses
// for each pair.)
void sort_by_route(std::vector<HostAddress>& addresses);

}  // namespace workflow
