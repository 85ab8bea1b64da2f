#include "kernel/HostsFile.h"

#include "kernel/TextLines.h"

namespace workflow {

namespace {

bool is_localhost(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

}  // namespace

HostsFile::HostsFile(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    add_line(line.substr(0, line.find('#')));
  }
}

void HostsFile::add_line(std::string_view line) {
  const auto address = numeric_host(take_word(line));
  if (!address) return;
  for (std::string_view name = take_word(line); !name.empty(); name = take_word(line)) {
    if (name.ends_with('.')) {
      name.remove_suffix(1);
    }
    addresses_[lower_case(name)].push_back(*address);
  }
}

std::vector<HostAddress> HostsFile::find(std::string_view name, int family) const {
  std::vector<HostAddress> known;
  if (is_localhost(name)) {
    known = {HostAddress::of(in6addr_loopback), HostAddress::of(in_addr{htonl(INADDR_LOOPBACK)})};
  } else if (const auto found = addresses_.find(name); found != addresses_.end()) {
    known = found->second;
  }
  std::erase_if(known, [family](const HostAddress& address) {
    return family != AF_UNSPEC && address.family() != family;
  });
  return known;
}

}  // namespace workflow
