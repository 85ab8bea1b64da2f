#include "kernel/ThreadContext.h"

namespace workflow {

constinit thread_local ThreadContext ThreadContext::current_{};

}  // namespace workflow
