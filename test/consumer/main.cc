// A user's program: waits for a timer, exits with 0 when its callback saw success.

#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

int main() {
  WFFacilities::WaitGroup wait_group(1);
  int state = WFT_STATE_UNDEFINED;

  WFTimerTask* timer =
      WFTaskFactory::create_timer_task("consumer", 0, 1000000, [&](WFTimerTask* task) {
        state = task->get_state();
        wait_group.done();
      });
  timer->start();
  wait_group.wait();

  std::printf("timer: state %d\n", state);
  return state == WFT_STATE_SUCCESS ? 0 : 1;
}
