#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernel/HostAddress.h"

namespace workflow {

// The names of a hosts file, hosts(5). Pure data, not thread-safe; reads no file.
//
// c-ares 1.18 could look there too, but reads the whole file for each name, and takes another path
// from the environment only.
class HostsFile {
 public:
  HostsFile() = default;
  // Lines that cannot be understood are ignored.
  explicit HostsFile(std::string_view text);

  // The addresses of `name`, of the family or of both (AF_UNSPEC), in the order of the lines.
  // `name` must be in lower case and must not end in a dot. The addresses of "localhost", and of
  // all names that end in ".localhost", are the loopback addresses, whatever the file says (RFC
  // 6761, 6.3).
  std::vector<HostAddress> find(std::string_view name, int family) const;

  size_t size() const { return addresses_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  void add_line(std::string_view line);

  std::unordered_map<std::string, std::vector<HostAddress>, Hash, std::equal_to<>> addresses_;
};

}  // namespace workflow
