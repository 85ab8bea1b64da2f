#pragma once

#include <future>

namespace manager_test {

inline constexpr auto kReady = std::future_status::ready;
inline constexpr auto kTimeout = std::future_status::timeout;

}  // namespace manager_test
