// Row scope: what a scope costs. Links: workflow.
//
// step: a series of --n tasks that enter a scope and leave it at once, and the same tasks in a
// series that runs in no scope; they differ by what enter and leave cost. timers, counters:
// --waiting tasks wait in one scope that is cancelled: the call for each of them, and the time
// until the last has been called back. The only handler is occupied meanwhile. leave: the longest
// time that it took another thread to end one of --leaving counters while their scope was
// cancelled, and before.

#include <workflow/WFFacilities.h>
#include <workflow/WFGlobal.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/Workflow.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>

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

std::string counter_name(size_t i) {
  return "counter " + std::to_string(i);
}

// Ends the counters of these numbers by their names, one after the other. Returns the longest time
// that one call took.
int64_t end_counters(size_t from, size_t to) {
  int64_t longest_ns = 0;
  for (size_t i = from; i < to; ++i) {
    const std::string name = counter_name(i);
    const int64_t begin_ns = now_ns();
    WFTaskFactory::count_by_name(name);
    longest_ns = std::max(longest_ns, now_ns() - begin_ns);
  }
  return longest_ns;
}

// Occupies a handler, from its dispatch, for as long as `body` runs.
class Prober : public WFGenericTask {
 public:
  explicit Prober(std::function<void()> body) : body_(std::move(body)) {}

 private:
  void dispatch() override {
    body_();
    WFGenericTask::dispatch();
  }

  const std::function<void()> body_;
};

// A scope task with a branch for each task that `add` adds to a parallel.
template <class Add>
WFScopeTask* scope_of(Add add, WFFacilities::WaitGroup& finished) {
  ParallelWork* const all = Workflow::create_parallel_work(nullptr);
  // Branches are dispatched in order, by one thread.
  add([all](SubTask* task) { all->add_series(Workflow::create_series_work(task, nullptr)); });
  // After a timer the handler dispatches the branches, not this thread.
  WFScopeTask* const task = WFTaskFactory::create_scope_task(
      WFTaskFactory::create_timer_task(0, 0, nullptr), [&](WFScopeTask*) { finished.done(); });
  task->sub_series()->push_back(all);
  return task;
}

template <class Create>
void run_cancel(const char* way, size_t n, Create create) {
  std::atomic<size_t> ended{0};
  std::atomic<bool> begun{false};
  std::atomic<bool> over{false};
  WFFacilities::WaitGroup finished(1);
  WFScopeTask* const task = scope_of(
      [&](auto add) {
        for (size_t i = 0; i < n; ++i)
          add(create(&ended));
        add(new Prober([&] {
          for (begun = true; !over;) {
          }
        }));
      },
      finished);
  const WFScope scope = task->scope();
  task->start();
  while (!begun)
    sleep_ns(kNsPerMs);
  const int64_t begin_ns = now_ns();
  scope.cancel();
  const int64_t call_ns = now_ns() - begin_ns;
  over = true;
  finished.wait();
  Line(way, "ours")
      .add("n", n)
      .add("call_ns", per_op(call_ns, n))
      .add("ns", per_op(now_ns() - begin_ns, n))
      .print();
}

// So many counters wait in a scope, half of them with names. A handler ends the first half of those
// before the scope is cancelled, and the others meanwhile, as far as they still wait.
void run_leave(size_t n) {
  std::atomic<bool> ready{false};
  std::atomic<bool> cancels{false};
  int64_t before_ns = 0;
  int64_t meanwhile_ns = 0;
  WFFacilities::WaitGroup finished(1);
  WFScopeTask* const task = scope_of(
      [&](auto add) {
        for (size_t i = 0; i < n / 2; ++i) {
          add(WFTaskFactory::create_counter_task(1, nullptr));
          add(WFTaskFactory::create_counter_task(counter_name(i), 1, nullptr));
        }
        add(new Prober([&] {
          before_ns = end_counters(0, n / 4);
          for (ready = true; !cancels;) {
          }
          meanwhile_ns = end_counters(n / 4, n / 2);
        }));
      },
      finished);
  const WFScope scope = task->scope();
  task->start();
  while (!ready)
    sleep_ns(kNsPerMs);
  cancels = true;
  scope.cancel();
  finished.wait();
  Line("scope_leave", "ours")
      .add("n", n)
      .add("before_us", static_cast<double>(before_ns) / kNsPerUs)
      .add("longest_us", static_cast<double>(meanwhile_ns) / kNsPerUs)
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
  bench::run_leave(options.count("leaving", 20'000));
  return 0;
}
