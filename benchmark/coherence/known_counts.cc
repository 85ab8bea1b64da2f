// Checks the model by programs whose counts are known. Exits with 1 if one is off.

#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "coherence/Measure.h"

namespace {

constexpr size_t kTimes = 500;

struct alignas(64) Padded {
  std::atomic<uint64_t> value{0};
};

bool failed = false;

void expect(const char* what, size_t threads, const char* count, double found, double least,
            double most) {
  const bool good = found >= least && found <= most;
  std::printf("%s %s, %zu threads: %s per operation %.3f, expected %.2f to %.2f\n",
              good ? "ok  " : "FAIL", what, threads, count, found, least, most);
  failed = failed || !good;
}

// Runs the body in so many threads, which begin together.
coherence::Total run(size_t threads, const std::function<void(size_t)>& body) {
  coherence::Gate ready;
  coherence::Gate open;
  coherence::Gate finished;
  std::vector<std::thread> all;
  for (size_t i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      ready.arrive();
      open.wait_for(1);
      body(i);
      finished.arrive();
    });
  }
  ready.wait_for(threads);
  coherence::begin_counting();
  open.arrive();
  finished.wait_for(threads);
  const coherence::Total total = coherence::total();
  for (std::thread& thread : all)
    thread.join();
  return total;
}

double per_operation(uint64_t count, size_t threads) {
  return static_cast<double>(count) / static_cast<double>(threads * kTimes);
}

void one_counter(size_t threads) {
  Padded counter;
  const coherence::Total total = run(threads, [&](size_t) {
    for (size_t i = 0; i < kTimes; ++i)
      counter.value.fetch_add(1, std::memory_order_relaxed);
  });
  const double most = threads == 1 ? 0.01 : 1.05;
  expect("one counter", threads, "transfers", per_operation(total.transfers, threads),
         threads == 1 ? 0 : 0.9, most);
  expect("one counter", threads, "read-modify-writes",
         per_operation(total.read_modify_writes, threads), 1, 1.02);
  if (counter.value != threads * kTimes) expect("one counter", threads, "sum", 0, 1, 1);
  // Transfers of one line happen one after the other.
  if (threads > 1) {
    expect("one counter", threads, "ns", per_operation(static_cast<uint64_t>(total.ns), threads),
           55, 90);
  }
}

void counter_of_each(size_t threads) {
  std::vector<Padded> counters(threads);
  const coherence::Total total = run(threads, [&](size_t mine) {
    for (size_t i = 0; i < kTimes; ++i)
      counters[mine].value.fetch_add(1, std::memory_order_relaxed);
  });
  expect("a counter for each", threads, "transfers", per_operation(total.transfers, threads), 0,
         0.05);
  expect("a counter for each", threads, "read-modify-writes",
         per_operation(total.read_modify_writes, threads), 1, 1.02);
}

// A hand-over is a write, which takes the line from the thread that has read it, and the read that
// sees it.
void ring(size_t threads) {
  std::vector<Padded> slots(threads);
  slots[0].value = 1;
  const coherence::Total total = run(threads, [&](size_t mine) {
    Padded& next = slots[(mine + 1) % threads];
    for (size_t round = 1; round <= kTimes; ++round) {
      while (slots[mine].value.load(std::memory_order_acquire) < round)
        ;
      next.value.store(mine + 1 == threads ? round + 1 : round, std::memory_order_release);
    }
  });
  expect("ring", threads, "transfers", per_operation(total.transfers, threads), 1.9, 2.1);
}

void words_of_a_line(bool apart) {
  struct alignas(64) Together {
    std::atomic<uint64_t> words[2 * 8] = {};
  } both;
  const coherence::Total total = run(2, [&](size_t mine) {
    std::atomic<uint64_t>& word = both.words[mine * (apart ? 8 : 1)];
    for (size_t i = 0; i < kTimes; ++i)
      word.fetch_add(1, std::memory_order_relaxed);
  });
  expect(apart ? "two words of two lines" : "two words of a line", 2, "transfers",
         per_operation(total.transfers, 2), apart ? 0 : 0.9, apart ? 0.05 : 1.05);
}

// A lock and its release are two atomic operations of one line, and what it guards is another one.
// A thread that finds it locked sleeps, so the one that has it may take it again many times
// meanwhile.
void mutex(size_t threads) {
  struct alignas(64) Mutex {
    std::mutex mutex;
    alignas(64) uint64_t guarded = 0;
  } all;
  const coherence::Total total = run(threads, [&](size_t) {
    for (size_t i = 0; i < kTimes; ++i) {
      const std::lock_guard<std::mutex> lock(all.mutex);
      all.guarded++;
    }
  });
  // One that is woken may find it locked again.
  expect("mutex", threads, "read-modify-writes", per_operation(total.read_modify_writes, threads),
         2, 3.5);
  expect("mutex", threads, "transfers", per_operation(total.transfers, threads), 0,
         threads == 1 ? 0.05 : 4.5);
  if (all.guarded != threads * kTimes) expect("mutex", threads, "sum", 0, 1, 1);
}

}  // namespace

int main(int argc, char** argv) {
  coherence::configure(argc, argv);
  for (const size_t threads : {1U, 2U, 8U, 32U}) {
    one_counter(threads);
    counter_of_each(threads);
    mutex(threads);
  }
  ring(2);
  ring(8);
  ring(32);
  words_of_a_line(false);
  words_of_a_line(true);
  return failed ? 1 : 0;
}
