#include "kernel/HostAddress.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "util/UniqueFd.h"

namespace workflow {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_name_character(char c) {
  return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' || c == '_';
}

// The value of `text`, which must be a decimal number as a whole.
template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty() ? std::optional(value) : std::nullopt;
}

// The index of an interface given by number or name.
std::optional<uint32_t> scope_index(std::string_view scope) {
  if (const auto index = number<uint32_t>(scope)) return index;
  char name[IF_NAMESIZE] = {};
  if (scope.empty() || scope.size() >= sizeof name || scope.find('\0') != scope.npos) {
    return std::nullopt;
  }
  scope.copy(name, scope.size());
  const uint32_t index = ::if_nametoindex(name);
  return index ? std::optional(index) : std::nullopt;
}

// The result of inet_pton(3) for `text`, which has to be copied because it must end in a NUL.
template <class Address>
std::optional<Address> parse(int family, std::string_view text) {
  char terminated[INET6_ADDRSTRLEN] = {};
  if (text.size() >= sizeof terminated || text.find('\0') != text.npos) return std::nullopt;
  text.copy(terminated, text.size());
  Address address;
  return ::inet_pton(family, terminated, &address) == 1 ? std::optional(address) : std::nullopt;
}

// As RFC 1123 and the URL standard define it: no top-level domain looks like a number.
bool looks_like_number(std::string_view label) {
  if (label.size() >= 2 && label[0] == '0' && lower(label[1]) == 'x') {
    return std::all_of(label.begin() + 2, label.end(),
                       [](char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f'); });
  }
  return std::all_of(label.begin(), label.end(), is_digit);
}

bool has_route(HostAddress address) {
  const UniqueFd socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Connecting a datagram socket only looks up the route; the port does not matter.
  address.set_port(9);
  return socket.valid() &&
         ::connect(socket.get(), reinterpret_cast<const struct sockaddr*>(&address.address),
                   address.length) == 0;
}

}  // namespace

HostAddress HostAddress::of(const struct in_addr& address, uint16_t port) {
  struct sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr = address;
  v4.sin_port = htons(port);
  HostAddress result = {};
  std::memcpy(&result.address, &v4, sizeof v4);
  result.length = sizeof v4;
  return result;
}

HostAddress HostAddress::of(const struct in6_addr& address, uint16_t port, uint32_t scope) {
  struct sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = address;
  v6.sin6_port = htons(port);
  v6.sin6_scope_id = scope;
  HostAddress result = {};
  std::memcpy(&result.address, &v6, sizeof v6);
  result.length = sizeof v6;
  return result;
}

std::optional<HostAddress> HostAddress::of(const struct sockaddr* address, socklen_t length) {
  const bool complete =
      address &&
      ((address->sa_family == AF_INET && length >= static_cast<socklen_t>(sizeof(sockaddr_in))) ||
       (address->sa_family == AF_INET6 && length >= static_cast<socklen_t>(sizeof(sockaddr_in6))));
  if (!complete) return std::nullopt;
  HostAddress result = {};
  result.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&result.address, address, result.length);
  return result;
}

// The port is at the same place in both.
void HostAddress::set_port(uint16_t port) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  const uint16_t network_order = htons(port);
  std::memcpy(reinterpret_cast<char*>(&address) + offsetof(sockaddr_in, sin_port), &network_order,
              sizeof network_order);
}

std::optional<HostAddress> numeric_host(std::string_view host) {
  if (const auto v4 = parse<struct in_addr>(AF_INET, host)) return HostAddress::of(*v4);
  const size_t percent = host.find('%');
  const auto v6 = parse<struct in6_addr>(AF_INET6, host.substr(0, percent));
  if (!v6) return std::nullopt;
  uint32_t scope = 0;
  if (percent != host.npos) {
    const auto index = scope_index(host.substr(percent + 1));
    if (!index) return std::nullopt;
    scope = *index;
  }
  return HostAddress::of(*v6, 0, scope);
}

std::optional<HostAddress> numeric_host_and_port(std::string_view text, uint16_t default_port) {
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == text.npos || (close + 1 < text.size() && text[close + 1] != ':')) {
      return std::nullopt;
    }
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  const auto value = port.empty() ? std::optional(default_port) : number<uint16_t>(port.substr(1));
  auto address = numeric_host(host);
  if (!address || !value || *value == 0) return std::nullopt;
  address->set_port(*value);
  return address;
}

bool is_host_name(std::string_view host) {
  constexpr size_t kMaxName = 253;
  constexpr size_t kMaxLabel = 63;
  if (host.ends_with('.')) {
    host.remove_suffix(1);
  }
  if (host.empty() || host.size() > kMaxName) return false;
  for (;;) {
    const size_t dot = host.find('.');
    const std::string_view label = host.substr(0, dot);
    if (label.empty() || label.size() > kMaxLabel ||
        !std::all_of(label.begin(), label.end(), is_name_character)) {
      return false;
    }
    if (dot == host.npos) return !looks_like_number(label);
    host.remove_prefix(dot + 1);
  }
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

void sort_by_route(std::vector<HostAddress>& addresses) {
  const auto is_v6 = [](const HostAddress& address) { return address.family() == AF_INET6; };
  const auto first_v6 = std::find_if(addresses.begin(), addresses.end(), is_v6);
  if (first_v6 == addresses.end() || std::all_of(addresses.begin(), addresses.end(), is_v6)) return;
  const bool v6_first = has_route(*first_v6);
  std::stable_partition(addresses.begin(), addresses.end(),
                        [&](const HostAddress& address) { return is_v6(address) == v6_first; });
}

}  // namespace workflow
