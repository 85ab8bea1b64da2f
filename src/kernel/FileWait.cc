#include "kernel/FileWait.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "kernel/FileOperation.h"
#include "kernel/FileThreads.h"
#include "util/VirtualScheduler.h"

namespace workflow {

FileWait::Result FileWait::wait(int fd, short events, int ms) {
  if (VirtualScheduler::current()) {
    return Result::kCannot;
  }
  if (!wake_fd_.valid()) {
    wake_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!wake_fd_.valid()) {
      return Result::kCannot;
    }
  }
  if (!threads_.begin_wait(operation_, wake_fd_.get())) {
    return Result::kInterrupted;
  }
  struct pollfd both[] = {{wake_fd_.get(), POLLIN, 0}, {fd, events, 0}};
  ::poll(both, 2, ms);  // interrupted by a signal: then it is over
  return threads_.end_wait(operation_) ? Result::kOver : Result::kInterrupted;
}

int FileWait::error() const {
  return operation_.ending();
}

}  // namespace workflow
