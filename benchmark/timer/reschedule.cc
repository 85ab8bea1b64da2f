// Row reschedule: what moving one of --n outstanding timers costs. Links: workflow.
//
// later: each is put off by its whole delay, in an order that the queue does not know, as sessions
// are by their requests. in_order: in that of their creation, as leases are that one loop renews.
// any: to a random time, half of them earlier. named: later, found by name. put_off_expiry: CPU of
// one round over all of them whose old time comes while they were put off.

#include <workflow/WFFacilities.h>
#include <workflow/WFTimer.h>

#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "common/Measure.h"

namespace bench {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr size_t kMoves = 2'000'000;

std::vector<size_t> at_random(size_t n) {
  std::mt19937_64 random(1);
  std::vector<size_t> order(kMoves);
  for (size_t& i : order)
    i = random() % n;
  return order;
}

std::vector<size_t> in_turn(size_t n) {
  std::vector<size_t> order(kMoves);
  for (size_t i = 0; i < kMoves; i++)
    order[i] = i % n;
  return order;
}

template <class Move>
void measure(const char* way, size_t n, const std::vector<size_t>& order, Move move) {
  const int64_t begin_ns = now_ns();
  for (size_t i : order)
    move(i);
  Line(way, "ours").add("n", n).add("ns", per_op(now_ns() - begin_ns, kMoves)).print();
}

void run(size_t n) {
  std::atomic<size_t> ended{0};
  std::vector<WFTimerHandle> handles(n);
  std::vector<std::string> names(n);
  for (size_t i = 0; i < n; i++) {
    names[i] = "timer:" + std::to_string(100000000000 + i);
    WFTimerTask* task = WFTimer::create(hours(1), {names[i]}, [&ended](WFTimerTask*) { ended++; });
    handles[i] = WFTimer::handle_of(task);
    task->start();
  }
  const std::vector<size_t> order = at_random(n);
  const auto put_off = [&](size_t i) { handles[i].reschedule(hours(1)); };
  measure("reschedule_in_order", n, in_turn(n), put_off);
  measure("reschedule_later", n, order, put_off);
  measure("reschedule_named", n, order, [&](size_t i) { WFTimer::reschedule(names[i], hours(1)); });
  std::mt19937_64 random(2);
  measure("reschedule_any", n, order, [&](size_t i) {
    handles[i].reschedule(hours(1) + nanoseconds(random() % 3'600'000'000'000));
  });
  for (const WFTimerHandle& handle : handles)
    handle.cancel();
  while (ended < n)
    sleep_ns(kNsPerMs);

  // All due at once, and all put off by then.
  for (size_t i = 0; i < n; i++) {
    WFTimerTask* task = WFTimer::create(seconds(2), [&ended](WFTimerTask*) { ended++; });
    handles[i] = WFTimer::handle_of(task);
    task->start();
  }
  for (const WFTimerHandle& handle : handles)
    handle.reschedule(hours(1));
  const int64_t cpu_before = process_cpu_ns();
  sleep_ns(3 * kNsPerSecond);
  Line("reschedule_put_off", "ours")
      .add("n", n)
      .add("cpu_ns", per_op(process_cpu_ns() - cpu_before, n))
      .print();
  for (const WFTimerHandle& handle : handles)
    handle.cancel();
  while (ended < 2 * n)
    sleep_ns(kNsPerMs);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv).count("n", 200'000));
}
