#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace workflow {

// The buckets of WFTimerStats::Lateness: four for each power of two.
inline size_t lateness_bucket_of(int64_t ns) {
  const auto value = static_cast<uint64_t>(std::max<int64_t>(ns, 1));
  const auto exponent = static_cast<size_t>(std::bit_width(value) - 1);
  const uint64_t next_two_bits =
      exponent >= 2 ? value >> (exponent - 2) & 3 : value << (2 - exponent) & 3;
  return exponent * 4 + static_cast<size_t>(next_two_bits);
}

// The end of a bucket: it has the values that are lower and not in an earlier bucket.
inline double end_of_lateness_bucket(size_t bucket) {
  const double power = static_cast<double>(uint64_t{1} << (bucket / 4));
  return power * (1 + static_cast<double>(bucket % 4 + 1) / 4);
}

}  // namespace workflow
