#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "support/RealFunction.h"

// The program's clocks, shifted as if they had been set or the system suspended, and the
// descriptors that the kernel would signal then, signalled by hand. Included by the one source file
// of a program: its definitions stand before those of the C library.

namespace shifted_clocks {

inline std::atomic<int64_t> wall_shift_ns{0};
inline std::atomic<int64_t> boottime_shift_ns{0};

// What is added to the shift of the wall clock, if it is not null.
inline std::atomic<int64_t (*)()> further_wall_shift_ns{nullptr};

// Whether what watches the wall clock is an eventfd from now on, for signal().
inline std::atomic<bool> signalled_by_hand{true};
// The errors with which a watch cannot be made, and cannot be added to an epoll set. 0 means that
// this succeeds.
inline std::atomic<int> watch_error{0};
inline std::atomic<int> epoll_error{0};

// The watches that were made since reset(), a few at most, and whether the last of them is
// signalled when the clock is set.
inline std::array<std::atomic<int>, 8> watch_fds{};
inline std::atomic<size_t> watches{0};
inline std::atomic<bool> watches_setting{false};

inline bool is_watch(int fd) {
  return std::any_of(watch_fds.begin(), watch_fds.end(),
                     [fd](const std::atomic<int>& watch) { return watch == fd; });
}

// Removes all shifts. Called when every watch has closed its descriptors.
inline void reset() {
  wall_shift_ns = 0;
  boottime_shift_ns = 0;
  signalled_by_hand = true;
  watch_error = 0;
  epoll_error = 0;
  watches = 0;
  std::fill(watch_fds.begin(), watch_fds.end(), -1);
}

// Signals the watches as the kernel does after the wall clock was set, and when the system resumes.
inline void signal() {
  const uint64_t one = 1;
  for (const std::atomic<int>& watch : watch_fds) {
    if (watch >= 0) {
      [[maybe_unused]] const ssize_t n = ::write(watch, &one, sizeof one);
    }
  }
}

}  // namespace shifted_clocks

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) noexcept {
  static const auto call =
      test_support::real_function<int(clockid_t, struct timespec*)>("clock_gettime");
  const int result = call(clock, now);
  int64_t shift_ns = 0;
  if (clock == CLOCK_REALTIME) {
    int64_t (*const further_ns)() = shifted_clocks::further_wall_shift_ns;
    shift_ns = shifted_clocks::wall_shift_ns + (further_ns == nullptr ? 0 : further_ns());
  } else if (clock == CLOCK_BOOTTIME) {
    shift_ns = shifted_clocks::boottime_shift_ns;
  }
  if (shift_ns != 0) {
    constexpr int64_t ns_per_sec = 1'000'000'000;
    const int64_t shifted_ns = now->tv_sec * ns_per_sec + now->tv_nsec + shift_ns;
    now->tv_sec = shifted_ns / ns_per_sec;
    now->tv_nsec = shifted_ns % ns_per_sec;
  }
  return result;
}

int timerfd_create(int clock, int flags) noexcept {
  static const auto call = test_support::real_function<int(int, int)>("timerfd_create");
  if (clock != CLOCK_REALTIME) return call(clock, flags);
  if (shifted_clocks::watch_error != 0) {
    errno = shifted_clocks::watch_error;
    return -1;
  }
  const int fd = shifted_clocks::signalled_by_hand ? ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
                                                   : call(clock, flags);
  shifted_clocks::watch_fds.at(shifted_clocks::watches++) = fd;
  return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec* value,
                    struct itimerspec* before) noexcept {
  static const auto call =
      test_support::real_function<int(int, int, const struct itimerspec*, struct itimerspec*)>(
          "timerfd_settime");
  if (shifted_clocks::is_watch(fd)) {
    shifted_clocks::watches_setting =
        (flags & TFD_TIMER_CANCEL_ON_SET) != 0 && (flags & TFD_TIMER_ABSTIME) != 0;
    if (shifted_clocks::signalled_by_hand) return 0;
  }
  return call(fd, flags, value, before);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) noexcept {
  static const auto call =
      test_support::real_function<int(int, int, int, struct epoll_event*)>("epoll_ctl");
  if (shifted_clocks::epoll_error != 0 && shifted_clocks::is_watch(fd)) {
    errno = shifted_clocks::epoll_error;
    return -1;
  }
  return call(epoll, operation, fd, event);
}

}  // extern "C"
