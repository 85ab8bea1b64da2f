// Our side of the timer rows. Links: workflow.
//
// Default settings, and every call as a user writes it: create a task, start it, cancel by name.

#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>

#include "common/TimerRows.h"

namespace bench {
namespace {

class WorkflowTimers {
 public:
  static constexpr const char* kPeer = "ours";

  void start(int64_t delay_ns, Completion completion) {
    WFTaskFactory::create_timer_task(seconds(delay_ns), nanoseconds(delay_ns), report(completion))
        ->start();
  }

  void start_named(const std::string& name, int64_t delay_ns, Completion completion) {
    WFTaskFactory::create_timer_task(name, seconds(delay_ns), nanoseconds(delay_ns),
                                     report(completion))
        ->start();
  }

  size_t cancel(const std::string& name, size_t max) {
    return static_cast<size_t>(WFTaskFactory::cancel_by_name(name, max));
  }

  void settle() {}  // start() has armed it

 private:
  static time_t seconds(int64_t delay_ns) { return static_cast<time_t>(delay_ns / kNsPerSecond); }
  static long nanoseconds(int64_t delay_ns) { return static_cast<long>(delay_ns % kNsPerSecond); }

  static timer_callback_t report(Completion completion) {
    return [completion](WFTimerTask* task) {
      completion.run(completion.context, task->get_state() != WFT_STATE_SUCCESS);
    };
  }
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  // The threads are started before anything is measured, as a peer's loop thread is.
  WFFacilities::usleep(1000);
  static bench::WorkflowTimers timers;
  bench::run_timer_row(timers, argc, argv);
}
