// Shows: a timer that is kept in a file, so that it outlives the program that has made it.
//
// Try:   tutorial-22-reminder sqlite:reminders.db 20 'the tea is ready'
//        kill it before the 20 seconds have passed: kill -9, Ctrl-C
//        tutorial-22-reminder sqlite:reminders.db      it reminds you now; Enter stops it
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "workflow/WFTimerStore.h"

int main(int argc, char* argv[]) {
  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: %s URL [seconds text]\n", argv[0]);
    return 2;
  }
  std::string message;
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(argv[1], &message));
  if (!store) {
    std::fprintf(stderr, "cannot open the store: %s\n", message.c_str());
    return 1;
  }

  // From now on this process runs the timers of that kind, also those of earlier processes.
  store->handle("remind", [](WFStoredTimer* timer) {
    const long long late_ms = timer->lateness().count() / 1000;
    std::printf("%s: %s (%lld ms late)\n", timer->name().c_str(), timer->payload().c_str(),
                late_ms);
    std::fflush(stdout);
  });

  if (argc == 4) {
    WFStoreTimer timer;
    timer.name = "reminder";
    timer.due = std::chrono::seconds(std::atoi(argv[2]));
    timer.kind = "remind";
    timer.payload = argv[3];
    const WFStoreResult result = store->schedule(timer);
    if (!result.ok()) {
      std::fprintf(stderr, "not stored: %s\n", result.message.c_str());
      return 1;
    }
    // When this is printed the timer survives what the receipt says: "file" is the loss of power.
    std::printf("stored: %s\n", result.receipt.to_string().c_str());
    std::fflush(stdout);
  }
  std::getchar();
  store->close();
}
