#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/ChildProcess.h"
#include "workflow/WFCron.h"

// Threads that ask when schedules are due while the process ends. The test runs this program again
// as a child, which says on stdout, the test's pipe, what it saw.

namespace {

constexpr const char* kVariable = "WORKFLOW_EXIT_SCENARIO";

// The child's side ------------------------------------------------------------------------------

constexpr int kThreads = 2;
constexpr const char* kZones[] = {"Europe/Berlin", "America/New_York", "Asia/Tokyo"};

std::atomic<int> rounds[kThreads];
std::atomic<int> mistakes{0};

// Lives longer than anything that is made while the program runs.
struct AtTheVeryEnd {
  ~AtTheVeryEnd() {
    if (std::getenv(kVariable) == nullptr) return;
    wait_for_rounds(1000);
    const char text[] = "as ever\n";
    if (mistakes == 0 && ::write(STDOUT_FILENO, text, sizeof(text) - 1) < 0) std::abort();
  }
  static void wait_for_rounds(int more) {
    for (std::atomic<int>& each : rounds) {
      const int enough = each + more;
      while (each < enough)
        std::this_thread::yield();
    }
  }
};
const AtTheVeryEnd at_the_very_end;

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

int end_among_askers() {
  for (std::atomic<int>& count : rounds)
    std::thread(ask_for_ever, &count).detach();
  AtTheVeryEnd::wait_for_rounds(10);
  return 0;
}

}  // namespace

TEST(CronExit, SchedulesMayBeAskedWhileTheProcessEnds) {
  const auto result =
      test_support::run_self({std::string(kVariable) + "=asking"}, std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "as ever\n");
}

int main(int argc, char** argv) {
  if (std::getenv(kVariable) != nullptr) return end_among_askers();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
