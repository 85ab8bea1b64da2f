// Shows: a timer with a name, and its cancelling by any thread.
//
// Try:   tutorial-02-named_timer
#include <cerrno>
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

int main() {
  WFFacilities::WaitGroup done(3);
  auto callback = [&done](WFTimerTask* timer) {
    const bool cancelled =
        timer->get_state() == WFT_STATE_SYS_ERROR && timer->get_error() == ECANCELED;
    std::printf("%s\n", cancelled ? "cancelled" : "expired");
    done.done();
  };

  // Three timers of one name: two of an hour, then one of 10 ms.
  WFTaskFactory::create_timer_task("tea", 3600, 0, callback)->start();
  WFTaskFactory::create_timer_task("tea", 3600, 0, callback)->start();
  WFTaskFactory::create_timer_task("tea", 0, 10 * 1000 * 1000, callback)->start();

  // The oldest two. Their callbacks run on a thread of the library, never inside this call.
  const int cancelled = WFTaskFactory::cancel_by_name("tea", 2);

  done.wait();
  // Exact: this many callbacks saw ECANCELED.
  std::printf("cancelled %d timers\n", cancelled);
}
