#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/ExitKit.h"
#include "workflow/WFCron.h"

// Threads that ask when schedules are due while the process ends.

namespace {

constexpr int kThreads = 2;
constexpr const char* kZones[] = {"Europe/Berlin", "America/New_York", "Asia/Tokyo"};

std::atomic<int> rounds[kThreads];
std::atomic<int> mistakes{0};

void wait_for_rounds(int more) {
  for (std::atomic<int>& each : rounds) {
    const int enough = each + more;
    while (each < enough)
      std::this_thread::yield();
  }
}

[[noreturn]] void ask_for_ever(std::atomic<int>* count) {
  const auto cron = WFCron::parse("0 12 * * *", kZones[0]);
  const WFCron::TimePoint start(std::chrono::hours(24 * 365 * 50));
  const auto expected = cron->next(start, 3);
  for (;; ++*count) {
    const auto fresh = WFCron::parse("0 12 * * *", kZones[*count % 3]);
    const bool is_right = cron->next(start, 3) == expected && fresh && fresh->next(start);
    if (!is_right) ++mistakes;
  }
}

void end_among_askers() {
  for (std::atomic<int>& count : rounds)
    std::thread(ask_for_ever, &count).detach();
  wait_for_rounds(10);
  // Whatever is made while the program runs is gone by then.
  exit_kit::last_word.word = [] {
    wait_for_rounds(1000);
    exit_kit::say(mistakes == 0 ? "as ever" : "mistakes");
  };
}

constexpr exit_kit::Scenario kScenarios[] = {{"asking", end_among_askers}};

}  // namespace

TEST(CronExit, SchedulesMayBeAskedWhileTheProcessEnds) {
  EXPECT_EQ(exit_kit::play("asking"), "as ever\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}
