// A user's program: stores a timer in the store of that URL, and exits with 0 when its handler has
// run.

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "workflow/WFFacilities.h"
#include "workflow/WFTimerStore.h"

int main(int argc, char* argv[]) {
  std::string message = "no URL";
  const std::unique_ptr<WFTimerStore> store(argc == 2 ? WFTimerStore::open(argv[1], &message)
                                                      : nullptr);
  if (!store) {
    std::printf("store: %s\n", message.c_str());
    return 1;
  }
  WFFacilities::WaitGroup wait_group(1);
  store->handle("consumer", [&](WFStoredTimer*) { wait_group.done(); });

  WFStoreTimer timer;
  timer.name = "consumer";
  timer.due = std::chrono::milliseconds(1);
  timer.kind = "consumer";
  const WFStoreResult result = store->schedule(timer);
  if (!result.ok()) {
    std::printf("store: %s\n", result.message.c_str());
    return 1;
  }
  wait_group.wait();
  std::printf("store: %s\n", result.receipt.to_string().c_str());
  return store->close() ? 0 : 1;
}
