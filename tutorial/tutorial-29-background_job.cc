// Shows: a job that runs beside the program as a loop, and ends with the process: its wait ends at
// once, it says its last word, and nothing is left behind.
//
// Try:   tutorial-29-background_job      Enter ends it
#include <chrono>
#include <cstdio>

#include "workflow/WFCoroutine.h"
#include "workflow/Workflow.h"

using namespace std::chrono_literals;

namespace {

// The loop goes on as long as each sleep lasts until its time has come.
WFCo<> report(const char* what) {
  int reports = 0;
  WFEnd slept = co_await wf::sleep(100ms);
  while (slept) {
    std::printf("%s: report %d\n", what, ++reports);
    std::fflush(stdout);
    slept = co_await wf::sleep(100ms);
  }
  // The library is stopping. Whatever else is awaited now ends at once, in the same way.
  std::printf("%s: %s after %d reports\n", what,
              slept.state == WFT_STATE_ABORTED ? "the process ends" : "stopped", reports);
}

}  // namespace

int main() {
  // A coroutine that nobody waits for is a task like any other. What it is given is copied.
  Workflow::start_series_work(wf::task(report, "job"), nullptr);
  std::getchar();
}
