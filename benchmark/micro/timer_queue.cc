// The timer queue alone: no lock, no clock, no thread. Links: workflow, Google Benchmark.
//
// std::multimap does the same work beside it, as the obvious structure with eager erase.

#include <benchmark/benchmark.h>

#include <map>
#include <vector>

#include "common/Measure.h"
#include "kernel/TimerQueue.h"

namespace bench {
namespace {

constexpr int64_t kHour = 3600 * kNsPerSecond;

// Both structures behind the calls that the benchmarks make.
class Queue {
 public:
  using Node = workflow::TimerQueueNode;
  void insert(Node* node, int64_t deadline_ns) { queue_.insert(node, deadline_ns); }
  void erase(Node* node) { queue_.erase(node); }
  Node* pop() { return queue_.pop(); }
  int64_t earliest_ns() const { return queue_.earliest_ns(); }

 private:
  workflow::TimerQueue queue_;
};

class Multimap {
 public:
  struct Node {
    std::multimap<int64_t, Node*>::iterator place;
  };
  void insert(Node* node, int64_t deadline_ns) { node->place = map_.emplace(deadline_ns, node); }
  void erase(Node* node) { map_.erase(node->place); }
  Node* pop() {
    Node* node = map_.begin()->second;
    map_.erase(map_.begin());
    return node;
  }
  int64_t earliest_ns() const { return map_.begin()->first; }

 private:
  std::multimap<int64_t, Node*> map_;
};

template <class Structure>
struct Filled {
  explicit Filled(size_t count) : nodes(count) {
    for (auto& node : nodes)
      structure.insert(&node, random.below(kHour));
  }
  ~Filled() {
    for (size_t i = 0; i < nodes.size(); ++i)
      structure.pop();
  }

  Structure structure;
  Random random{1};
  std::vector<typename Structure::Node> nodes;
};

// A time-out set and taken back, as most are.
template <class Structure>
void insert_erase(benchmark::State& state) {
  Filled<Structure> filled(static_cast<size_t>(state.range(0)));
  typename Structure::Node node;
  for (auto _ : state) {
    filled.structure.insert(&node, filled.random.below(kHour));
    filled.structure.erase(&node);
  }
}

// One of the outstanding replaced, at random.
template <class Structure>
void replace_random(benchmark::State& state) {
  Filled<Structure> filled(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    auto& node = filled.nodes[static_cast<size_t>(filled.random.below(state.range(0)))];
    filled.structure.erase(&node);
    filled.structure.insert(&node, filled.random.below(kHour));
  }
}

// The earliest expires and starts again.
template <class Structure>
void expire_restart(benchmark::State& state) {
  Filled<Structure> filled(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    const int64_t now = filled.structure.earliest_ns();
    filled.structure.insert(filled.structure.pop(), now + filled.random.below(kHour));
  }
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t size : {1'000, 100'000, 1'000'000})
    benchmark->Arg(size);
}

BENCHMARK_TEMPLATE(insert_erase, Queue)->Apply(sizes);
BENCHMARK_TEMPLATE(insert_erase, Multimap)->Apply(sizes);
BENCHMARK_TEMPLATE(replace_random, Queue)->Apply(sizes);
BENCHMARK_TEMPLATE(replace_random, Multimap)->Apply(sizes);
BENCHMARK_TEMPLATE(expire_restart, Queue)->Apply(sizes);
BENCHMARK_TEMPLATE(expire_restart, Multimap)->Apply(sizes);

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
