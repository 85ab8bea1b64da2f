// Shows: acting once when a burst of events is over (debounce), by rescheduling a named timer.
//
// Try:   tutorial-17-debounce [milliseconds of quiet]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "workflow/WFFacilities.h"
#include "workflow/WFTimer.h"

using std::chrono::milliseconds;

namespace {

// A file has changed: index it once nothing has changed it for so long.
void changed(const std::string& file, milliseconds quiet, WFFacilities::WaitGroup* indexed) {
  // A timer that waits already is put off; else this is the first change of a burst.
  if (WFTimer::reschedule(file, quiet) > 0) {
    return;
  }
  // Should another thread come to this line at the same time, one of both timers gets the name.
  WFTimer::create(quiet, {file, WF_TIMER_KEEP}, [file, indexed](WFTimerTask* timer) {
    if (timer->get_state() == WFT_STATE_SUCCESS) {
      std::printf("indexed %s\n", file.c_str());
      indexed->done();
    }
  })->start();
}

}  // namespace

int main(int argc, char** argv) {
  const milliseconds quiet(argc > 1 ? std::atoi(argv[1]) : 500);
  WFFacilities::WaitGroup indexed(2);
  for (int i = 0; i < 20; i++) {
    changed("notes.txt", quiet, &indexed);
    changed("todo.txt", quiet, &indexed);
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::printf("40 changes\n");
  indexed.wait();
}
