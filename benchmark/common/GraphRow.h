// The graph row: the same layered graph for ours and its peers, what its nodes do, and how a run of
// it is measured. Header only and free of the library.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "common/Measure.h"

namespace bench {

// Layers of nodes, numbered layer by layer; each node but the first layer's depends on four
// different ones of the layer before.
class LayeredGraph {
 public:
  static constexpr size_t kLayers = 20;
  static constexpr size_t kWidth = 50;
  static constexpr size_t kNodes = kLayers * kWidth;
  static constexpr size_t kBefore = 4;

  struct Arrow {
    size_t from;
    size_t to;
  };

  LayeredGraph() {
    Random random(1);
    for (size_t to = kWidth; to < kNodes; ++to) {
      std::array<bool, kWidth> taken{};
      for (size_t i = 0; i < kBefore;) {
        const auto column = static_cast<size_t>(random.below(kWidth));
        if (taken[column]) continue;
        taken[column] = true;
        arrows_.push_back({to / kWidth * kWidth - kWidth + column, to});
        ++i;
      }
    }
  }

  const std::vector<Arrow>& arrows() const { return arrows_; }

 private:
  std::vector<Arrow> arrows_;
};

// What a node does: arithmetic for about that long, or nothing.
class Body {
 public:
  explicit Body(int64_t us) : rounds_(us == 0 ? 0 : us * rounds_per_us()) {}

  void operator()() const { spin(rounds_); }

 private:
  static void spin(int64_t rounds) {
    uint64_t value = 1;
    for (int64_t i = 0; i < rounds; ++i) {
      value = value * 0x9e3779b97f4a7c15U + 1;
      asm volatile("" : "+r"(value));
    }
  }

  static int64_t rounds_per_us() {
    static const int64_t rounds = [] {
      constexpr int64_t kRounds = 1'000'000;
      int64_t best_ns = INT64_MAX;
      for (int i = 0; i < 10; ++i) {
        const int64_t begin_ns = now_ns();
        spin(kRounds);
        best_ns = std::min(best_ns, now_ns() - begin_ns);
      }
      return kRounds * kNsPerUs / best_ns;
    }();
    return rounds;
  }

  int64_t rounds_;
};

// One repetition.
struct GraphTimes {
  int64_t life_ns = 0;     // build, run and free
  int64_t run_ns = 0;      // from the start until the last node has run
  int64_t run_cpu_ns = 0;  // of the process, meanwhile
};

// Repeats and prints medians; life_cpu is the average of all repetitions, waits in between
// included.
inline void run_graph_row(const char* peer, int64_t body_us, size_t repetitions,
                          const std::function<GraphTimes()>& repeat) {
  const size_t warm_up = repetitions / 10 + 1;
  for (size_t i = 0; i < warm_up; ++i)
    repeat();
  std::vector<int64_t> life;
  std::vector<int64_t> run;
  std::vector<int64_t> run_cpu;
  const int64_t cpu_before = process_cpu_ns();
  for (size_t i = 0; i < repetitions; ++i) {
    const GraphTimes times = repeat();
    life.push_back(times.life_ns);
    run.push_back(times.run_ns);
    run_cpu.push_back(times.run_cpu_ns);
  }
  const int64_t cpu_ns = process_cpu_ns() - cpu_before;
  const auto us = [](std::vector<int64_t> samples) {
    return static_cast<double>(Quantiles(std::move(samples)).at(0.5)) / kNsPerUs;
  };
  Line("graph", peer)
      .add("body_us", body_us)
      .add("life_us", us(std::move(life)))
      .add("life_cpu_us", per_op(cpu_ns, repetitions) / kNsPerUs)
      .add("run_us", us(std::move(run)))
      .add("run_cpu_us", us(std::move(run_cpu)))
      .print();
}

// The bodies of the row, each with so many repetitions.
inline void for_each_body(int argc, char** argv,
                          const std::function<void(int64_t body_us, size_t repetitions)>& row) {
  const size_t repetitions = Options(argc, argv).count("n", 1000);
  row(0, repetitions);
  row(1, repetitions / 2);
  row(10, repetitions / 10);
}

}  // namespace bench
