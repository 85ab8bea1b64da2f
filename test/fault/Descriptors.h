#pragma once

#include <cstddef>

#include "server/TestServer.h"
#include "support/Descriptors.h"

namespace fault {

using test_support::descriptor_count;

// Whether there are soon no more than that.
inline bool descriptors_return_to(size_t count) {
  return server_test::eventually([count] { return descriptor_count() <= count; });
}

}  // namespace fault
