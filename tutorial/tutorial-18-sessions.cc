// Shows: 100,000 sessions that expire when nothing came for a while, and are renewed by what comes.
//
// Try:   tutorial-18-sessions [number of sessions]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "workflow/WFFacilities.h"
#include "workflow/WFTimer.h"

using std::chrono::milliseconds;
using std::chrono::minutes;

int main(int argc, char* argv[]) {
  const size_t sessions = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100000;
  std::atomic<size_t> expired{0};
  std::atomic<size_t> logged_out{0};
  WFFacilities::WaitGroup ended(static_cast<int>(sessions));

  // Each session keeps the handle of its timer, and nothing else of it.
  std::vector<WFTimerHandle> handles;
  handles.reserve(sessions);
  for (size_t i = 0; i < sessions; i++) {
    WFTimerTask* timer = WFTimer::create(minutes(30), [&](WFTimerTask* task) {
      (task->get_state() == WFT_STATE_SUCCESS ? expired : logged_out)++;
      ended.done();
    });
    handles.push_back(WFTimer::handle_of(timer));
    timer->start();
  }

  // A request renews its session. The verdict says whether that still lives.
  size_t renewed = 0;
  for (int requests = 0; requests < 10; requests++) {
    for (const WFTimerHandle& handle : handles) {
      renewed += handle.reschedule(minutes(30)) == WFTimerMove::kWon;
    }
  }
  std::printf("%zu renewals\n", renewed);

  // Every other user logs out. For the rest the half hour is shortened, so that this program ends.
  size_t cancelled = 0;
  for (size_t i = 0; i < sessions; i++) {
    if (i % 2 == 0) {
      cancelled += handles[i].cancel() == WFTimerCancel::kWon;
    } else {
      handles[i].reschedule(milliseconds(20));
    }
  }
  ended.wait();
  std::printf("%zu logged out, of %zu told so; %zu expired\n", logged_out.load(), cancelled,
              expired.load());

  // A handle is safe to use when its timer is gone.
  std::printf(
      "renewed then: %s\n",
      !handles.empty() && handles[0].reschedule(minutes(30)) == WFTimerMove::kWon ? "yes" : "no");
}
