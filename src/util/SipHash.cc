#include "util/SipHash.h"

#include <sys/random.h>

#include <bit>
#include <cstring>

#include "util/Time.h"

namespace workflow {

namespace {

struct State {
  uint64_t v0;
  uint64_t v1;
  uint64_t v2;
  uint64_t v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }

  void absorb(uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }
};

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

uint64_t read_word(const char* bytes, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

}  // namespace

SipKey SipKey::random() {
  SipKey key;
  if (::getrandom(&key, sizeof key, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof key)) {
    // Used before the system has gathered randomness; it is better than a constant.
    key.k0 = static_cast<uint64_t>(monotonic_ns());
    key.k1 = reinterpret_cast<uintptr_t>(&key);
  }
  return key;
}

uint64_t sip_hash(const SipKey& key, std::string_view bytes) {
  State state{key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d, key.k0 ^ 0x6c7967656e657261,
              key.k1 ^ 0x7465646279746573};
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    state.absorb(read_word(at, sizeof(uint64_t)));
  }
  const uint64_t tail = left > 0 ? read_word(at, left) : 0;
  state.absorb(tail | static_cast<uint64_t>(bytes.size()) << 56);
  state.v2 ^= 0xff;
  state.round();
  state.round();
  state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace workflow
