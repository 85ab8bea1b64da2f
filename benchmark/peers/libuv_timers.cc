// The timer rows over libuv. Links: uv, threads.
//
// A uv loop is not thread-safe but for uv_async_send, so starts and cancels are posted. uv counts
// in milliseconds of the loop's own clock; deadlines are rounded up to it, which is never early.

#include <uv.h>

#include <thread>

#include "common/PeerTimers.h"

namespace bench {
namespace {

class LibuvTimers : public PostedTimers<LibuvTimers, uv_timer_t> {
 public:
  static constexpr const char* kPeer = "libuv";

  LibuvTimers() {
    owner_of_all = this;
    uv_loop_init(&loop_);
    uv_async_init(&loop_, &wakeup_, [](uv_async_t* handle) {
      static_cast<LibuvTimers*>(handle->data)->drain_batch();
    });
    wakeup_.data = this;
    thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
  }

  void wake() { uv_async_send(&wakeup_); }

  void arm(Timer* timer) {
    uv_timer_init(&loop_, &timer->handle);
    timer->handle.data = timer;
    const int64_t deadline_ms = (timer->deadline_ns + kNsPerMs - 1) / kNsPerMs;
    const auto loop_now_ms = static_cast<int64_t>(uv_now(&loop_));
    const auto delay_ms = static_cast<uint64_t>(std::max(deadline_ms - loop_now_ms, int64_t{0}));
    uv_timer_start(&timer->handle, on_expiry, delay_ms, 0);
  }

  void disarm(Timer* timer) { uv_timer_stop(&timer->handle); }

  // A handle must be closed before its memory goes, and closing ends on a later turn of the loop.
  void release(Timer* timer) {
    uv_close(reinterpret_cast<uv_handle_t*>(&timer->handle),
             [](uv_handle_t* handle) { delete static_cast<Timer*>(handle->data); });
  }

 private:
  static void on_expiry(uv_timer_t* handle) {
    owner_of_all->expired(static_cast<Timer*>(handle->data));
  }

  void drain_batch() {
    uv_update_time(&loop_);
    drain();
  }

  // One loop in the program: saves every timer a pointer to its owner.
  static inline LibuvTimers* owner_of_all = nullptr;

  uv_loop_t loop_{};
  uv_async_t wakeup_{};
  std::thread thread_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  static auto* timers = new bench::LibuvTimers;
  bench::run_timer_row(*timers, argc, argv);
}
