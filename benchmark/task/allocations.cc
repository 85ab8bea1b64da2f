// Row allocations: how often the C library is asked for memory for each operation, once what came
// before has warmed the library's caches of memory up. Counts calls of malloc and operator new by
// all threads. With --blocks=1 these caches are not used, so it counts all blocks. Links: workflow.

#include <workflow/WFFacilities.h>
#include <workflow/WFGraphTask.h>
#include <workflow/WFTaskFactory.h>

#include <atomic>
#include <string>
#include <vector>

#include "common/Measure.h"
#include "util/Pages.h"

extern "C" void* __libc_malloc(size_t size);

namespace bench {
namespace {

std::atomic<size_t> allocations{0};

}  // namespace
}  // namespace bench

// Instead of the C library's.
extern "C" void* malloc(size_t size) {
  bench::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}

namespace bench {
namespace {

constexpr int kWarmUps = 3;

// `work` does n operations, and counts each down when it is over.
template <class Work>
void measure(const char* row, size_t n, Work work) {
  size_t counted = 0;
  for (int i = 0; i <= kWarmUps; ++i) {
    WFFacilities::WaitGroup all(static_cast<int>(n));
    const size_t before = allocations.load();
    work(all);
    all.wait();
    counted = allocations.load() - before;
  }
  Line(row, "ours")
      .add("n", n)
      .add(workflow::Pages::plain() ? "blocks" : "allocations",
           per_op(static_cast<int64_t>(counted), n))
      .print();
}

void time_out(const std::string& name, WFFacilities::WaitGroup& all) {
  WFTaskFactory::create_timer_task(name, 0, kNsPerMs, [&all](WFTimerTask*) {
    all.done();
  })->start();
}

SeriesWork* series_of_empty_task(WFFacilities::WaitGroup& all, size_t n) {
  return Workflow::create_series_work(WFTaskFactory::create_empty_task(),
                                      [&all, n](const SeriesWork*) {
                                        for (size_t i = 0; i < n; ++i)
                                          all.done();
                                      });
}

void run(size_t n) {
  measure("allocations_timer", n, [n](WFFacilities::WaitGroup& all) {
    for (size_t i = 0; i < n; ++i)
      WFTaskFactory::create_timer_task(0, kNsPerMs, [&all](WFTimerTask*) { all.done(); })->start();
  });
  for (const char* prefix : {"", "a name that std::string cannot hold inside "}) {
    std::vector<std::string> names;
    for (size_t i = 0; i < n; ++i)
      names.push_back(prefix + std::to_string(i));
    const char* const row = *prefix ? "allocations_long_name" : "allocations_named";
    measure(row, n, [&names](WFFacilities::WaitGroup& all) {
      for (const std::string& name : names)
        time_out(name, all);
    });
  }
  measure("allocations_go", n, [n](WFFacilities::WaitGroup& all) {
    for (size_t i = 0; i < n; ++i) {
      WFGoTask* const task = WFTaskFactory::create_go_task("queue", [] {});
      task->set_callback([&all](WFGoTask*) { all.done(); });
      task->start();
    }
  });
  measure("allocations_counter", n, [n](WFFacilities::WaitGroup& all) {
    for (size_t i = 0; i < n; ++i) {
      auto* const task =
          WFTaskFactory::create_counter_task("counter", 1, [&all](WFCounterTask*) { all.done(); });
      task->start();
      task->count();
    }
  });
  measure("allocations_series", n, [n](WFFacilities::WaitGroup& all) {
    for (size_t i = 0; i < n; ++i)
      series_of_empty_task(all, 1)->start();
  });
  measure("allocations_step", n, [n](WFFacilities::WaitGroup& all) {
    SeriesWork* const series = series_of_empty_task(all, n);
    for (size_t i = 0; i < n; ++i)
      series->push_back(WFTaskFactory::create_empty_task());
    series->start();
  });
  measure("allocations_graph", n, [n](WFFacilities::WaitGroup& all) {
    WFGraphTask* const graph = WFTaskFactory::create_graph_task(nullptr);
    for (size_t i = 0; i < n; ++i) {
      WFGoTask* const task = WFTaskFactory::create_go_task("queue", [] {});
      task->set_callback([&all](WFGoTask*) { all.done(); });
      graph->create_graph_node(task);
    }
    graph->start();
  });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  if (options.count("blocks", 0) > 0) {
    workflow::Pages::make_plain();
  }
  bench::run(options.count("n", 10'000));
  return 0;
}
