// Shows: work side by side. Each branch of a parallel is a series; the callback of the parallel
// runs when all of them have ended, and reads what each has left in its context.
//
// Try:   tutorial-06-parallel
#include <array>
#include <chrono>
#include <cstdio>

#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

namespace {

// What one branch works on. No other touches it, so it needs no lock.
struct Part {
  unsigned int from;
  unsigned int to;
  unsigned int primes;
};

bool is_prime(unsigned int n) {
  for (unsigned int divisor = 2; divisor * divisor <= n; divisor++) {
    if (n % divisor == 0) return false;
  }
  return n >= 2;
}

void count_primes(Part& part) {
  for (unsigned int n = part.from; n < part.to; n++)
    part.primes += is_prime(n);
}

// Waits 100 ms, as if the numbers came from elsewhere, then counts the primes among them.
SeriesWork* branch(Part& part) {
  WFTimerTask* wait = WFTaskFactory::create_timer_task(100 * 1000, nullptr);
  SeriesWork* series = Workflow::create_series_work(wait, nullptr);
  series->push_back(WFTaskFactory::create_go_task("primes", [&part] { count_primes(part); }));
  series->set_context(&part);
  return series;
}

}  // namespace

int main() {
  std::array<Part, 4> parts = {{{0, 25, 0}, {25, 50, 0}, {50, 75, 0}, {75, 100, 0}}};
  WFFacilities::WaitGroup done(1);

  ParallelWork* parallel = Workflow::create_parallel_work([&done](const ParallelWork* branches) {
    unsigned int primes = 0;
    for (const SeriesWork* series : *branches) {
      const Part* part = static_cast<const Part*>(series->get_context());
      std::printf("%u to %u: %u primes\n", part->from, part->to - 1, part->primes);
      primes += part->primes;
    }
    std::printf("together: %u\n", primes);
    done.done();
  });
  for (Part& part : parts)
    parallel->add_series(branch(part));

  const auto begin = std::chrono::steady_clock::now();
  parallel->start();
  done.wait();
  // The four waits took 100 ms, not 400.
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("after %.0f ms\n", took.count());
}
