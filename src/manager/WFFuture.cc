#include "workflow/WFFuture.h"

#include "manager/Countdown.h"

namespace workflow {

FutureState::FutureState() : countdown_(std::make_unique<Countdown>(1)) {}

FutureState::~FutureState() = default;

void FutureState::finish() {
  countdown_->add(-1);
}

bool FutureState::wait(int64_t timeout_ns) const {
  return countdown_->wait(timeout_ns, "a wait of WFFuture");
}

}  // namespace workflow
