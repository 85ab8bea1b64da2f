#include "workflow/WFManualClock.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "kernel/ManualClock.h"
#include "kernel/Runtime.h"

using workflow::ManualClock;
using workflow::Runtime;

namespace {

ManualClock& manual_clock() {
  // Never destroyed: the pollers read it until the very end.
  static ManualClock& clock = *new ManualClock;
  return clock;
}

// The calling thread's runtime, if it follows the manual clock.
Runtime& runtime() {
  Runtime& current = Runtime::current();
  if (&current.clock() != &manual_clock()) {
    std::fprintf(stderr, "workflow: the manual clock is moved, but it is not installed\n");
    std::abort();
  }
  return current;
}

}  // namespace

int WFManualClock::install() {
  if (!Runtime::install_clock(manual_clock())) {
    errno = EBUSY;
    return -1;
  }
  return 0;
}

int64_t WFManualClock::now_ns() {
  return manual_clock().now_ns();
}

void WFManualClock::advance(int64_t nanoseconds) {
  manual_clock().advance(runtime(), nanoseconds);
}

void WFManualClock::set_wall(std::chrono::system_clock::time_point date) {
  manual_clock().set_wall(runtime(), workflow::Duration(date.time_since_epoch()).ns());
}

void WFManualClock::suspend(workflow::Duration duration) {
  manual_clock().suspend(runtime(), duration.ns());
}

bool WFManualClock::advance_to_next_deadline() {
  return manual_clock().advance_to_next_deadline(runtime());
}
