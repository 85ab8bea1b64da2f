#include "util/VirtualScheduler.h"

namespace workflow {

constinit thread_local VirtualScheduler* VirtualScheduler::current_ = nullptr;

}  // namespace workflow
