#pragma once

#include <cstdint>
#include <string_view>

namespace workflow {

// A key that cannot be guessed from outside the process.
struct SipKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;

  // Returns a new key from getrandom(2).
  static SipKey random();
};

// SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; one compression
// and three finalisation rounds). An attacker who chooses the inputs, but does not know the key,
// cannot make hashes collide. So names may come from clients.
uint64_t sip_hash(const SipKey& key, std::string_view bytes);

}  // namespace workflow
