#include <cassert>
#include <cerrno>
#include <new>

#include "util/VirtualScheduler.h"
#include "workflow/WFGraphTask.h"

using workflow::RunnableList;

WFGraphNode::WFGraphNode(WFGraphTask* graph, size_t index, SubTask* task)
    : SeriesWork(task, series_callback_t()), graph_(graph), index_(index) {}

void WFGraphNode::precede(WFGraphNode& node) {
  assert(node.graph_ == graph_);
  void* memory = graph_->memory_.allocate(sizeof(Arrow), alignof(Arrow));
  arrows_ = new (memory) Arrow{&node, arrows_};
  // No other thread uses this yet, so the addition need not be atomic.
  node.pending_.store(node.pending_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  graph_->in_order_ &= index_ < node.index_;
}

void WFGraphNode::after_callback() {
  WFGraphTask* const graph = graph_;
  if (!arrows_) {
    graph->part_done();
    return;
  }
  const bool canceled = is_canceled();  // once: for all of them, or for none
  RunnableList ready;
  Arrow* next = nullptr;
  for (Arrow* arrow = arrows_; arrow; arrow = next) {
    // After the last arrow the graph may be gone, unless something is ready.
    next = arrow->next;
    WFGraphNode* const to = arrow->to;
    if (canceled) {
      to->cancel();
    }
    workflow::schedule_point();
    // The last one finds it at 1, and nobody else is left to change it.
    if (to->pending_.load(std::memory_order_acquire) == 1 ||
        to->pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      ready.push_back(to->first_task());
    }
  }
  if (!ready.empty()) {
    graph->dispatch_ready(ready);
  }
}

WFGraphTask::WFGraphTask(std::function<void(WFGraphTask*)> callback)
    : TaskWithCallback(std::move(callback)) {}

WFGraphTask::~WFGraphTask() {
  for (WFGraphNode* node : nodes_) {
    node->~WFGraphNode();
  }
}

WFGraphNode& WFGraphTask::create_graph_node(SubTask* task) {
  void* const memory = memory_.allocate(sizeof(WFGraphNode), alignof(WFGraphNode));
  const size_t index = nodes_.size();
  nodes_.push_back(static_cast<WFGraphNode*>(memory));
  return *new (memory) WFGraphNode(this, index, task);  // nothing fails any more
}

// Removes the nodes that depend on no other, again and again. The nodes that are left are in
// cycles, or depend on nodes in cycles.
bool WFGraphTask::has_cycle() const {
  if (in_order_) return false;
  WFGraphNode* free = nullptr;
  const auto add_free = [&free](WFGraphNode* node) {
    node->next_free_ = std::exchange(free, node);
  };
  for (WFGraphNode* node : nodes_) {
    node->unvisited_ = node->pending_.load(std::memory_order_relaxed);
    if (node->unvisited_ == 0) {
      add_free(node);
    }
  }
  size_t visited = 0;
  while (free) {
    const WFGraphNode* node = std::exchange(free, free->next_free_);
    visited++;
    for (const WFGraphNode::Arrow* arrow = node->arrows_; arrow; arrow = arrow->next) {
      if (--arrow->to->unvisited_ == 0) {
        add_free(arrow->to);
      }
    }
  }
  return visited < nodes_.size();
}

void WFGraphTask::dispatch() {
  if (has_cycle()) {
    state = WFT_STATE_SYS_ERROR;
    error = EDEADLK;
    subtask_done();
    return;
  }
  size_t ends = 0;
  RunnableList ready;
  for (WFGraphNode* node : nodes_) {
    share_scope(node);
    ends += node->arrows_ == nullptr;
    if (node->pending_.load(std::memory_order_relaxed) == 0) {
      ready.push_back(node->first_task());
    }
  }
  remaining_.store(ends + 1, std::memory_order_relaxed);
  dispatch_ready(ready);
  part_done();
}

void WFGraphTask::part_done() {
  workflow::schedule_point();
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    subtask_done();
  }
}
