// Row scope: what a scope costs. Links: workflow.
//
// step: a series of --n tasks that enter a scope and leave it at once, and the same tasks in a
// series that runs in no scope; they differ by what enter and leave cost. cancel: --waiting tasks
// wait in one scope that is cancelled, timers or counters: the call for each of them, and the time
// until the last has been called back. The only handler is occupied meanwhile: it takes the lock of
// the scope again and again, as a task does that would begin to wait, and notes the longest time
// that this took.

#include <workflow/WFFacilities.h>
#include <workflow/WFGlobal.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/Workflow.h>

#include <algorithm>
#include <atomic>

#include "common/Measure.h"

namespace bench {
namespace {

// A task that would wait, but ends at once.
class Visitor : public WFGenericTask {
 public:
  explicit Visitor(size_t left) : left_(left) {}

 private:
  void dispatch() override {
    if (left_ > 1) series_of(this)->push_back(new Visitor(left_ - 1));
    if (enter_scope() == 0) leave_scope();
    WFGenericTask::dispatch();
  }

  const size_t left_;
};

void run_steps(const char* way, bool scoped, size_t n) {
  WFFacilities::WaitGroup finished(1);
  const int64_t begin_ns = now_ns();
  if (scoped) {
    WFTaskFactory::create_scope_task(new Visitor(n), [&](WFScopeTask*) {
      finished.done();
    })->start();
  } else {
    Workflow::start_series_work(new Visitor(n), [&](const SeriesWork*) { finished.done(); });
  }
  finished.wait();
  Line(way, "ours").add("n", n).add("ns", per_op(now_ns() - begin_ns, n)).print();
}

// What a Prober has found.
struct Probe {
  std::atomic<bool> begun{false};
  std::atomic<bool> over{false};  // set when the cancel call has returned
  int64_t longest_ns = 0;         // valid once the task has ended
};

// Occupies a handler from its dispatch until the cancel call has returned. The scope that it enters
// then has ended and refuses it, so nobody calls it.
class Prober : public WFGenericTask {
 public:
  explicit Prober(Probe* probe) : probe_(probe) {}

 private:
  void dispatch() override {
    probe_->begun = true;
    while (cancel_reason() == 0) {
    }
    for (int64_t before = now_ns(); !probe_->over.load(std::memory_order_relaxed);) {
      enter_scope();
      const int64_t after = now_ns();
      probe_->longest_ns = std::max(probe_->longest_ns, after - before);
      before = after;
    }
    WFGenericTask::dispatch();
  }

  Probe* const probe_;
};

template <class Create>
void run_cancel(const char* way, size_t n, Create create) {
  std::atomic<size_t> ended{0};
  Probe probe;
  WFFacilities::WaitGroup finished(1);
  ParallelWork* const all = Workflow::create_parallel_work(nullptr);
  for (size_t i = 0; i < n; ++i) {
    all->add_series(Workflow::create_series_work(create(&ended), nullptr));
  }
  // Branches are dispatched in order, by one thread.
  all->add_series(Workflow::create_series_work(new Prober(&probe), nullptr));
  // After a timer the handler dispatches the branches, not this thread.
  WFScopeTask* const task = WFTaskFactory::create_scope_task(
      WFTaskFactory::create_timer_task(0, 0, nullptr), [&](WFScopeTask*) { finished.done(); });
  task->sub_series()->push_back(all);
  const WFScope scope = task->scope();
  task->start();
  while (!probe.begun)
    sleep_ns(kNsPerMs);
  const int64_t begin_ns = now_ns();
  scope.cancel();
  const int64_t call_ns = now_ns() - begin_ns;
  probe.over = true;
  finished.wait();
  Line(way, "ours")
      .add("n", n)
      .add("call_ns", per_op(call_ns, n))
      .add("ns", per_op(now_ns() - begin_ns, n))
      .add("longest_us", static_cast<double>(probe.longest_ns) / kNsPerUs)
      .print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  const size_t n = options.count("n", 1'000'000);
  const size_t waiting = options.count("waiting", 100'000);
  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = 1;
  WORKFLOW_library_init(&settings);
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
  bench::run_steps("scope_none", false, n);
  bench::run_steps("scope_step", true, n);
  bench::run_cancel("scope_timers", waiting, [](std::atomic<size_t>* ended) {
    return WFTaskFactory::create_timer_task(3600, 0, [ended](WFTimerTask*) { ++*ended; });
  });
  bench::run_cancel("scope_counters", waiting, [](std::atomic<size_t>* ended) {
    return WFTaskFactory::create_counter_task(1, [ended](WFCounterTask*) { ++*ended; });
  });
  return 0;
}
