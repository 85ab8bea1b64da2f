#pragma once

#include <fcntl.h>
#include <workflow/WFTaskFactory.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/TimerRows.h"

// How long operations on other names wait while one thread does something long: a second thread
// creates and cancels timers of other names and times each of its calls.
//
// It runs by itself first: idle_* is what the machine alone does to it. Three threads are busy
// during the call, so on two cores the kernel may put the second one aside in the middle of an
// operation; other_own_max_us leaves that time out and shows what waiting for us costs,
// other_max_us has it all.

namespace bench {

inline void start_timer(const std::string& name, Tally& tally) {
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
inline Observed time_other_names(const std::atomic<bool>& stop) {
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

inline void add_latencies(Line& line, const std::string& prefix, Observed observed) {
  const Quantiles samples(std::move(observed.samples));
  line.add(prefix + "p50_us", static_cast<double>(samples.at(0.5)) / 1e3);
  line.add(prefix + "p99_us", static_cast<double>(samples.at(0.99)) / 1e3);
  line.add(prefix + "max_us", static_cast<double>(samples.max()) / 1e3);
  line.add(prefix + "own_max_us", static_cast<double>(observed.own_max_ns) / 1e3);
}

// Adds what others observed before the call and during it, which `call` makes; how long it took.
template <class Call>
int64_t observe_call(Line& line, Call call) {
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
  call();
  const int64_t call_ns = now_ns() - begin_ns;
  stop = true;
  observer.join();
  add_latencies(line, "other_", std::move(busy));
  add_latencies(line, "idle_", std::move(idle));
  return call_ns;
}

}  // namespace bench
