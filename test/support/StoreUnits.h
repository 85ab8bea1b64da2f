#pragma once

#include <cstdint>

// Times of stores are in microseconds.

namespace store_test {

inline constexpr int64_t kSecondUs = 1'000'000;
inline constexpr int64_t kHourUs = 3600 * kSecondUs;

}  // namespace store_test
