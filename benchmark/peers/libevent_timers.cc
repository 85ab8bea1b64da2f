// The timer rows over libevent. Links: event, event_pthreads, threads.
//
// With evthread_use_pthreads() any thread may add and activate events, so nothing is posted: a
// start is event_add, a cancel is event_active, which brings the callback forward on the loop
// thread. Both under the table's mutex, which the callback takes too: so no event is touched once
// its callback has decided, and the callback's own event_del takes back an activation that came
// while it waited.

#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/thread.h>

#include <thread>

#include "common/PeerTimers.h"

namespace bench {
namespace {

class LibeventTimers {
 public:
  using Timer = PeerTimer<event>;
  static constexpr const char* kPeer = "libevent";

  LibeventTimers() {
    owner_of_all = this;
    evthread_use_pthreads();
    // By default a delay counts from a time that the loop thread cached, and in steps of a coarse
    // clock: timers started by other threads would be milliseconds early.
    event_config* config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_NO_CACHE_TIME);
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    base_ = event_base_new_with_config(config);
    event_config_free(config);
    thread_ = std::thread([this] { event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY); });
  }

  void start(int64_t delay_ns, Completion completion) { arm(make(completion), delay_ns); }

  void start_named(const std::string& name, int64_t delay_ns, Completion completion) {
    Timer* timer = make(completion);
    const std::lock_guard lock(names_.mutex);
    names_.insert(name, timer);
    arm(timer, delay_ns);
  }

  size_t cancel(const std::string& name, size_t max) {
    const std::lock_guard lock(names_.mutex);
    return names_.remove(name, max,
                         [](Timer* timer) { event_active(&timer->handle, EV_TIMEOUT, 0); });
  }

  void settle() {}  // event_add has armed it

 private:
  Timer* make(Completion completion) {
    auto* timer = new Timer;
    timer->completion = completion;
    event_assign(&timer->handle, base_, -1, 0, on_expiry, timer);
    return timer;
  }

  // Microseconds, rounded up: libevent knows no finer delay.
  static void arm(Timer* timer, int64_t delay_ns) {
    const int64_t delay_us = (delay_ns + kNsPerUs - 1) / kNsPerUs;
    const timeval delay{static_cast<time_t>(delay_us / 1'000'000),
                        static_cast<suseconds_t>(delay_us % 1'000'000)};
    event_add(&timer->handle, &delay);
  }

  static void on_expiry(evutil_socket_t, short, void* argument) {
    owner_of_all->finish(static_cast<Timer*>(argument));
  }

  void finish(Timer* timer) {
    bool cancelled = false;
    if (timer->named) {
      const std::lock_guard lock(names_.mutex);
      cancelled = !names_.remove(timer);
    }
    const Completion completion = timer->completion;
    if (cancelled) event_del(&timer->handle);
    delete timer;
    completion.run(completion.context, cancelled);
  }

  static inline LibeventTimers* owner_of_all = nullptr;

  event_base* base_ = nullptr;
  NameTable<Timer> names_;
  std::thread thread_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  static auto* timers = new bench::LibeventTimers;
  bench::run_timer_row(*timers, argc, argv);
}
