#include "support/TestSeed.h"

#include <cstdio>
#include <cstdlib>

namespace test_support {

namespace {

uint64_t choose_seed() {
  const char* given = std::getenv("WORKFLOW_TEST_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::printf("Replay with WORKFLOW_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace

uint64_t test_seed() {
  static const uint64_t seed = choose_seed();
  return seed;
}

int64_t env_number(const char* name, int64_t fallback) {
  const char* given = std::getenv(name);
  return given ? std::strtoll(given, nullptr, 0) : fallback;
}

}  // namespace test_support
