// Shows: coroutines that sleep, and one that wakes some of them by their name.
//
// Try:   tutorial-25-sleep
#include <chrono>
#include <cstdio>

#include "workflow/WFCoroutine.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

using namespace std::chrono_literals;

namespace {

// A coroutine is a function that returns WFCo<> and contains co_await. While it waits it is a timer
// and its local variables, and no thread.
WFCo<> sleeper(int number) {
  const WFEnd end = co_await wf::sleep("nap", 30s);
  std::printf("%d: %s\n", number, WFGlobal::get_error_string(end.state, end.error));
}

// Wakes two at a time, those who have slept longest.
WFCo<> waker(int sleepers) {
  while (sleepers > 0) {
    const WFEnd slept = co_await wf::sleep(100ms);
    slept.check();  // throws if this sleep was cut short
    const int woken = WFTaskFactory::cancel_by_name("nap", 2);
    std::printf("woken: %d\n", woken);
    sleepers -= woken;
  }
}

// All at once; returns when the last of them has.
WFCo<> everybody() {
  co_await wf::all(sleeper(1), sleeper(2), sleeper(3), waker(3));
  std::printf("all are awake\n");
}

}  // namespace

int main() {
  wf::wait(everybody);  // main() is no coroutine: it blocks until this one has returned
}
