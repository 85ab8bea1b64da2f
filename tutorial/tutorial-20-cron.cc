// Shows: when a cron expression is due, what is wrong with one, and a timer that ticks by one.
//
// Try:   tutorial-20-cron
//        tutorial-20-cron '0 9 LW * *' Europe/Berlin
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "workflow/WFCron.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTimer.h"

namespace {

// The next five times, fewer if there are no more; or the error.
void show(const std::string& expression, const std::string& time_zone) {
  WFCronError error;
  const auto cron = WFCron::parse(expression, time_zone, &error);
  if (!cron) {
    std::printf("%s\n", error.to_string().c_str());
    return;
  }
  std::printf("%s (%s)\n", cron->expression().c_str(), cron->time_zone().c_str());
  const auto times = cron->next(WFTimer::wall_now(), 5);
  if (times.empty()) {
    std::printf("  never\n");
  }
  for (const WFCron::TimePoint time : times) {
    const time_t seconds = std::chrono::system_clock::to_time_t(time);
    struct tm utc = {};
    gmtime_r(&seconds, &utc);
    char text[64];
    std::strftime(text, sizeof text, "%a %Y-%m-%d %H:%M:%S UTC", &utc);
    std::printf("  %s\n", text);
  }
}

// Calls as often as the expression is due, and returns after the third time.
void tick_three_times(const WFCron& cron) {
  WFFacilities::WaitGroup ended(1);
  const auto tick = [](const WFTimerTick& now) {
    std::printf("tick %llu\n", static_cast<unsigned long long>(now.number));
    if (now.number == 2) {
      now.end();
    }
  };
  WFTimer::create_cron(cron, {}, tick, [&](WFTimerTask* timer) {
    std::printf("the timer: %s\n",
                WFGlobal::get_error_string(timer->get_state(), timer->get_error()));
    ended.done();
  })->start();
  ended.wait();
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc > 1) {
    show(argv[1], argc > 2 ? argv[2] : "");
    return 0;
  }
  show("30 2 * * MON-FRI", "");
  show("0 1,25 * * *", "");
  // Six fields: the first one is the second.
  tick_three_times(*WFCron::parse("* * * * * *"));
}
