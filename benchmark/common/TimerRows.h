// The timer rows, written once and run against any timer library through a small adaptor, so that a
// difference between two lines of the table is a difference between two libraries.
//
// An adaptor `Timers` offers, to any thread:
//   Timers::kPeer                                 its name in the output
//   void start(delay_ns, Completion)              an unnamed timer
//   void start_named(name, delay_ns, Completion)  a name may hold several timers
//   size_t cancel(name, max)                      cancels at most so many; how many it cancelled
//   void settle()                                 returns when all starts so far are armed
// The completion runs exactly once per timer, never inside start, start_named or cancel. An adaptor
// without names offers only start() and settle(): it takes part in the rows without names.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/LatenessRow.h"
#include "common/Measure.h"

namespace bench {

template <class Timers>
concept NamesTimers = requires(Timers& timers, const std::string& name, Completion completion) {
  timers.start_named(name, int64_t{}, completion);
  { timers.cancel(name, size_t{}) } -> std::convertible_to<size_t>;
};

// 18-byte unique names. One per thread: the returned string is reused by the next call.
class Names {
 public:
  const std::string& at(uint64_t number) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (size_t i = kLength; i-- > kPrefix;) {
      text_[i] = kDigits[number & 15];
      number >>= 4;
    }
    return text_;
  }

 private:
  static constexpr size_t kPrefix = 6;
  static constexpr size_t kLength = 18;
  std::string text_ = "timer:000000000000";
};

// Counts completions; outlives every timer that reports to it.
class Tally {
 public:
  Completion completion() { return {&Tally::count, this}; }
  size_t total() const { return total_.load(std::memory_order_acquire); }
  size_t cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // Looks now and then instead of being woken: the counting callback must cost nothing but the add.
  void wait_for(size_t expected) const {
    while (total() < expected)
      sleep_ns(100 * kNsPerUs);
  }

 private:
  static void count(void* context, bool cancelled) {
    auto* tally = static_cast<Tally*>(context);
    if (cancelled) tally->cancelled_.fetch_add(1, std::memory_order_relaxed);
    tally->total_.fetch_add(1, std::memory_order_release);
  }

  alignas(64) std::atomic<size_t> total_{0};
  std::atomic<size_t> cancelled_{0};
};

// Never due within a run, and in no order: what a table of leases or time-outs looks like.
inline int64_t far_delay_ns(Random& random) {
  return 600 * kNsPerSecond + random.below(3600 * kNsPerSecond);
}

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "benchmark: %s\n", what);
  _exit(1);
}

template <NamesTimers Timers>
class NamedRows {
 public:
  NamedRows(Timers& timers, size_t outstanding) : timers_(timers), outstanding_(outstanding) {}

  // Rows named_create_start and named_create_cancel, with `outstanding` timers armed all the while.
  // The CPU is measured twice: a batch created and then cancelled (cpu_us: every timer was armed),
  // and each timer cancelled as soon as created (cpu_at_once_us: all in cache, hand-offs coalesce).
  void create_and_cancel() {
    const int64_t fill_ns = fill();
    constexpr size_t kBatch = 50'000;
    constexpr size_t kRounds = 5;
    std::vector<int64_t> armed;
    std::vector<int64_t> called;
    std::vector<int64_t> cpu_apart;
    std::vector<int64_t> cpu_paired;
    for (size_t round = 0; round < kRounds; ++round) {
      const uint64_t first = kFresh + round * 2 * kBatch;
      const int64_t cpu_before = process_cpu_ns();
      const int64_t begin_ns = now_ns();
      for (size_t i = 0; i < kBatch; ++i)
        create(first + i);
      called.push_back(now_ns() - begin_ns);
      timers_.settle();
      armed.push_back(now_ns() - begin_ns);
      for (size_t i = 0; i < kBatch; ++i)
        cancel(first + i);
      await_cancelled(kBatch);
      cpu_apart.push_back(process_cpu_ns() - cpu_before);
      cpu_paired.push_back(cpu_of_pairs(first + kBatch, kBatch));
    }
    Line("named_create_start", Timers::kPeer)
        .add("n", outstanding_)
        .add("ns", per_op(Quantiles(armed).at(0.5), kBatch))
        .add("caller_ns", per_op(Quantiles(called).at(0.5), kBatch))
        .add("fill_ns", per_op(fill_ns, outstanding_))
        .print();
    Line("named_create_cancel", Timers::kPeer)
        .add("n", outstanding_)
        .add("cpu_us", per_op(Quantiles(cpu_apart).at(0.5), kBatch) / 1e3)
        .add("cpu_at_once_us", per_op(Quantiles(cpu_paired).at(0.5), kBatch) / 1e3)
        .print();
  }

  // Row named_random: `outstanding` timers are created, started and cancelled in random order.
  // Their names exist before and each is in a heap block of its own, as users have them.
  void cancel_in_random_order() {
    std::vector<std::string> names;
    for (size_t i = 0; i < outstanding_; ++i)
      names.push_back(names_.at(i));
    std::vector<size_t> order(outstanding_);
    for (size_t i = 0; i < outstanding_; ++i) {
      order[i] = i;
      std::swap(order[i], order[static_cast<size_t>(random_.below(static_cast<int64_t>(i + 1)))]);
    }
    std::vector<int64_t> cpu;
    std::vector<int64_t> wall;
    constexpr size_t kRounds = 5;
    for (size_t round = 0; round < kRounds; ++round) {
      const int64_t cpu_before = process_cpu_ns();
      const int64_t begin_ns = now_ns();
      for (const std::string& name : names)
        timers_.start_named(name, far_delay_ns(random_), tally_.completion());
      timers_.settle();
      for (const size_t i : order) {
        if (timers_.cancel(names[i], kAll) != 1) fail("a cancel did not find its one timer");
      }
      await_cancelled(outstanding_);
      cpu.push_back(process_cpu_ns() - cpu_before);
      wall.push_back(now_ns() - begin_ns);
    }
    Line("named_random", Timers::kPeer)
        .add("n", outstanding_)
        .add("cpu_us", per_op(Quantiles(cpu).at(0.5), outstanding_) / 1e3)
        .add("wall_us", per_op(Quantiles(wall).at(0.5), outstanding_) / 1e3)
        .print();
  }

  // Row cancel_each: all timers have the same name, and each call cancels one of them. `call_ns` is
  // the wall time of the thread that calls; the CPU is that of the calls and of the callbacks.
  void cancel_one_by_one() {
    const std::string name = "one name for them all";
    std::vector<int64_t> called;
    std::vector<int64_t> cpu;
    std::vector<int64_t> ended;
    constexpr size_t kRounds = 5;
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < outstanding_; ++i)
        timers_.start_named(name, far_delay_ns(random_), tally_.completion());
      timers_.settle();
      const int64_t cpu_before = process_cpu_ns();
      const int64_t begin_ns = now_ns();
      for (size_t i = 0; i < outstanding_; ++i) {
        if (timers_.cancel(name, 1) != 1) fail("a cancel of one did not find one timer");
      }
      called.push_back(now_ns() - begin_ns);
      await_cancelled(outstanding_);
      cpu.push_back(process_cpu_ns() - cpu_before);
      ended.push_back(now_ns() - begin_ns);
    }
    Line("cancel_each", Timers::kPeer)
        .add("n", outstanding_)
        .add("call_ns", per_op(Quantiles(called).at(0.5), outstanding_))
        .add("wall_ns", per_op(Quantiles(ended).at(0.5), outstanding_))
        .add("cpu_ns", per_op(Quantiles(cpu).at(0.5), outstanding_))
        .print();
  }

  // Row named_replace: every thread cancels a random name of its own share and creates it again;
  // the callbacks arrive meanwhile, and the clock stops at the last of them.
  void replace(size_t threads, size_t rounds) {
    fill();
    const int64_t cpu_before = process_cpu_ns();
    const int64_t begin_ns = now_ns();
    std::vector<std::thread> workers;
    for (size_t t = 0; t < threads; ++t) {
      workers.emplace_back(
          [this, t, threads, rounds] { replace_share(t, threads, rounds / threads); });
    }
    for (std::thread& worker : workers)
      worker.join();
    const size_t done = rounds / threads * threads;
    await_cancelled(done);
    const int64_t wall_ns = now_ns() - begin_ns;
    Line("named_replace", Timers::kPeer)
        .add("n", outstanding_)
        .add("threads", threads)
        .add("per_s", static_cast<double>(done) * 1e9 / static_cast<double>(wall_ns))
        .add("cpu_us", per_op(process_cpu_ns() - cpu_before, done) / 1e3)
        .print();
  }

 private:
  // Names from here on are not among the outstanding ones.
  static constexpr uint64_t kFresh = uint64_t{1} << 40;
  static constexpr size_t kAll = static_cast<size_t>(-1);

  int64_t fill() {
    const int64_t begin_ns = now_ns();
    for (size_t i = 0; i < outstanding_; ++i)
      create(i);
    timers_.settle();
    return now_ns() - begin_ns;
  }

  void create(uint64_t number) {
    timers_.start_named(names_.at(number), far_delay_ns(random_), tally_.completion());
  }

  void cancel(uint64_t number) {
    if (timers_.cancel(names_.at(number), kAll) != 1) fail("a cancel did not find its one timer");
  }

  void await_cancelled(size_t count) {
    expected_ += count;
    tally_.wait_for(expected_);
    if (tally_.cancelled() != expected_) fail("a cancelled timer reported something else");
  }

  int64_t cpu_of_pairs(uint64_t first, size_t count) {
    const int64_t before_ns = process_cpu_ns();
    for (size_t i = 0; i < count; ++i) {
      create(first + i);
      cancel(first + i);
    }
    await_cancelled(count);
    return process_cpu_ns() - before_ns;
  }

  void replace_share(size_t share, size_t shares, size_t rounds) {
    Names names;
    Random random(1000 + share);
    const auto mine = static_cast<int64_t>(outstanding_ / shares);
    for (size_t round = 0; round < rounds; ++round) {
      const uint64_t number = static_cast<uint64_t>(random.below(mine)) * shares + share;
      if (timers_.cancel(names.at(number), kAll) != 1)
        fail("a replaced name did not hold one timer");
      timers_.start_named(names.at(number), far_delay_ns(random), tally_.completion());
    }
  }

  Timers& timers_;
  const size_t outstanding_;
  Names names_;
  Random random_{1};
  Tally tally_;
  size_t expected_ = 0;
};

// Row memory. Starts in small steps and settles after each, so that a queue between threads, where
// a peer has one, is not counted as memory of its timers.
template <class Timers>
void measure_memory(Timers& timers, size_t count, bool named) {
  static Tally tally;
  Names names;
  Random random(1);
  int64_t before = 0;
  constexpr size_t kWarmUp = 1000;
  for (size_t i = 0; i < count + kWarmUp; ++i) {
    if (i == kWarmUp) {
      timers.settle();
      before = resident_bytes();
    }
    if constexpr (NamesTimers<Timers>) {
      if (named) timers.start_named(names.at(i), far_delay_ns(random), tally.completion());
    }
    if (!named) timers.start(far_delay_ns(random), tally.completion());
    if (i % 1000 == 999) timers.settle();
  }
  timers.settle();
  Line(named ? "memory_named" : "memory_unnamed", Timers::kPeer)
      .add("n", count)
      .add("bytes", per_op(resident_bytes() - before, count))
      .print();
}

// Row due: a chain of `count` timers without a delay. Each callback starts the next one, so at most
// one is outstanding, and every step pays the whole way from a start to its callback.
template <class Timers>
void measure_due(Timers& timers, size_t count) {
  struct Chain {
    Timers& timers;
    size_t left;
    std::atomic<bool> ended{false};

    void start_next() { timers.start(0, Completion{&Chain::expired, this}); }
    static void expired(void* context, bool) {
      auto* const chain = static_cast<Chain*>(context);
      if (--chain->left == 0) {
        chain->ended.store(true, std::memory_order_release);
      } else {
        chain->start_next();
      }
    }
  };
  static Chain chain{timers, count};
  timers.settle();
  const int64_t cpu_before = process_cpu_ns();
  const int64_t begin_ns = now_ns();
  chain.start_next();
  while (!chain.ended.load(std::memory_order_acquire))
    sleep_ns(kNsPerMs);
  Line("due_chain", Timers::kPeer)
      .add("n", count)
      .add("ns", per_op(now_ns() - begin_ns, count))
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, count))
      .print();
}

// Runs the row that the command line names:
//   --row=named|named_random|replace|cancel_each|memory_named|memory_unnamed|lateness|stalls|due
//   [--n=N]
//   [--threads=T]
//   [--rounds=R]
//   [--run=K]
// and ends the process there and then: tearing down a million timers belongs to no row.
template <class Timers>
[[noreturn]] void run_timer_row(Timers& timers, int argc, char** argv) {
  const Options options(argc, argv);
  const std::string row = options.text("row", "");
  const size_t n = options.count("n", 100'000);
  bool known = true;
  if (row == "lateness" || row == "stalls") {
    LatenessRow lateness(row, Timers::kPeer, n, options.count("run", 0));
    lateness.measure(timers, 2 * kNsPerSecond);
  } else if (row == "due") {
    measure_due(timers, n);
  } else if (row == "memory_unnamed") {
    measure_memory(timers, n, false);
  } else if constexpr (NamesTimers<Timers>) {
    if (row == "memory_named") {
      measure_memory(timers, n, true);
    } else if (row == "named") {
      static NamedRows<Timers> rows(timers, n);
      rows.create_and_cancel();
    } else if (row == "named_random") {
      static NamedRows<Timers> rows(timers, n);
      rows.cancel_in_random_order();
    } else if (row == "cancel_each") {
      static NamedRows<Timers> rows(timers, n);
      rows.cancel_one_by_one();
    } else if (row == "replace") {
      static NamedRows<Timers> rows(timers, n);
      rows.replace(options.count("threads", 1), options.count("rounds", 500'000));
    } else {
      known = false;
    }
  } else {
    known = false;
  }
  if (!known) fail("unknown --row, or a row that this peer has no part in");
  _exit(0);
}

}  // namespace bench
