// Shows: computations on threads of their own: a function with its arguments (go task), one with a
// typed input and output (thread task), a time limit, queues that take turns.
//
// Try:   tutorial-07-computing
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

namespace {

using MeanTask = WFThreadTask<std::vector<double>, double>;
using MeanTaskFactory = WFThreadTaskFactory<std::vector<double>, double>;

void greet(const std::string& name) {
  std::printf("hello, %s\n", name.c_str());
}

void mean_of(std::vector<double>* input, double* output) {
  *output = std::accumulate(input->begin(), input->end(), 0.0) / static_cast<double>(input->size());
}

// Ends after 20 ms, although the function would go on for ever. Nobody can stop a function from
// outside, so it watches a flag, and shares it: it may outlive the task's callback, and all else.
WFGoTask* limited() {
  auto enough = std::make_shared<std::atomic<bool>>(false);
  WFGoTask* task = WFTaskFactory::create_timedgo_task(0, 20 * 1000 * 1000, "slow", [enough] {
    while (!*enough)
      WFFacilities::usleep(1000);
  });
  task->set_callback([enough](WFGoTask* ended) {
    const bool late = ended->get_state() == WFT_STATE_SYS_ERROR && ended->get_error() == ETIMEDOUT;
    std::printf("%s\n", late ? "too slow" : "in time");
    *enough = true;
  });
  return task;
}

}  // namespace

int main() {
  WFFacilities::WaitGroup done(1);

  MeanTask* mean = MeanTaskFactory::create_thread_task("statistics", mean_of, [](MeanTask* task) {
    std::printf("the mean is %.1f\n", *task->get_output());
  });
  *mean->get_input() = {1, 2, 3, 4};

  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_go_task("greetings", greet, "world"),
                                   [&done](const SeriesWork*) { done.done(); });
  *series << mean << limited();
  series->start();
  done.wait();

  // Queues are first in, first out, and take turns: a long one does not hold up a short one. Those
  // above run on the library's threads; these two share one thread of their own.
  Executor executor;
  ExecQueue many;
  ExecQueue few;
  if (executor.init(1) != 0 || many.init() != 0 || few.init() != 0) return 1;
  WFFacilities::WaitGroup all(5);
  auto work = [&all](const char* what) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // as if it computed
    std::printf("%s\n", what);
    all.done();
  };
  for (int i = 0; i < 4; i++)
    WFTaskFactory::create_go_task(&many, &executor, work, "one of many")->start();
  WFTaskFactory::create_go_task(&few, &executor, work, "one of few")->start();
  all.wait();
}
