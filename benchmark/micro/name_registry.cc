// The registry of names alone, from one and from two threads. Links: workflow, Google Benchmark.
//
// Beside it what a program writes without one: std::unordered_multimap under a mutex.

#include <benchmark/benchmark.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/TimerRows.h"
#include "factory/NameRegistry.h"

namespace bench {
namespace {

class Registry {
 public:
  using Node = workflow::NamedNode;
  void link(Node* node, const std::string& name) { registry_.link(node, name); }
  void unlink(Node* node) { registry_.unlink(node); }
  size_t unlink_all(const std::string& name) {
    const auto wanted = [](Node*) { return true; };
    return registry_.take(
        name, SIZE_MAX, wanted, [](Node*) {}, [] {});
  }

 private:
  workflow::NameRegistry registry_;
};

class MutexMultimap {
 public:
  struct Node {
    std::unordered_multimap<std::string, Node*>::iterator place;
  };
  void link(Node* node, const std::string& name) {
    const std::lock_guard lock(mutex_);
    node->place = map_.emplace(name, node);
  }
  void unlink(Node* node) {
    const std::lock_guard lock(mutex_);
    map_.erase(node->place);
  }
  size_t unlink_all(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return map_.erase(name);
  }

 private:
  std::mutex mutex_;
  std::unordered_multimap<std::string, Node*> map_;
};

// One of them for all threads of a benchmark, holding names 0 to size - 1.
template <class Table>
struct Filled {
  explicit Filled(size_t size) : nodes(size) {
    Names names;
    for (size_t i = 0; i < size; ++i)
      table.link(&nodes[i], names.at(i));
  }
  ~Filled() {
    Names names;
    for (size_t i = 0; i < nodes.size(); ++i)
      table.unlink_all(names.at(i));
  }

  Table table;
  std::vector<typename Table::Node> nodes;

  static inline Filled* shared = nullptr;
  static void set_up(const benchmark::State& state) {
    shared = new Filled(static_cast<size_t>(state.range(0)));
  }
  static void tear_down(const benchmark::State&) { delete shared; }
};

uint64_t first_fresh_name(const benchmark::State& state) {
  return (uint64_t{1} << 40) + (static_cast<uint64_t>(state.thread_index()) << 32);
}

// A named timer that expires: linked, then unlinked by itself.
template <class Table>
void link_unlink(benchmark::State& state) {
  Table& table = Filled<Table>::shared->table;
  Names names;
  typename Table::Node node;
  uint64_t number = first_fresh_name(state);
  for (auto _ : state) {
    table.link(&node, names.at(number++));
    table.unlink(&node);
  }
}

// A named timer that is cancelled: one of those outstanding, at random, and linked again.
template <class Table>
void replace_by_name(benchmark::State& state) {
  auto& filled = *Filled<Table>::shared;
  Names names;
  Random random(static_cast<uint64_t>(state.thread_index()) + 1);
  const auto threads = static_cast<size_t>(state.threads());
  const auto thread = static_cast<size_t>(state.thread_index());
  const auto share = static_cast<int64_t>(filled.nodes.size() / threads);
  for (auto _ : state) {
    const size_t number = static_cast<size_t>(random.below(share)) * threads + thread;
    if (filled.table.unlink_all(names.at(number)) != 1) state.SkipWithError("a lost name");
    filled.table.link(&filled.nodes[number], names.at(number));
  }
}

template <class Table>
void cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->Setup(Filled<Table>::set_up)->Teardown(Filled<Table>::tear_down);
  benchmark->Arg(1'000)->Arg(100'000)->Arg(1'000'000)->Threads(1)->Threads(2)->UseRealTime();
}

BENCHMARK_TEMPLATE(link_unlink, Registry)->Apply(cases<Registry>);
BENCHMARK_TEMPLATE(link_unlink, MutexMultimap)->Apply(cases<MutexMultimap>);
BENCHMARK_TEMPLATE(replace_by_name, Registry)->Apply(cases<Registry>);
BENCHMARK_TEMPLATE(replace_by_name, MutexMultimap)->Apply(cases<MutexMultimap>);

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
