#include "kernel/OriginProcess.h"

namespace workflow {

constinit std::atomic<int> OriginProcess::forks_{0};

}  // namespace workflow
