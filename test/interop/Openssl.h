#pragma once

#include <string>
#include <vector>

#include "support/Program.h"

namespace interop_test {

// Unbuffered: into a pipe it would keep to itself much of what tests wait for.
inline std::vector<std::string> unbuffered(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"-o0", "openssl"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

inline test_support::ProgramResult openssl(const std::vector<std::string>& arguments,
                                           std::string_view input = {}) {
  return test_support::run_program("openssl", arguments, {.stderr_is_output = true}, input);
}

// "openssl s_client" connected to a port of 127.0.0.1, which takes what it sends from its stdin,
// except for "R", "K", "Q" at the beginning of what it reads at once.
class SslClient : public test_support::Program {
 public:
  SslClient(uint16_t port, const std::vector<std::string>& arguments)
      : Program("stdbuf", unbuffered(with(port, arguments)), {.stderr_is_output = true}) {}

 private:
  static std::vector<std::string> with(uint16_t port, const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"s_client", "-connect", "127.0.0.1:" + std::to_string(port)};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace interop_test
