// Row go, written once for the library and its peer: the cost of a small computation that is
// started as a task of its own. Header only and free of the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/Measure.h"

namespace bench {

// `Tasks` has start(function), which runs it once on some thread, wait(), which returns when all
// have run, and kPeer. Started from one thread, one after the other:
//   start_ns   wall time of that thread for each start
//   cpu_ns     CPU of the process for each task, from the first start to the end of the wait
template <class Tasks>
void run_go_row(Tasks& tasks, int argc, char** argv) {
  const size_t n = Options(argc, argv).count("n", 1'000'000);
  const size_t warm_up = n / 10 + 1;
  static std::atomic<size_t> ran{0};
  const auto function = [] { ran.fetch_add(1, std::memory_order_relaxed); };
  for (size_t i = 0; i < warm_up; ++i)
    tasks.start(function);
  tasks.wait();

  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  for (size_t i = 0; i < n; ++i)
    tasks.start(function);
  const int64_t started_ns = now_ns();
  tasks.wait();
  const int64_t end_ns = now_ns();
  const int64_t cpu_ns = process_cpu_ns() - cpu_before;
  if (ran != warm_up + n) {
    std::fprintf(stderr, "%zu tasks of %zu ran\n", ran.load(), warm_up + n);
    std::exit(1);
  }
  Line("go", Tasks::kPeer)
      .add("n", n)
      .add("start_ns", per_op(started_ns - begin_ns, n))
      .add("cpu_ns", per_op(cpu_ns, n))
      .add("wall_ns", per_op(end_ns - begin_ns, n))
      .print();
}

}  // namespace bench
