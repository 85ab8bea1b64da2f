// Shows: trying again until it works: later each time, never all clients at the same moment, and
// not for ever; and how somebody else stops it.
//
// Try:   tutorial-27-retry
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>

#include "workflow/WFCoroutine.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

// Stands for a server that works again after some requests have failed.
struct Server {
  int failures;
};

WFCo<bool> ask(Server& server) {
  const WFEnd asked = co_await wf::sleep(1ms);
  co_return asked&& server.failures-- <= 0;
}

// A time between half of `longest` and all of it: those who have failed together do not come back
// together.
milliseconds jittered(milliseconds longest) {
  static thread_local std::minstd_rand random(std::random_device{}());
  const auto most = longest.count();
  return milliseconds(std::uniform_int_distribution(most / 2, most)(random));
}

// Nothing here asks whether it should stop: when the scope around it ends, the pause says so.
WFCo<> retry(Server& server) {
  milliseconds longest = 10ms;
  for (int tries = 1;; tries++) {
    const bool answered = co_await ask(server);
    if (answered) {
      std::printf("answered, tries: %d\n", tries);
      co_return;
    }
    const milliseconds pause = jittered(longest);
    std::printf("again in %d ms\n", static_cast<int>(pause.count()));
    const WFEnd paused = co_await wf::sleep(pause);
    if (!paused) {
      std::printf("given up: %s\n", WFGlobal::get_error_string(paused.state, paused.error));
      co_return;
    }
    longest = std::min(2 * longest, milliseconds(5000));
  }
}

}  // namespace

int main() {
  Server soon = {3};
  wf::wait(retry, std::ref(soon));

  // Not longer than 100 ms in all.
  Server never = {1'000'000};
  wf::wait([&never]() -> WFCo<> { (void)co_await wf::within(100ms, retry(never)); });

  // Stopped by another thread, here by main(). A scope task ends when what is in it has ended.
  WFFacilities::WaitGroup ended(1);
  WFScopeTask* task = WFTaskFactory::create_scope_task(wf::task(retry, std::ref(never)),
                                                       [&ended](WFScopeTask*) { ended.done(); });
  const WFScope scope = task->scope();
  task->start();
  scope.cancel();
  ended.wait();
}
