#include <cerrno>
#include <new>

#include "util/VirtualScheduler.h"
#include "workflow/WFGraphTask.h"

using workflow::RunnableList;

WFGraphNode::WFGraphNode(WFGraphTask* graph, SubTask* task)
    : SeriesWork(task, series_callback_t()), graph_(graph) {}

void WFGraphNode::precede(WFGraphNode& node) {
  void* memory = graph_->memory_.allocate(sizeof(Arrow), alignof(Arrow));
  arrows_ = new (memory) Arrow{&node, arrows_};
  node.pending_.fetch_add(1, std::memory_order_relaxed);
}

void WFGraphNode::ended() {
  WFGraphTask* const graph = graph_;
  const bool canceled = is_canceled();  // once: for all of them, or for none
  RunnableList ready;
  for (Arrow* arrow = arrows_; arrow; arrow = arrow->next) {
    if (canceled) {
      arrow->to->cancel();
    }
    workflow::schedule_point();
    if (arrow->to->pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      ready.push_back(arrow->to->first_task());
    }
  }
  graph->dispatch_ready(ready);
  graph->node_done();
}

WFGraphTask::WFGraphTask(std::function<void(WFGraphTask*)> callback)
    : callback_(std::move(callback)) {}

WFGraphTask::~WFGraphTask() {
  for (WFGraphNode* node : nodes_) {
    node->~WFGraphNode();
  }
}

WFGraphNode& WFGraphTask::create_graph_node(SubTask* task) {
  void* memory = memory_.allocate(sizeof(WFGraphNode), alignof(WFGraphNode));
  WFGraphNode* node = new (memory) WFGraphNode(this, task);
  nodes_.push_back(node);
  return *node;
}

// Takes away, again and again, the nodes that depend on no other: what is left is in circles, or
// depends on them.
bool WFGraphTask::has_cycle() const {
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
  remaining_.store(nodes_.size() + 1, std::memory_order_relaxed);
  RunnableList ready;
  for (WFGraphNode* node : nodes_) {
    if (node->pending_.load(std::memory_order_relaxed) == 0) {
      ready.push_back(node->first_task());
    }
  }
  dispatch_ready(ready);
  node_done();
}

void WFGraphTask::node_done() {
  workflow::schedule_point();
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    subtask_done();
  }
}

SubTask* WFGraphTask::done() {
  if (callback_) {
    callback_(this);
  }
  return delete_and_next();
}
