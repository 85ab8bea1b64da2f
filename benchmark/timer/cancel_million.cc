// Row cancel_million: one call cancels --n timers of one name, while a second thread creates and
// cancels timers of other names and times each of its calls. Links: workflow.
//
// The second thread runs by itself first: idle_* is what the machine alone does to it. Three
// threads are busy during the call, so on two cores the kernel may put the second one aside in the
// middle of an operation; other_undisturbed_max_us leaves those operations out and shows what
// waiting for us costs, other_max_us has them all.

#include <fcntl.h>
#include <workflow/WFTaskFactory.h>

#include <atomic>
#include <thread>
#include <utility>

#include "common/TimerRows.h"

namespace bench {
namespace {

void start_timer(const std::string& name, Tally& tally) {
  const Completion completion = tally.completion();
  WFTaskFactory::create_timer_task(name, 3600, 0, [completion](WFTimerTask* task) {
    completion.run(completion.context, task->get_state() != WFT_STATE_SUCCESS);
  })->start();
}

// How long the calling thread has been ready to run without a core, from the kernel.
class CoreWait {
 public:
  CoreWait() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~CoreWait() { close(fd_); }
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  // Since the last call.
  int64_t take_ns() {
    char text[128] = {};
    long long running_ns = 0;
    long long waited_ns = 0;
    if (pread(fd_, text, sizeof text - 1, 0) <= 0 ||
        std::sscanf(text, "%lld %lld", &running_ns, &waited_ns) != 2) {
      return 0;
    }
    return waited_ns - std::exchange(last_ns_, int64_t{waited_ns});
  }

 private:
  const int fd_;
  int64_t last_ns_ = 0;
};

struct Observed {
  std::vector<int64_t> samples;
  int64_t own_max_ns = 0;
};

// A thousand names reach every part of the registry, the one that the long cancel works in too.
Observed time_other_names(const std::atomic<bool>& stop) {
  static Tally tally;
  constexpr uint64_t kNames = 1000;
  Names names;
  Observed observed;
  observed.samples.reserve(5'000'000);
  CoreWait core_wait;
  core_wait.take_ns();
  for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
    const std::string& name = names.at(i % kNames);
    const int64_t begin_ns = now_ns();
    start_timer(name, tally);
    const int64_t started_ns = now_ns();
    if (WFTaskFactory::cancel_by_name(name) != 1) fail("another name lost its timer");
    const int64_t end_ns = now_ns();
    const int64_t longer_ns = std::max(started_ns - begin_ns, end_ns - started_ns);
    observed.samples.push_back(started_ns - begin_ns);
    observed.samples.push_back(end_ns - started_ns);
    observed.own_max_ns = std::max(observed.own_max_ns, longer_ns - core_wait.take_ns());
    // A pause every so often keeps the handlers from being flooded by the observer itself.
    if (i % 16 == 0) {
      sleep_ns(50 * kNsPerUs);
      core_wait.take_ns();
    }
  }
  return observed;
}

void add_latencies(Line& line, const std::string& prefix, Observed observed) {
  const Quantiles samples(std::move(observed.samples));
  line.add(prefix + "p50_us", static_cast<double>(samples.at(0.5)) / 1e3);
  line.add(prefix + "p99_us", static_cast<double>(samples.at(0.99)) / 1e3);
  line.add(prefix + "max_us", static_cast<double>(samples.max()) / 1e3);
  line.add(prefix + "own_max_us", static_cast<double>(observed.own_max_ns) / 1e3);
}

void run(size_t n) {
  static Tally tally;
  for (size_t i = 0; i < n; ++i)
    start_timer("one name for them all", tally);

  std::atomic<bool> stop{false};
  Observed idle;
  std::thread alone([&] { idle = time_other_names(stop); });
  sleep_ns(500 * kNsPerMs);
  stop = true;
  alone.join();

  stop = false;
  std::atomic<bool> watching{false};
  Observed busy;
  std::thread observer([&] {
    watching = true;
    busy = time_other_names(stop);
  });
  while (!watching)
    std::this_thread::yield();
  const int64_t begin_ns = now_ns();
  const int cancelled = WFTaskFactory::cancel_by_name("one name for them all");
  const int64_t call_ns = now_ns() - begin_ns;
  tally.wait_for(n);
  const int64_t all_ns = now_ns() - begin_ns;
  stop = true;
  observer.join();
  if (cancelled != static_cast<int>(n) || tally.cancelled() != n) fail("a wrong cancel count");

  Line line("cancel_million", "ours");
  line.add("n", n).add("call_ms", static_cast<double>(call_ns) / 1e6);
  line.add("callbacks_ms", static_cast<double>(all_ns) / 1e6);
  add_latencies(line, "other_", std::move(busy));
  add_latencies(line, "idle_", std::move(idle));
  line.print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv).count("n", 1'000'000));
  _exit(0);
}
