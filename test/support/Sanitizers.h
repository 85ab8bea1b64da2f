#pragma once

#include "util/Sanitizers.h"

namespace test_support {

// Whether the test runs under a sanitizer, which makes everything several times slower and larger.
#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace test_support
