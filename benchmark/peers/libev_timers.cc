// The timer rows over libev. Links: ev, threads.
//
// An ev loop is not thread-safe but for ev_async_send, so starts and cancels are posted.

#include <ev.h>

#include <thread>

#include "common/PeerTimers.h"

namespace bench {
namespace {

class LibevTimers : public PostedTimers<LibevTimers, ev_timer> {
 public:
  static constexpr const char* kPeer = "libev";

  LibevTimers() : loop_(ev_loop_new(EVFLAG_AUTO)) {
    owner_of_all = this;
    ev_async_init(&wakeup_, on_wakeup);
    ev_async_start(loop_, &wakeup_);
    thread_ = std::thread([this] { ev_run(loop_, 0); });
  }

  void wake() { ev_async_send(loop_, &wakeup_); }

  void arm(Timer* timer) {
    const int64_t delay_ns = std::max(timer->deadline_ns - loop_now_ns_, int64_t{0});
    ev_timer_init(&timer->handle, on_expiry, static_cast<double>(delay_ns) / 1e9, 0.0);
    timer->handle.data = timer;
    ev_timer_start(loop_, &timer->handle);
  }

  void disarm(Timer* timer) { ev_timer_stop(loop_, &timer->handle); }

  void release(Timer* timer) { delete timer; }

 private:
  static void on_expiry(struct ev_loop*, ev_timer* handle, int) {
    owner_of_all->expired(static_cast<Timer*>(handle->data));
  }

  static void on_wakeup(struct ev_loop*, ev_async*, int) { owner_of_all->drain_batch(); }

  // ev_timer counts from the loop's cached time. Ours is read first, so that no timer is early.
  void drain_batch() {
    loop_now_ns_ = now_ns();
    ev_now_update(loop_);
    drain();
  }

  // One loop in the program: saves every timer a pointer to its owner.
  static inline LibevTimers* owner_of_all = nullptr;

  struct ev_loop* loop_;
  ev_async wakeup_{};
  int64_t loop_now_ns_ = 0;  // loop thread only
  std::thread thread_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  static auto* timers = new bench::LibevTimers;
  bench::run_timer_row(*timers, argc, argv);
}
