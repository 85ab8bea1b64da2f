// Shows: tasks that depend on each other. Each runs as soon as all those that it depends on are
// done; what does not depend on each other runs side by side.
//
// Try:   tutorial-08-graph
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFTaskFactory.h"

namespace {

WFGoTask* step(const char* name) {
  return WFTaskFactory::create_go_task("build", [name] { std::printf("%s\n", name); });
}

void report(const WFGraphTask* graph) {
  std::printf("the graph: %s\n",
              WFGlobal::get_error_string(graph->get_state(), graph->get_error()));
}

}  // namespace

int main() {
  WFFacilities::WaitGroup done(1);

  WFGraphTask* build = WFTaskFactory::create_graph_task(report);
  WFGraphNode& configure = build->create_graph_node(step("configure"));
  WFGraphNode& compile = build->create_graph_node(step("compile"));
  WFGraphNode& document = build->create_graph_node(step("document"));
  WFGraphNode& link = build->create_graph_node(step("link"));
  WFGraphNode& install = build->create_graph_node(step("install"));
  // An arrow points from what comes first to what depends on it.
  // clang-format off
  configure --> compile --> link --> install;
  configure --> document --> install;
  // clang-format on

  // In a circle everything waits for something else. Instead of waiting for ever, the graph says so
  // and runs none of its tasks.
  WFGraphTask* circle = WFTaskFactory::create_graph_task(report);
  WFGraphNode& chicken = circle->create_graph_node(step("chicken"));
  WFGraphNode& egg = circle->create_graph_node(step("egg"));
  chicken.precede(egg);  // the same as an arrow
  egg.precede(chicken);

  // A graph is itself a task, here the first and the second of a series.
  SeriesWork* series =
      Workflow::create_series_work(build, [&done](const SeriesWork*) { done.done(); });
  series->push_back(circle);
  series->start();
  done.wait();
}
