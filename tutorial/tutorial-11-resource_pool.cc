// Shows: at most so many at once. Ten downloads share three connections: each waits for one without
// a thread, and gives it back.
//
// Try:   tutorial-11-resource_pool
#include <array>
#include <atomic>
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

int main() {
  constexpr size_t kDownloads = 10;
  char red[] = "red";
  char green[] = "green";
  char blue[] = "blue";
  void* connections[] = {red, green, blue};
  WFResourcePool pool(connections, 3);

  std::array<void*, kDownloads> got = {};
  std::atomic<int> running{0};
  WFFacilities::WaitGroup done(kDownloads);

  for (size_t i = 0; i < kDownloads; i++) {
    // Dispatched when it has a connection, which is in got[i] then. A dynamic task makes what is to
    // be done at that moment; here, a timer stands for the download.
    WFDynamicTask* download = WFTaskFactory::create_dynamic_task([&, i](WFDynamicTask*) {
      std::printf("%zu uses %s, %d at once\n", i, static_cast<char*>(got[i]), ++running);
      return WFTaskFactory::create_timer_task(10 * 1000, [&, i](WFTimerTask*) {
        running--;
        pool.post(got[i]);  // to the one that has waited longest
        done.done();
      });
    });
    pool.get(download, &got[i])->start();
  }
  done.wait();
}
