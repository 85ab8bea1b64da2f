// Rows whose accesses are counted: --row=R --threads=N [--pollers=P] [--operations=N] [--seed=N]
// [--transfer-ns=N]. Half of the threads call the library, the other half are its handlers or
// computing threads, unless a row says something else.

#include <unistd.h>
#include <workflow/WFFacilities.h>
#include <workflow/WFGlobal.h>
#include <workflow/WFTaskFactory.h>
#include <workflow/Workflow.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coherence/Measure.h"
#include "common/GraphRow.h"
#include "common/Measure.h"

namespace {

using coherence::Gate;

struct Setting {
  std::string row;
  size_t threads;
  size_t pollers;
  size_t operations;
};

Gate ended;  // an operation has ended

void end_timer(WFTimerTask*) {
  ended.arrive();
}

constexpr size_t kSteps = 16;

// A multiple of the steps that a series has.
size_t round_up(size_t count) {
  return (count / kSteps + 1) * kSteps;
}

// So many threads warm up and then do their shares; the counts end with the last operation that has
// ended. `operation` is called with the number of the thread and that of the operation.
void run_callers(const Setting& setting, size_t callers,
                 const std::function<void(size_t, size_t)>& operation) {
  const size_t share = round_up(setting.operations / callers);
  const size_t warm_up = round_up(share / 4);
  Gate warm;
  Gate open;
  std::vector<std::thread> threads;
  for (size_t caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      for (size_t i = 0; i < warm_up; ++i)
        operation(caller, i);
      warm.arrive();
      open.wait_for(1);
      for (size_t i = warm_up; i < warm_up + share; ++i)
        operation(caller, i);
    });
  }
  warm.wait_for(callers);
  ended.wait_for(warm_up * callers);
  coherence::begin_counting();
  open.arrive();
  ended.wait_for((warm_up + share) * callers);
  coherence::report(setting.row.c_str(), setting.threads, setting.pollers, share * callers);
  for (std::thread& thread : threads)
    thread.join();
}

std::string name_of(size_t caller, size_t i) {
  return "timer:" + std::to_string(100 + caller) + ":" + std::to_string(100'000 + i);
}

void post(const Setting& setting, size_t callers) {
  run_callers(setting, callers,
              [](size_t, size_t) { WFTaskFactory::create_timer_task(0, 0, end_timer)->start(); });
}

void go(const Setting& setting, size_t callers, bool one_queue) {
  run_callers(setting, callers, [one_queue](size_t caller, size_t) {
    WFTaskFactory::create_go_task(one_queue ? "queue" : "queue" + std::to_string(caller), [] {
      ended.arrive();
    })->start();
  });
}

void named(const Setting& setting, size_t callers) {
  run_callers(setting, callers, [](size_t caller, size_t i) {
    const std::string name = name_of(caller, i);
    WFTaskFactory::create_timer_task(name, 600, 0, end_timer)->start();
    if (WFTaskFactory::cancel_by_name(name) != 1) std::abort();
  });
}

void replace(const Setting& setting, size_t callers) {
  constexpr size_t kOutstanding = 10'000;
  const size_t share = kOutstanding / callers;
  std::vector<bench::Random> randoms;
  for (size_t caller = 0; caller < callers; ++caller)
    randoms.emplace_back(1000 + caller);
  // Each thread creates its own, because a timer is in the poller of the thread that has started
  // it.
  const auto fill = [share](size_t caller) {
    for (size_t i = 0; i < share; ++i)
      WFTaskFactory::create_timer_task(name_of(caller, i), 600 + static_cast<time_t>(i), 0,
                                       end_timer)
          ->start();
  };
  run_callers(setting, callers, [&](size_t caller, size_t turn) {
    if (turn == 0) fill(caller);
    bench::Random random = randoms[caller];
    const auto i = static_cast<size_t>(random.below(static_cast<int64_t>(share)));
    const auto seconds = 600 + static_cast<time_t>(random.below(3600));
    randoms[caller] = random;
    const std::string name = name_of(caller, i);
    if (WFTaskFactory::cancel_by_name(name) != 1) std::abort();
    WFTaskFactory::create_timer_task(name, seconds, 0, end_timer)->start();
  });
}

// Enters the scope of its series, if it has one, and leaves it at once.
class Visitor : public WFGenericTask {
 public:
  explicit Visitor(size_t left) : left_(left) {}

 private:
  void dispatch() override {
    if (left_ > 1) series_of(this)->push_back(new Visitor(left_ - 1));
    if (enter_scope() == 0) leave_scope();
    ended.arrive();
    WFGenericTask::dispatch();
  }

  const size_t left_;
};

class Step : public WFGenericTask {
 public:
  explicit Step(size_t left) : left_(left) {}

 private:
  void dispatch() override {
    if (left_ > 1) series_of(this)->push_back(new Step(left_ - 1));
    ended.arrive();
    WFGenericTask::dispatch();
  }

  const size_t left_;
};

// Each thread runs series of its own.
void series(const Setting& setting, size_t callers) {
  run_callers(setting, callers, [](size_t, size_t i) {
    if (i % kSteps == 0) Workflow::start_series_work(new Step(kSteps), nullptr);
  });
}

void scope(const Setting& setting, size_t callers) {
  run_callers(setting, callers, [](size_t, size_t i) {
    if (i % kSteps == 0) WFTaskFactory::create_scope_task(new Visitor(kSteps), nullptr)->start();
  });
}

// All handlers run series that are in one scope.
void shared_scope(const Setting& setting, size_t handlers) {
  const size_t share = setting.operations / handlers;
  Gate counted;
  ParallelWork* const all = Workflow::create_parallel_work(nullptr);
  for (size_t i = 0; i < handlers; ++i) {
    SeriesWork* const branch =
        Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0, nullptr), nullptr);
    branch->push_back(new Visitor(share));
    all->add_series(branch);
  }
  coherence::begin_counting();
  WFTaskFactory::create_scope_task(all, [&](WFScopeTask*) { counted.arrive(); })->start();
  ended.wait_for(share * handlers);
  coherence::report(setting.row.c_str(), setting.threads, setting.pollers, share * handlers);
  counted.wait_for(1);
}

void counter(const Setting& setting, size_t callers, bool one_name) {
  if (one_name) {
    WFTaskFactory::create_counter_task("counter", 1U << 30, nullptr)->start();
  }
  run_callers(setting, callers, [one_name](size_t caller, size_t i) {
    if (one_name) {
      WFTaskFactory::count_by_name("counter");
      ended.arrive();
      return;
    }
    const std::string name = name_of(caller, i);
    WFTaskFactory::create_counter_task(name, 1, [](WFCounterTask*) { ended.arrive(); })->start();
    WFTaskFactory::count_by_name(name);
  });
}

// Only the run, from the start to the callback.
void graph(const Setting& setting) {
  const bench::LayeredGraph shape;
  const size_t graphs = 3;
  for (size_t round = 0; round <= graphs; ++round) {
    Gate finished;
    WFGraphTask* const task =
        WFTaskFactory::create_graph_task([&](WFGraphTask*) { finished.arrive(); });
    std::vector<WFGraphNode*> nodes;
    for (size_t i = 0; i < bench::LayeredGraph::kNodes; ++i)
      nodes.push_back(&task->create_graph_node(WFTaskFactory::create_go_task("graph", [] {})));
    for (const bench::LayeredGraph::Arrow& arrow : shape.arrows())
      nodes[arrow.from]->precede(*nodes[arrow.to]);
    if (round == graphs) coherence::begin_counting();
    task->start();
    finished.wait_for(1);
  }
  coherence::report(setting.row.c_str(), setting.threads, setting.pollers,
                    bench::LayeredGraph::kNodes);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  coherence::configure(argc, argv);
  const size_t threads = options.count("threads", 8);
  const size_t half = std::max<size_t>(threads / 2, 1);
  Setting setting{options.text("row", "post"), threads,
                  options.count("pollers", std::min<size_t>(threads, 4)),
                  options.count("operations", 4096)};
  // These have no callers, or nobody that is called.
  const bool alone = setting.row == "graph" || setting.row == "scope_shared";

  WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = static_cast<int>(setting.pollers);
  settings.handler_threads = static_cast<int>(alone ? threads : half);
  settings.compute_threads = static_cast<int>(alone ? threads : half);
  WORKFLOW_library_init(&settings);
  WFFacilities::usleep(1000);

  if (setting.row == "post") {
    post(setting, half);
  } else if (setting.row == "go") {
    go(setting, half, true);
  } else if (setting.row == "go_queues") {
    go(setting, half, false);
  } else if (setting.row == "named") {
    named(setting, half);
  } else if (setting.row == "replace") {
    replace(setting, half);
  } else if (setting.row == "series") {
    series(setting, threads);
  } else if (setting.row == "scope") {
    scope(setting, threads);
  } else if (setting.row == "scope_shared") {
    shared_scope(setting, threads);
  } else if (setting.row == "counter") {
    counter(setting, half, false);
  } else if (setting.row == "counter_one") {
    counter(setting, threads, true);
  } else if (setting.row == "graph") {
    graph(setting);
  } else {
    std::fprintf(stderr, "rows: there is no row %s\n", setting.row.c_str());
    return 2;
  }
  _exit(0);
}
