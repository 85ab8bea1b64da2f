#include "workflow/WFFacilities.h"

#include "manager/Countdown.h"
#include "util/Time.h"

using workflow::Countdown;

namespace {

std::future_status status_of(bool ready) {
  return ready ? std::future_status::ready : std::future_status::timeout;
}

// Starts the file task that `create` makes with a callback; its result.
template <class RESULT, class CREATE>
WFFuture<RESULT> started(CREATE create) {
  const auto promise = std::make_shared<WFPromise<RESULT>>();
  WFFuture<RESULT> result = promise->get_future();
  create([promise](auto* task) {
    promise->set_value(static_cast<RESULT>(task->get_retval()));
  })->start();
  return result;
}

}  // namespace

void WFFacilities::usleep(unsigned int microseconds) {
  async_usleep(microseconds).wait();
}

WFFuture<void> WFFacilities::async_usleep(unsigned int microseconds) {
  return async_sleep_for(std::chrono::microseconds(microseconds));
}

void WFFacilities::sleep_for(workflow::Duration duration) {
  async_sleep_for(duration).wait();
}

WFFuture<void> WFFacilities::async_sleep_for(workflow::Duration duration) {
  const auto promise = std::make_shared<WFPromise<void>>();
  WFFuture<void> slept = promise->get_future();
  const std::chrono::nanoseconds delay(duration.positive_ns());
  WFTaskFactory::create_timer_task(delay, [promise](WFTimerTask*) {
    promise->set_value();
  })->start();
  return slept;
}

WFFuture<ssize_t> WFFacilities::async_pread(int fd, void* buf, size_t count, off_t offset) {
  return started<ssize_t>([&](auto callback) {
    return WFTaskFactory::create_pread_task(fd, buf, count, offset, std::move(callback));
  });
}

WFFuture<ssize_t> WFFacilities::async_pwrite(int fd, const void* buf, size_t count, off_t offset) {
  return started<ssize_t>([&](auto callback) {
    return WFTaskFactory::create_pwrite_task(fd, buf, count, offset, std::move(callback));
  });
}

WFFuture<ssize_t> WFFacilities::async_preadv(int fd, const struct iovec* iov, int iovcnt,
                                             off_t offset) {
  return started<ssize_t>([&](auto callback) {
    return WFTaskFactory::create_preadv_task(fd, iov, iovcnt, offset, std::move(callback));
  });
}

WFFuture<ssize_t> WFFacilities::async_pwritev(int fd, const struct iovec* iov, int iovcnt,
                                              off_t offset) {
  return started<ssize_t>([&](auto callback) {
    return WFTaskFactory::create_pwritev_task(fd, iov, iovcnt, offset, std::move(callback));
  });
}

WFFuture<int> WFFacilities::async_fsync(int fd) {
  return started<int>(
      [&](auto callback) { return WFTaskFactory::create_fsync_task(fd, std::move(callback)); });
}

WFFuture<int> WFFacilities::async_fdatasync(int fd) {
  return started<int>(
      [&](auto callback) { return WFTaskFactory::create_fdatasync_task(fd, std::move(callback)); });
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
  left_->wait(-1, "WaitGroup::wait()");
}

std::future_status WFFacilities::WaitGroup::wait(int milliseconds) const {
  return status_of(left_->wait(milliseconds * workflow::kNsPerMs, "WaitGroup::wait()"));
}

std::future_status WFFacilities::WaitGroup::wait_for(workflow::Duration duration) const {
  return status_of(left_->wait(duration.positive_ns(), "WaitGroup::wait_for()"));
}
