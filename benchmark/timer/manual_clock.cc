// Row manual: what a deadline costs on the manual clock. --n ticks of one periodic timer, then as
// many timers with a deadline each, in both cases within one call that moves the clock; then a call
// for each deadline. Links: workflow.

#include <workflow/WFManualClock.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/WFTimer.h>

#include <atomic>
#include <chrono>

#include "common/Measure.h"

namespace bench {
namespace {

template <class Work>
void measure(const char* row, size_t n, const std::atomic<size_t>& expired, Work move) {
  const size_t before = expired.load();
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  move();
  const int64_t wall_ns = now_ns() - begin_ns;
  const int64_t cpu_ns = process_cpu_ns() - cpu_before;
  if (expired.load() - before != n) {
    std::fprintf(stderr, "%s: %zu of %zu deadlines\n", row, expired.load() - before, n);
    std::exit(1);
  }
  Line(row, "ours")
      .add("n", n)
      .add("us", per_op(wall_ns, n) / 1e3)
      .add("cpu_us", per_op(cpu_ns, n) / 1e3)
      .print();
}

// One is due in each of the next n milliseconds.
void start_timers(size_t n, std::atomic<size_t>& expired) {
  for (size_t i = 1; i <= n; ++i) {
    WFTaskFactory::create_timer_task(static_cast<time_t>(i / 1000),
                                     static_cast<long>(i % 1000 * kNsPerMs),
                                     [&expired](WFTimerTask*) { ++expired; })
        ->start();
  }
}

void run(size_t n) {
  std::atomic<size_t> expired{0};
  const int64_t all_ns = static_cast<int64_t>(n) * kNsPerMs;

  WFTimerPeriod period;
  period.every = std::chrono::milliseconds(1);
  WFTimerTask* const periodic = WFTimer::create_periodic(
      period, {}, [&expired](const WFTimerTick&) { ++expired; }, nullptr);
  const WFTimerHandle handle = WFTimer::handle_of(periodic);
  periodic->start();
  measure("manual_ticks", n, expired, [=] { WFManualClock::advance(all_ns); });
  handle.cancel_and_wait();

  start_timers(n, expired);
  measure("manual_timers", n, expired, [=] { WFManualClock::advance(all_ns); });

  start_timers(n, expired);
  measure("manual_calls", n, expired, [n] {
    for (size_t i = 0; i < n; ++i)
      WFManualClock::advance(kNsPerMs);
  });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (WFManualClock::install() != 0) return 1;
  bench::run(bench::Options(argc, argv).count("n", 100'000));
  return 0;
}
