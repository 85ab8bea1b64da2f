#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

// What the fuzzers share: how bytes are cut, and what happens when a promise is broken.
namespace fuzzing {

// Set when the corpus is replayed as a test: every place is tried.
inline bool cut_everywhere = false;

inline void require(bool condition, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!condition) {
    std::fprintf(stderr, "%s:%d: a promise is broken\n", file, line);
    std::abort();
  }
}

using Cuts = std::vector<size_t>;

// Pieces of 1 to `longest` bytes, by a generator that all of the bytes seed: the fuzzer chooses.
inline Cuts random_cuts(std::string_view bytes, size_t longest) {
  uint32_t random = 2166136261u;
  for (char byte : bytes)
    random = (random ^ static_cast<unsigned char>(byte)) * 16777619u;
  Cuts cuts;
  for (size_t at = 0;;) {
    random = random * 1664525u + 1013904223u;
    at += 1 + (random >> 16) % longest;
    if (at >= bytes.size()) return cuts;
    cuts.push_back(at);
  }
}

// Calls `check(cuts)` for the same bytes cut in many ways, not at all being none of them.
template <class Check>
void for_each_cutting(std::string_view bytes, Check check) {
  for (size_t longest : {size_t{1}, size_t{7}, size_t{100}})
    check(random_cuts(bytes, longest));
  if (bytes.size() < 2) return;
  // The last bytes say where: a change there changes nothing else.
  size_t last = static_cast<unsigned char>(bytes.back());
  size_t before = static_cast<unsigned char>(bytes[bytes.size() - 2]);
  Cuts two{1 + last % (bytes.size() - 1), 1 + before * 17 % (bytes.size() - 1)};
  std::sort(two.begin(), two.end());
  check(two);
  for (size_t cut = 0; cut_everywhere && cut <= bytes.size(); ++cut)
    check(Cuts{cut});
}

// Gives `append(piece, &size)` the pieces in turn, each in a heap block of exactly its size so that
// a read beyond it is seen, until it returns something but 0. `*consumed` gets what was taken.
template <class Append>
int feed(std::string_view bytes, const Cuts& cuts, size_t* consumed, Append append) {
  size_t from = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    size_t to = i < cuts.size() ? cuts[i] : bytes.size();
    std::unique_ptr<char[]> piece(new char[to - from]);
    if (to > from) std::memcpy(piece.get(), bytes.data() + from, to - from);
    size_t taken = to - from;
    int result = append(piece.get(), &taken);
    require(taken <= to - from);
    *consumed = from + taken;
    if (result != 0) return result;
    from = to;
  }
  return 0;
}

}  // namespace fuzzing
