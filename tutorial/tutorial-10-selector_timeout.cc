// Shows: the first answer wins, or else the timeout does. Timers stand for the two services asked.
//
// Try:   tutorial-10-selector_timeout
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

namespace {

char first_answer[] = "the first service";
char second_answer[] = "the second service";
char timeout[] = "the timeout";

// Submits its message after that time. Every candidate submits once, whatever happens: the selector
// lives until all of them have. What loses stays the candidate's.
WFTimerTask* candidate(WFSelectorTask* selector, long ms, char* message,
                       WFFacilities::WaitGroup& done) {
  auto callback = [selector, message, &done](WFTimerTask* timer) {
    const bool in_time = timer->get_state() == WFT_STATE_SUCCESS;
    if (selector->submit(in_time ? message : nullptr) == 0)
      std::printf("  not needed: %s\n", message);
    done.done();
  };
  return WFTaskFactory::create_timer_task("candidates", ms / 1000, ms % 1000 * 1000 * 1000,
                                          callback);
}

void ask(long first_ms, long second_ms, long timeout_ms) {
  WFFacilities::WaitGroup done(4);  // the selector and its candidates
  WFSelectorTask* selector = WFTaskFactory::create_selector_task(3, [&done](WFSelectorTask* task) {
    std::printf("%s\n", static_cast<const char*>(task->get_message()));
    // Nobody waits for the others any more: they end as cancelled, at once or as they start.
    WFTaskFactory::cancel_by_name("candidates");
    done.done();
  });
  selector->start();

  WFTimerTask* candidates[] = {candidate(selector, first_ms, first_answer, done),
                               candidate(selector, second_ms, second_answer, done),
                               candidate(selector, timeout_ms, timeout, done)};
  for (WFTimerTask* each : candidates) {
    each->start();
  }
  done.wait();
}

}  // namespace

int main() {
  ask(90'000, 10, 50'000);
  ask(90'000, 80'000, 20);
}
