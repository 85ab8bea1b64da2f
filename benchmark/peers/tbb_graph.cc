// The graph row over oneTBB's flow graph: a continue_node per task. Links: tbb.
//
// `run` is that of a graph which was built, and run once, before; the thread that waits takes part
// in the work, as oneTBB means it to.

#include <oneapi/tbb/flow_graph.h>

#include <deque>

#include "common/GraphRow.h"

namespace bench {
namespace {

namespace flow = oneapi::tbb::flow;

class TbbGraph {
 public:
  TbbGraph(const LayeredGraph& shape, const Body& body) {
    for (size_t i = 0; i < LayeredGraph::kNodes; ++i) {
      nodes_.emplace_back(graph_, [body](const flow::continue_msg&) { body(); });
    }
    for (const LayeredGraph::Arrow& arrow : shape.arrows())
      flow::make_edge(nodes_[arrow.from], nodes_[arrow.to]);
  }

  void run() {
    for (size_t i = 0; i < LayeredGraph::kWidth; ++i)
      nodes_[i].try_put(flow::continue_msg());
    graph_.wait_for_all();
  }

 private:
  flow::graph graph_;
  std::deque<flow::continue_node<flow::continue_msg>> nodes_;
};

GraphTimes repeat(const LayeredGraph& shape, const Body& body, TbbGraph& built) {
  GraphTimes times;
  const int64_t begin_ns = now_ns();
  {
    TbbGraph graph(shape, body);
    graph.run();
  }
  times.life_ns = now_ns() - begin_ns;

  const int64_t built_cpu_ns = process_cpu_ns();
  const int64_t built_ns = now_ns();
  built.run();
  times.run_ns = now_ns() - built_ns;
  times.run_cpu_ns = process_cpu_ns() - built_cpu_ns;
  return times;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::LayeredGraph shape;
  bench::for_each_body(argc, argv, [&shape](int64_t body_us, size_t repetitions) {
    const bench::Body body(body_us);
    bench::TbbGraph built(shape, body);
    bench::run_graph_row("tbb", body_us, repetitions,
                         [&] { return bench::repeat(shape, body, built); });
  });
  return 0;
}
