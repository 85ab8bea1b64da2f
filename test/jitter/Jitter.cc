// A library for LD_PRELOAD that makes threads late at random: before a mutex is locked, after it is
// unlocked, and around the system calls of a loop that waits for events. A test that needs one
// thread to be faster than another fails with it, and so does code that has a race. script/jitter
// runs the tests with it.
//
// One call in WORKFLOW_JITTER_RATE (default 200) is delayed, mostly by 50 to 350 us and in one case
// of 16 by 2 to 14 ms, which is longer than what the library takes for a thread that hangs. The
// program does what it would do anyway, only later.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

uint64_t rate_from_environment() {
  const char* text = std::getenv("WORKFLOW_JITTER_RATE");
  const uint64_t rate = text ? std::strtoull(text, nullptr, 10) : 0;
  return rate > 0 ? rate : 200;
}

// The next random number of this thread. Each run and each thread has another sequence.
uint64_t random() {
  thread_local uint64_t state = 0;
  if (state == 0) {
    timespec now;
    ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    const auto thread = static_cast<uint64_t>(::syscall(SYS_gettid));
    state = (static_cast<uint64_t>(now.tv_nsec) ^ (thread * 0x9E3779B97F4A7C15)) | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 11;
}

// Keeps errno. System calls are made without the functions of libc, which sanitizers replace.
void delay_sometimes() {
  static const uint64_t rate = rate_from_environment();
  if (random() % rate != 0) return;
  const int error = errno;
  const bool long_one = random() % 16 == 0;
  const uint64_t us = long_one ? 2000 + random() % 12000 : 50 + random() % 300;
  const timespec time = {0, static_cast<long>(us * 1000)};
  ::syscall(SYS_nanosleep, &time, nullptr);
  errno = error;
}

// The function that would have been called without this library.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// Defines `name` with `parameters`, as libc declares it, with a delay before and after.
#define LATE(result, name, parameters, arguments)    \
  extern "C" result name parameters {                \
    static auto* real = next<decltype(name)>(#name); \
    delay_sometimes();                               \
    const result returned = real arguments;          \
    delay_sometimes();                               \
    return returned;                                 \
  }

LATE(ssize_t, read, (int fd, void* data, size_t size), (fd, data, size))
LATE(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size))
LATE(ssize_t, recv, (int fd, void* data, size_t size, int flags), (fd, data, size, flags))
LATE(ssize_t, send, (int fd, const void* data, size_t size, int flags), (fd, data, size, flags))
LATE(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags))
LATE(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags))
LATE(ssize_t, readv, (int fd, const iovec* pieces, int count), (fd, pieces, count))
LATE(ssize_t, writev, (int fd, const iovec* pieces, int count), (fd, pieces, count))
LATE(int, epoll_ctl, (int fd, int what, int other, epoll_event* event) noexcept,
     (fd, what, other, event))
LATE(int, epoll_wait, (int fd, epoll_event* events, int most, int ms), (fd, events, most, ms))
LATE(int, timerfd_settime, (int fd, int flags, const itimerspec* time, itimerspec* before) noexcept,
     (fd, flags, time, before))
LATE(int, shutdown, (int fd, int how) noexcept, (fd, how))
LATE(int, close, (int fd), (fd))
LATE(int, pthread_mutex_lock, (pthread_mutex_t * mutex) noexcept, (mutex))
LATE(int, pthread_mutex_unlock, (pthread_mutex_t * mutex) noexcept, (mutex))
