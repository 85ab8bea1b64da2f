// Shows: tasks one after the other (series), side by side (parallel), a computation and a counter.
//
// Try:   tutorial-03-series_parallel
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFOperator.h"
#include "workflow/WFTaskFactory.h"

namespace {

WFTimerTask* wait_ms(unsigned int ms, const char* what) {
  return WFTaskFactory::create_timer_task(ms * 1000,
                                          [what](WFTimerTask*) { std::printf("%s\n", what); });
}

}  // namespace

int main() {
  WFFacilities::WaitGroup done(1);

  // Two branches side by side, the second a series of two; then what needs both.
  ParallelWork& boil_and_grind =
      *wait_ms(30, "water boils") * (*wait_ms(10, "beans ground") > wait_ms(10, "filter set"));
  SeriesWork& coffee = boil_and_grind > wait_ms(5, "coffee brewed");

  // Tasks may still be added while the series runs, here by one of its own callbacks.
  WFGoTask* drink = WFTaskFactory::create_go_task("mouth", [] { std::printf("coffee drunk\n"); });
  drink->set_callback([](WFGoTask* task) {
    *series_of(task) << WFTaskFactory::create_go_task("sink", [] { std::printf("cup washed\n"); });
  });
  coffee << drink;

  // Goes on when it has been counted twice: by the end of the series and by the main thread.
  WFTaskFactory::create_counter_task("leave", 2, [&done](WFCounterTask*) {
    std::printf("leaving\n");
    done.done();
  })->start();
  coffee.set_callback([](const SeriesWork*) { WFTaskFactory::count_by_name("leave"); });

  coffee.start();
  WFTaskFactory::count_by_name("leave");
  done.wait();
}
