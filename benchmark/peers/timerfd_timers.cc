// The lateness row over nothing but the kernel: a std::priority_queue, one timerfd and one epoll,
// in one thread that runs the callbacks itself. Links: threads.
//
// It is the yardstick: what the machine can do when nothing lies between the clock and the
// callback.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <queue>
#include <thread>

#include "common/PeerTimers.h"

namespace bench {
namespace {

class TimerfdTimers {
 public:
  static constexpr const char* kPeer = "timerfd";

  TimerfdTimers() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wakeup_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    clock_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_ < 0 || wakeup_ < 0 || clock_ < 0) fail("no epoll, eventfd or timerfd");
    watch(wakeup_);
    watch(clock_);
    thread_ = std::thread([this] { run(); });
  }

  void start(int64_t delay_ns, Completion completion) {
    const int64_t deadline_ns = now_ns() + delay_ns;
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = posted_.empty();
      posted_.push_back({deadline_ns, completion});
    }
    if (first) wake();
  }

  void settle() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (posted_.empty()) return;
      }
      sleep_ns(kNsPerMs);
    }
  }

 private:
  struct Due {
    int64_t deadline_ns;
    Completion completion;
    bool operator<(const Due& other) const { return deadline_ns > other.deadline_ns; }
  };

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void wake() {
    const uint64_t one = 1;
    if (write(wakeup_, &one, sizeof one) < 0) fail("eventfd");
  }

  void run() {
    epoll_event events[2];
    while (true) {
      const int ready = epoll_wait(epoll_, events, 2, -1);
      for (int i = 0; i < ready; ++i) {
        uint64_t ignored;
        [[maybe_unused]] const ssize_t n = read(events[i].data.fd, &ignored, sizeof ignored);
      }
      take_posted();
      run_due();
      arm();
    }
  }

  void take_posted() {
    {
      const std::lock_guard lock(mutex_);
      batch_.swap(posted_);
    }
    for (const Due& due : batch_)
      queue_.push(due);
    batch_.clear();
  }

  void run_due() {
    int64_t now = now_ns();
    while (!queue_.empty() && queue_.top().deadline_ns <= now) {
      const Completion completion = queue_.top().completion;
      queue_.pop();
      completion.run(completion.context, false);
      if (queue_.empty() || queue_.top().deadline_ns > now) now = now_ns();
    }
  }

  void arm() {
    if (queue_.empty() || queue_.top().deadline_ns == armed_ns_) return;
    armed_ns_ = queue_.top().deadline_ns;
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(armed_ns_ / kNsPerSecond);
    spec.it_value.tv_nsec = static_cast<long>(armed_ns_ % kNsPerSecond);
    timerfd_settime(clock_, TFD_TIMER_ABSTIME, &spec, nullptr);
  }

  int epoll_ = -1;
  int wakeup_ = -1;
  int clock_ = -1;
  int64_t armed_ns_ = 0;
  std::priority_queue<Due> queue_;
  std::mutex mutex_;
  std::vector<Due> posted_;
  std::vector<Due> batch_;
  std::thread thread_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  static auto* timers = new bench::TimerfdTimers;
  bench::run_timer_row(*timers, argc, argv);
}
