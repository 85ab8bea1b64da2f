#include "kernel/EndClaim.h"

#include "util/VirtualScheduler.h"

namespace workflow {

void EndClaim::ask(int error) {
  schedule_point();
  users_.fetch_add(1, std::memory_order_relaxed);
  error_.store(error, std::memory_order_release);
}

void EndClaim::unref() {
  schedule_point();
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    delete this;
  }
}

}  // namespace workflow
