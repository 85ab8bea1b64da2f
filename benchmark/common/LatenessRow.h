// Rows lateness and stalls: how late timers are, and in which bursts. Header only, for every peer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/Measure.h"

namespace bench {

// What a timer reports to: a function and its argument, the least that any library can be asked to
// carry. `late` is now - deadline only where a row asks for it.
struct Completion {
  void (*run)(void* context, bool cancelled);
  void* context;
};

// Unnamed timers with random delays below a span of time, all started at once by this thread. A
// timer's deadline is its delay after the moment just before start() was called, so starting late
// is lateness too.
//
// Prints one line of quantiles. The row `stalls` also prints one line for each burst: timers whose
// deadlines follow each other without one between them that was nearly on time. A burst is what a
// stall of the loop looks like from outside, whatever the cause: of the library, of malloc, or of
// the machine.
class LatenessRow {
 public:
  // `run` tells the runs of one measurement apart in the output.
  LatenessRow(std::string row, const char* peer, size_t count, size_t run)
      : row_(std::move(row)), peer_(peer), run_(run), slots_(count, Slot{-1, -1}) {}

  template <class Timers>
  void measure(Timers& timers, int64_t span_ns) {
    fired_ = 0;
    Random random(1);
    timers.settle();
    const int64_t cpu_before = process_cpu_ns();
    begin_ns_ = now_ns();
    for (Slot& slot : slots_) {
      const int64_t delay_ns = random.below(span_ns);
      slot.deadline_ns = now_ns() + delay_ns;
      timers.start(delay_ns, Completion{on_time, &slot});
    }
    started_ns_ = now_ns();
    while (fired_.load(std::memory_order_acquire) < slots_.size())
      sleep_ns(kNsPerMs);
    print(process_cpu_ns() - cpu_before);
  }

 private:
  // Written before the timers start, so that no page fault makes one late.
  struct Slot {
    int64_t deadline_ns;
    int64_t late_ns;
  };

  // Timers are in a burst if they are late by kLate times the median, within these bounds. Without
  // the upper one, whoever is late all the time would have no bursts.
  static constexpr int64_t kLate = 4;
  static constexpr int64_t kLeastLateNs = 250 * kNsPerUs;
  static constexpr int64_t kMaxLateNs = kNsPerMs;

  static inline std::atomic<size_t> fired_;

  static void on_time(void* context, bool) {
    auto* slot = static_cast<Slot*>(context);
    slot->late_ns = now_ns() - slot->deadline_ns;
    fired_.fetch_add(1, std::memory_order_release);
  }

  void print(int64_t cpu_ns) {
    std::vector<int64_t> late;
    late.reserve(slots_.size());
    for (const Slot& slot : slots_)
      late.push_back(slot.late_ns);
    const Quantiles quantiles(std::move(late));
    Line(row_, peer_)
        .add("n", slots_.size())
        .add("run", run_)
        .add("p50_us", static_cast<double>(quantiles.at(0.5)) / 1e3)
        .add("p99_us", static_cast<double>(quantiles.at(0.99)) / 1e3)
        .add("p999_us", static_cast<double>(quantiles.at(0.999)) / 1e3)
        .add("max_us", static_cast<double>(quantiles.max()) / 1e3)
        .add("min_us", static_cast<double>(quantiles.min()) / 1e3)
        .add("cpu_s", static_cast<double>(cpu_ns) / 1e9)
        .add("starting_ms", static_cast<double>(started_ns_ - begin_ns_) / 1e6)
        .print();
    if (row_ == "stalls")
      print_bursts(std::clamp(kLate * quantiles.at(0.5), kLeastLateNs, kMaxLateNs));
  }

  void print_bursts(int64_t late_ns) {
    std::sort(slots_.begin(), slots_.end(),
              [](const Slot& a, const Slot& b) { return a.deadline_ns < b.deadline_ns; });
    for (size_t i = 0; i < slots_.size();) {
      const size_t first = i;
      int64_t end_ns = 0;
      int64_t worst_ns = 0;
      for (; i < slots_.size() && slots_[i].late_ns >= late_ns; i++) {
        end_ns = std::max(end_ns, slots_[i].deadline_ns + slots_[i].late_ns);
        worst_ns = std::max(worst_ns, slots_[i].late_ns);
      }
      if (i == first) {
        i++;
        continue;
      }
      Line("burst", peer_)
          .add("n", slots_.size())
          .add("run", run_)
          .add("at_ms", static_cast<double>(slots_[first].deadline_ns - begin_ns_) / 1e6)
          .add("fired_before", first)
          .add("timers", i - first)
          .add("for_ms", static_cast<double>(end_ns - slots_[first].deadline_ns) / 1e6)
          .add("worst_us", static_cast<double>(worst_ns) / 1e3)
          .print();
    }
  }

  const std::string row_;
  const char* const peer_;
  const size_t run_;
  std::vector<Slot> slots_;
  int64_t begin_ns_ = 0;
  int64_t started_ns_ = 0;
};

}  // namespace bench
