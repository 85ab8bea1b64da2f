#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <utility>
#include <vector>

#include "workflow/WFGenericTask.h"

class WFGraphNode;
class WFGraphTask;

namespace workflow {

// Operands of the arrow operators; see WFGraphNode. GraphDoubleArrow has arrows on both sides.
struct GraphDoubleArrow {
  WFGraphNode &node;
};
struct GraphArrow {
  WFGraphNode &node;
  GraphDoubleArrow operator--() const { return {node}; }
};

}  // namespace workflow

// One task of a graph, in a series of its own. The node is done when that series has ended, so the
// task's callback may push more tasks on `series_of(task)`. Cancelling that series also cancels all
// nodes that depend on this one, directly or not: their tasks are dropped without callbacks.
//
//   a --> b --> c;    b after a, c after b
//   c <-- b <-- a;    the same
//   b <-- a --> c;    b and c after a
//   b --> a <-- c;    a after b and c
//
// Arrows may be drawn until the graph is started, by one thread at a time. An arrow may be drawn
// several times.
class WFGraphNode : private SeriesWork {
 public:
  // Makes `node` run after this one.
  void precede(WFGraphNode &node);
  // Makes this one run after `node`.
  void succeed(WFGraphNode &node) { node.precede(*this); }

  workflow::GraphArrow operator--(int) { return {*this}; }  // the operand on the left of -->
  workflow::GraphArrow operator--() { return {*this}; }     // the operand on the right of <--

  // Used by WFGraphTask.
  WFGraphNode(WFGraphTask *graph, size_t index, SubTask *task);
  ~WFGraphNode() override = default;

 private:
  friend class WFGraphTask;
  struct Arrow {
    WFGraphNode *to;
    Arrow *next;
  };

  SubTask *first_task() { return begin(); }
  void after_callback() override;

  WFGraphTask *const graph_;
  const size_t index_;       // in the order of creation
  Arrow *arrows_ = nullptr;  // to the nodes that depend on this one
  // How many nodes this one still waits for. Relaxed until the dispatch, which publishes it. Then
  // decrements are acq_rel, and a load that may stand for the last one acquires: that thread sees
  // what all those nodes did.
  std::atomic<size_t> pending_{0};
  // Used while looking for cycles: how many nodes this one still waits for, and the next node in
  // the list of those that wait for none.
  size_t unvisited_ = 0;
  WFGraphNode *next_free_ = nullptr;
};

inline WFGraphNode &operator>(const workflow::GraphArrow &from, WFGraphNode &to) {
  from.node.precede(to);
  return to;
}
inline workflow::GraphArrow operator>(const workflow::GraphArrow &from,
                                      const workflow::GraphArrow &to) {
  from.node.precede(to.node);
  return to;
}
inline WFGraphNode &operator<(WFGraphNode &to, const workflow::GraphArrow &from) {
  to.succeed(from.node);
  return from.node;
}
inline workflow::GraphArrow operator<(WFGraphNode &to, const workflow::GraphDoubleArrow &from) {
  to.succeed(from.node);
  return {from.node};
}

// Tasks that depend on each other. Each runs when all tasks that it depends on are done, and the
// graph is done when all of them are. It ends with SUCCESS. If nodes depend on each other in a
// circle, it ends with SYS_ERROR/EDEADLK; then no task of it has run, and all of them are dropped.
class WFGraphTask : public workflow::TaskWithCallback<WFGraphTask, WFGenericTask> {
 public:
  // Adds `task`, which must not be null and have no series yet; the graph owns it from then on,
  // unless this throws std::bad_alloc. Only before the start. The node lives as long as the graph.
  WFGraphNode &create_graph_node(SubTask *task);

  explicit WFGraphTask(std::function<void(WFGraphTask *)> callback);

 protected:
  ~WFGraphTask() override;

  void dispatch() override;

 private:
  friend class WFGraphNode;

  bool has_cycle() const;
  void dispatch_ready(workflow::RunnableList &ready) { dispatch_all(ready, this); }
  void part_done();

  std::pmr::monotonic_buffer_resource memory_;  // holds the nodes and arrows
  std::vector<WFGraphNode *> nodes_;
  // True while no arrow leads to a node that was created before the node the arrow comes from: then
  // there can be no circle.
  bool in_order_ = true;
  // The number of nodes on which no other node depends and that are not done yet, plus one for
  // dispatch() itself. When it reaches 0, all nodes are done. Ordered as ParallelTask's.
  std::atomic<size_t> remaining_{0};
};
