// Rows coroutine_*, written once for coroutines of the library, for the same programs with
// callbacks, and for the coroutines of a peer. Header only and free of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/Measure.h"

namespace bench {

// What goes back and forth: a head of eight bytes and four bytes.
inline constexpr size_t kPingBytes = 12;

// `work` does something n times, one after the other, and returns when it is done.
template <class Work>
void measure_awaits(const std::string& row, const char* peer, size_t n, Work work) {
  work(n / 10 + 1);  // threads, pools and caches
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  work(n);
  const int64_t wall_ns = now_ns() - begin_ns;
  Line(row, peer)
      .add("n", n)
      .add("ns", per_op(wall_ns, n))
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, n))
      .print();
}

// `start` makes n of what sleeps, and returns when all of them do.
template <class Start>
void measure_sleepers(const char* peer, size_t n, Start start) {
  start(n / 10 + 1);  // what is allocated once
  const int64_t before = resident_bytes();
  start(n);
  Line("coroutine_memory", peer)
      .add("n", n)
      .add("bytes", per_op(resident_bytes() - before, n))
      .print();
}

// `Program` has for each row a function of the same name, and kPeer. --row=all or the name of one.
template <class Program>
void run_coroutine_rows(Program& program, int argc, char** argv) {
  const Options options(argc, argv);
  const std::string row = options.text("row", "all");
  const auto wanted = [&row](const char* name) { return row == "all" || row == name; };
  const size_t n = options.count("n", 1'000'000);
  if (wanted("empty")) {
    measure_awaits("coroutine_empty", Program::kPeer, n, [&](size_t m) { program.empty(m); });
  }
  if (wanted("child")) {
    measure_awaits("coroutine_child", Program::kPeer, n, [&](size_t m) { program.child(m); });
  }
  if (wanted("due")) {
    measure_awaits("coroutine_due", Program::kPeer, n / 5, [&](size_t m) { program.due(m); });
  }
  if (wanted("ping")) {
    measure_awaits("coroutine_ping", Program::kPeer, n / 50, [&](size_t m) { program.ping(m); });
  }
  if (wanted("memory")) {
    measure_sleepers(Program::kPeer, n / 10, [&](size_t m) { program.sleepers(m); });
  }
}

}  // namespace bench
