#include "workflow/WFFacilities.h"

#include "manager/Countdown.h"
#include "util/Time.h"

using workflow::Countdown;

namespace {

std::future_status status_of(bool ready) {
  return ready ? std::future_status::ready : std::future_status::timeout;
}

}  // namespace

void WFFacilities::usleep(unsigned int microseconds) {
  async_usleep(microseconds).wait();
}

WFFuture<void> WFFacilities::async_usleep(unsigned int microseconds) {
  const auto promise = std::make_shared<WFPromise<void>>();
  WFFuture<void> slept = promise->get_future();
  WFTaskFactory::create_timer_task(microseconds, [promise](WFTimerTask*) {
    promise->set_value();
  })->start();
  return slept;
}

WFFacilities::WaitGroup::WaitGroup(int n) : left_(std::make_shared<Countdown>(n)) {}

WFFacilities::WaitGroup::~WaitGroup() = default;

void WFFacilities::WaitGroup::add(int n) {
  // A waiter may destroy this group before add() returns.
  const std::shared_ptr<Countdown> left = left_;
  left->add(n);
}

void WFFacilities::WaitGroup::done() {
  add(-1);
}

void WFFacilities::WaitGroup::wait() const {
  left_->wait(-1);
}

std::future_status WFFacilities::WaitGroup::wait(int milliseconds) const {
  return status_of(left_->wait(milliseconds * workflow::kNsPerMs));
}
