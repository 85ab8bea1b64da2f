#pragma once

#include <chrono>
#include <cstddef>

// What tests of slow peers have in common.

namespace fault {

// More than the buffers of a connection hold.
inline constexpr size_t kLargeSize = size_t{10} * 1024 * 1024;

// How long peers are stopped and callbacks block: what is promised is about these 5 s.
inline constexpr std::chrono::seconds kSlow{5};

}  // namespace fault
