// Shows: a recurring job of which any number of processes have the code. Each date of its cron
// expression is run once, by one of them, and as long as any of them lives.
//
// Try, in several terminals:
//   tutorial-24-nightly_job sqlite:jobs.db '0 2 * * *' Europe/Berlin
//   tutorial-24-nightly_job sqlite:jobs.db '*/5 * * * * *'        or every five seconds
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "workflow/WFCron.h"
#include "workflow/WFTimerStore.h"

namespace {

// As in "2026-03-29 01:00:00".
std::string utc(std::chrono::system_clock::time_point date) {
  const time_t seconds = std::chrono::system_clock::to_time_t(date);
  struct tm fields = {};
  gmtime_r(&seconds, &fields);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &fields);
  return text;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s URL CRON [TIME-ZONE]\n", argv[0]);
    return 2;
  }
  WFCronError error;
  const auto cron = WFCron::parse(argv[2], argc > 3 ? argv[3] : "", &error);
  if (!cron) {
    std::fprintf(stderr, "%s\n", error.to_string().c_str());
    return 2;
  }
  std::string message;
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open(argv[1], &message));
  if (!store) {
    std::fprintf(stderr, "cannot open the store: %s\n", message.c_str());
    return 1;
  }

  store->handle("nightly job", [](WFStoredTimer* timer) {
    // due() is the date that this run is for, however late it is. If an earlier run for that date
    // was cut off, attempt() is more than 1.
    std::printf("the night of %s, attempt %u\n", utc(timer->due()).c_str(), timer->attempt());
    std::fflush(stdout);
  });

  // Every process says the same. The first one stores the timer, and the others find that there is
  // one: EEXIST.
  WFStoreTimer job;
  job.name = "the nightly job";
  job.due = *cron;
  job.kind = "nightly job";
  job.policy = WF_TIMER_KEEP;
  const WFStoreResult result = store->schedule(job);
  if (!result.ok() && result.error != EEXIST) {
    std::fprintf(stderr, "not stored: %s\n", result.message.c_str());
    return 1;
  }
  std::printf(result.ok() ? "stored it\n" : "it is there\n");
  std::fflush(stdout);
  std::getchar();
  store->close();
}
