// The timer rows over standalone asio. Links: threads (header only).
//
// --way=post (peer "asio"): starts and cancels are posted to the io_context, as its documentation
// shows. --way=direct (peer "asio_direct"): different timers may be used from different threads,
// and the table's mutex serialises the uses of one, so nothing need be posted. Both are measured,
// since a user who reads closely can write the second.

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "common/PeerTimers.h"

namespace bench {
namespace {

struct AsioLoop {
  AsioLoop() : work(asio::make_work_guard(context)), thread([this] { context.run(); }) {}

  asio::io_context context{1};  // one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
};

asio::steady_timer::time_point time_point_of(int64_t deadline_ns) {
  return asio::steady_timer::time_point(std::chrono::nanoseconds(deadline_ns));
}

class AsioDirectTimers {
 public:
  using Timer = PeerTimer<std::optional<asio::steady_timer>>;
  static constexpr const char* kPeer = "asio_direct";

  void start(int64_t delay_ns, Completion completion) { wait(make(delay_ns, completion)); }

  void start_named(const std::string& name, int64_t delay_ns, Completion completion) {
    Timer* timer = make(delay_ns, completion);
    const std::lock_guard lock(names_.mutex);
    names_.insert(name, timer);
    wait(timer);
  }

  size_t cancel(const std::string& name, size_t max) {
    const std::lock_guard lock(names_.mutex);
    return names_.remove(name, max, [](Timer* timer) { timer->handle->cancel(); });
  }

  void settle() {}  // async_wait has armed it

 private:
  Timer* make(int64_t delay_ns, Completion completion) {
    auto* timer = new Timer;
    timer->completion = completion;
    timer->handle.emplace(loop_.context, time_point_of(now_ns() + delay_ns));
    return timer;
  }

  void wait(Timer* timer) {
    timer->handle->async_wait([this, timer](const asio::error_code&) { finish(timer); });
  }

  // The table decides, not the error code: an expiry may be queued already when the cancel comes.
  void finish(Timer* timer) {
    bool cancelled = false;
    if (timer->named) {
      const std::lock_guard lock(names_.mutex);
      cancelled = !names_.remove(timer);
    }
    const Completion completion = timer->completion;
    delete timer;
    completion.run(completion.context, cancelled);
  }

  NameTable<Timer> names_;
  AsioLoop loop_;
};

class AsioPostedTimers {
 public:
  using Timer = PeerTimer<std::optional<asio::steady_timer>>;
  static constexpr const char* kPeer = "asio";

  void start(int64_t delay_ns, Completion completion) {
    Timer* timer = make(delay_ns, completion);
    asio::post(loop_.context, [this, timer] { wait(timer); });
  }

  void start_named(const std::string& name, int64_t delay_ns, Completion completion) {
    Timer* timer = make(delay_ns, completion);
    const std::lock_guard lock(names_.mutex);
    names_.insert(name, timer);
    // Posted under the mutex: a cancel that finds the timer must be posted after its start.
    asio::post(loop_.context, [this, timer] { wait(timer); });
  }

  size_t cancel(const std::string& name, size_t max) {
    const std::lock_guard lock(names_.mutex);
    return names_.remove(name, max, [this](Timer* timer) {
      asio::post(loop_.context, [timer] {
        if (timer->fired) {
          finish(timer, true);
        } else {
          timer->handle->cancel();
          timer->fired = true;  // whichever of the two runs second reports
        }
      });
    });
  }

  void settle() {
    Gate gate;
    asio::post(loop_.context, [&gate] { gate.open(); });
    gate.wait();
  }

 private:
  Timer* make(int64_t delay_ns, Completion completion) {
    auto* timer = new Timer;
    timer->completion = completion;
    timer->handle.emplace(loop_.context, time_point_of(now_ns() + delay_ns));
    return timer;
  }

  void wait(Timer* timer) {
    timer->handle->async_wait([this, timer](const asio::error_code&) { expired(timer); });
  }

  void expired(Timer* timer) {
    bool cancelled = false;
    if (timer->named) {
      const std::lock_guard lock(names_.mutex);
      cancelled = !names_.remove(timer);
    }
    if (cancelled && !timer->fired) {
      timer->fired = true;  // expired while its cancel was on its way, which then reports
      return;
    }
    finish(timer, cancelled);
  }

  static void finish(Timer* timer, bool cancelled) {
    const Completion completion = timer->completion;
    delete timer;
    completion.run(completion.context, cancelled);
  }

  NameTable<Timer> names_;
  AsioLoop loop_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (bench::Options(argc, argv).text("way", "post") == "direct") {
    static auto* timers = new bench::AsioDirectTimers;
    bench::run_timer_row(*timers, argc, argv);
  }
  static auto* timers = new bench::AsioPostedTimers;
  bench::run_timer_row(*timers, argc, argv);
}
