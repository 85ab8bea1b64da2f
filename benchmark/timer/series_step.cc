// Row series_step: what one step of a series costs, an empty task, or a timer without a delay,
// created and run. Links: workflow.
//
// queued: one series of --n tasks pushed before it starts. self_extending: each task's successor is
// pushed by a task that runs, so that the series never holds more than a few. run_ns is without the
// time in which the tasks were created. counters: the same two with counters that have what they
// count before they start. due: the timers' two.

#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/Workflow.h>

#include <utility>

#include "common/Measure.h"

namespace bench {
namespace {

// CPU of the process is reported beside the wall time: a step may use more than one thread.
template <class Work>
void measure(const char* way, size_t n, Work work) {
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  work();
  const int64_t wall_ns = now_ns() - begin_ns;
  Line(way, "ours")
      .add("n", n)
      .add("ns", per_op(wall_ns, n))
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, n))
      .print();
}

// A series of tasks that `create` makes. Reports what creating and running one takes, and running
// it.
template <class Create>
void run_queued(const char* way, size_t n, Create create) {
  WFFacilities::WaitGroup finished(1);
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  SeriesWork* series =
      Workflow::create_series_work(create(), [&finished](const SeriesWork*) { finished.done(); });
  for (size_t i = 1; i < n; ++i)
    series->push_back(create());
  const int64_t start_ns = now_ns();
  series->start();
  finished.wait();
  const int64_t end_ns = now_ns();
  Line(way, "ours")
      .add("n", n)
      .add("ns", per_op(end_ns - begin_ns, n))
      .add("run_ns", per_op(end_ns - start_ns, n))
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, n))
      .print();
}

// A counter that need not wait.
WFCounterTask* create_counted(counter_callback_t callback = nullptr) {
  WFCounterTask* counter = WFTaskFactory::create_counter_task(1, std::move(callback));
  counter->count();
  return counter;
}

void extend_by_counter(WFCounterTask* task, size_t* left) {
  if (--*left > 0) {
    series_of(task)->push_back(
        create_counted([left](WFCounterTask* next) { extend_by_counter(next, left); }));
  }
}

void run_counters_self_extending(size_t n) {
  measure("counters_self_extending", n, [n] {
    WFFacilities::WaitGroup finished(1);
    size_t left = n;
    WFCounterTask* first =
        create_counted([&left](WFCounterTask* task) { extend_by_counter(task, &left); });
    Workflow::start_series_work(first, [&finished](const SeriesWork*) { finished.done(); });
    finished.wait();
  });
}

// A generic task whose run pushes the next one: the least that can extend its own series.
class Extender : public WFGenericTask {
 public:
  explicit Extender(size_t left) : left_(left) {}

 private:
  void dispatch() override {
    if (left_ > 1) series_of(this)->push_back(new Extender(left_ - 1));
    WFGenericTask::dispatch();
  }

  const size_t left_;
};

void run_self_extending(size_t n) {
  measure("series_self_extending", n, [n] {
    WFFacilities::WaitGroup finished(1);
    Workflow::start_series_work(new Extender(n),
                                [&finished](const SeriesWork*) { finished.done(); });
    finished.wait();
  });
}

void run_due_queued(size_t n) {
  measure("due_queued", n, [n] {
    WFFacilities::WaitGroup finished(1);
    SeriesWork* series =
        Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0, nullptr),
                                     [&finished](const SeriesWork*) { finished.done(); });
    for (size_t i = 1; i < n; ++i)
      series->push_back(WFTaskFactory::create_timer_task(0, 0, nullptr));
    series->start();
    finished.wait();
  });
}

void extend_by_timer(WFTimerTask* task, size_t* left) {
  if (--*left > 0) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        0, 0, [left](WFTimerTask* next) { extend_by_timer(next, left); }));
  }
}

void run_due_self_extending(size_t n) {
  measure("due_self_extending", n, [n] {
    WFFacilities::WaitGroup finished(1);
    size_t left = n;
    WFTimerTask* first = WFTaskFactory::create_timer_task(
        0, 0, [&left](WFTimerTask* task) { extend_by_timer(task, &left); });
    Workflow::start_series_work(first, [&finished](const SeriesWork*) { finished.done(); });
    finished.wait();
  });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const size_t n = options.count("n", 1'000'000);
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
  if (options.text("row", "series") == "due") {
    bench::run_due_queued(n);
    bench::run_due_self_extending(n);
  } else {
    bench::run_queued("series_queued", n, WFTaskFactory::create_empty_task);
    bench::run_self_extending(n);
    bench::run_queued("counters_queued", n, [] { return bench::create_counted(); });
    bench::run_counters_self_extending(n);
  }
  return 0;
}
