// Row graph: a graph of 1000 tasks in layers, built, run and freed. Links: workflow.
//
// ours: tasks that work in their callbacks, wherever the graph runs. ours_go: go tasks, which work
// on the computing threads.

#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>

#include "common/GraphRow.h"

namespace bench {
namespace {

// Ends as soon as it is dispatched, and works in its callback.
class Step : public WFGenericTask {
 public:
  explicit Step(const Body& body) : body_(body) {}

 private:
  SubTask* done() override {
    body_();
    return WFGenericTask::done();
  }

  const Body body_;
};

SubTask* make_step(const Body& body) {
  return new Step(body);
}

SubTask* make_go_task(const Body& body) {
  return WFTaskFactory::create_go_task("graph", body);
}

GraphTimes repeat(const LayeredGraph& shape, const Body& body, SubTask* (*make)(const Body&)) {
  GraphTimes times;
  int64_t end_ns = 0;
  int64_t end_cpu_ns = 0;
  int64_t freed_ns = 0;
  WFFacilities::WaitGroup freed(1);

  const int64_t begin_ns = now_ns();
  WFGraphTask* graph = WFTaskFactory::create_graph_task([&](WFGraphTask*) {
    end_ns = now_ns();
    end_cpu_ns = process_cpu_ns();
  });
  std::vector<WFGraphNode*> nodes;
  nodes.reserve(LayeredGraph::kNodes);
  for (size_t i = 0; i < LayeredGraph::kNodes; ++i)
    nodes.push_back(&graph->create_graph_node(make(body)));
  for (const LayeredGraph::Arrow& arrow : shape.arrows())
    nodes[arrow.from]->precede(*nodes[arrow.to]);

  const int64_t built_cpu_ns = process_cpu_ns();
  const int64_t built_ns = now_ns();
  Workflow::start_series_work(graph, [&](const SeriesWork*) {
    freed_ns = now_ns();
    freed.done();
  });
  freed.wait();
  times.life_ns = freed_ns - begin_ns;
  times.run_ns = end_ns - built_ns;
  times.run_cpu_ns = end_cpu_ns - built_cpu_ns;
  return times;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::LayeredGraph shape;
  WFFacilities::usleep(1000);  // the threads start here, not in the first measurement
  bench::for_each_body(argc, argv, [&shape](int64_t body_us, size_t repetitions) {
    const bench::Body body(body_us);
    bench::run_graph_row("ours", body_us, repetitions,
                         [&] { return bench::repeat(shape, body, bench::make_step); });
    bench::run_graph_row("ours_go", body_us, repetitions,
                         [&] { return bench::repeat(shape, body, bench::make_go_task); });
  });
  return 0;
}
