// Calls of the C library that touch memory which threads share, take the time or wait. They are
// found here first, also by the other libraries.

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>

#include <cstdint>
#include <new>

#include "coherence/Machine.h"
#include "coherence/Real.h"

namespace coherence {
namespace {

constexpr int64_t kNsPerSec = 1'000'000'000;
constexpr int64_t kClockNs = 20;

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  if (function == nullptr) __builtin_trap();
}

Real find_all() {
  Real real;
  find(real.create, "pthread_create");
  find(real.join, "pthread_join");
  find(real.lock, "pthread_mutex_lock");
  find(real.try_lock, "pthread_mutex_trylock");
  find(real.unlock, "pthread_mutex_unlock");
  find(real.clock_gettime, "clock_gettime");
  find(real.nanosleep, "nanosleep");
  find(real.epoll_wait, "epoll_wait");
  find(real.timerfd_settime, "timerfd_settime");
  find(real.write, "write");
  find(real.sched_yield, "sched_yield");
  return real;
}

int64_t in_ns(const timespec& time) {
  return time.tv_sec > INT32_MAX * int64_t{2} ? kNever : time.tv_sec * kNsPerSec + time.tv_nsec;
}

int64_t plus(int64_t a, int64_t b) {
  return b > kNever - a ? kNever : a + b;
}

// What the real clock shows when the machine's shows zero.
int64_t offset_of(clockid_t clock) {
  timespec real;
  timespec monotonic;
  Real::functions().clock_gettime(clock, &real);
  Real::functions().clock_gettime(CLOCK_MONOTONIC, &monotonic);
  return in_ns(real) - in_ns(monotonic);
}

int64_t deadline_on(clockid_t clock, const timespec& time) {
  const int64_t at_ns = in_ns(time);
  if (at_ns == kNever || clock == CLOCK_MONOTONIC) return at_ns;
  static const int64_t real_time = offset_of(CLOCK_REALTIME);
  return at_ns - real_time;
}

int lock(pthread_mutex_t* mutex, uintptr_t pc) {
  Machine& machine = Machine::the();
  for (;;) {
    machine.access(mutex, 1, Access::kReadModifyWrite, pc);
    const int result = Real::functions().try_lock(mutex);
    if (result == 0) machine.locked(mutex, pc);
    if (result != EBUSY) return result;
    if (!Machine::takes_part()) return Real::functions().lock(mutex);
    machine.wait(mutex, kNever);
  }
}

int unlock(pthread_mutex_t* mutex, uintptr_t pc) {
  Machine& machine = Machine::the();
  machine.access(mutex, 1, Access::kReadModifyWrite, pc);
  machine.unlocks(mutex);
  const int result = Real::functions().unlock(mutex);
  machine.wake(mutex, false);
  return result;
}

int wait(pthread_cond_t* condition, pthread_mutex_t* mutex, int64_t deadline_ns, uintptr_t pc) {
  Machine& machine = Machine::the();
  // It counts the waiter and joins a group.
  machine.access(condition, 1, Access::kReadModifyWrite, pc);
  machine.access(condition, 1, Access::kReadModifyWrite, pc);
  unlock(mutex, pc);
  const bool woken = machine.wait(condition, deadline_ns);
  lock(mutex, pc);
  return woken ? 0 : ETIMEDOUT;
}

int notify(pthread_cond_t* condition, bool all, uintptr_t pc) {
  Machine& machine = Machine::the();
  machine.access(condition, 1, Access::kRead, pc);
  if (machine.wake(condition, all)) {
    machine.access(condition, 1, Access::kReadModifyWrite, pc);
    machine.access(condition, 1, Access::kReadModifyWrite, pc);
  }
  return 0;
}

int sleep_for(int64_t ns) {
  const int64_t deadline_ns = plus(Machine::the().now_ns(), ns);
  static const char nothing = 0;
  Machine::the().wait(&nothing, deadline_ns);
  return 0;
}

// A thread that ends, ends for the machine after its last destructor. Destructors of keys run up to
// PTHREAD_DESTRUCTOR_ITERATIONS times, and this one ends it in the last.
struct Start {
  void* (*body)(void*);
  void* argument;
  Thread* thread;
  int rounds = 0;
};

pthread_key_t end_key;

void at_end(void* value) {
  auto* const start = static_cast<Start*>(value);
  if (++start->rounds < 4) {
    ::pthread_setspecific(end_key, start);
  } else {
    Machine::the().end();
  }
}

void* start_thread(void* value) {
  auto* const start = static_cast<Start*>(value);
  ::pthread_setspecific(end_key, start);
  Machine::the().begin(start->thread);
  return start->body(start->argument);
}

struct Joinable {
  pthread_t id;
  Thread* thread;
};
Joinable joinables[kMaxThreads];

uintptr_t caller(void* address) {
  return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

const Real& Real::functions() {
  static const Real real = find_all();
  return real;
}

}  // namespace coherence

using coherence::Access;
using coherence::Machine;
using coherence::Real;

#define WF_CALLER coherence::caller(__builtin_return_address(0))

extern "C" {

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  static const int key_made = ::pthread_key_create(&coherence::end_key, &coherence::at_end);
  (void)key_made;
  Machine::the().spend(coherence::kStartNs);
  auto* const start = new coherence::Start{body, argument, Machine::the().create()};
  const int result = Real::functions().create(id, attributes, &coherence::start_thread, start);
  if (result != 0) __builtin_trap();  // the machine has that thread already
  for (coherence::Joinable& joinable : coherence::joinables) {
    if (joinable.thread == nullptr) {
      joinable = {*id, start->thread};
      break;
    }
  }
  return result;
}

int pthread_join(pthread_t id, void** value) {
  for (coherence::Joinable& joinable : coherence::joinables) {
    if (joinable.thread == nullptr || ::pthread_equal(joinable.id, id) == 0) continue;
    while (Machine::takes_part() && !Machine::has_ended(joinable.thread))
      Machine::the().wait(joinable.thread, coherence::kNever);
    joinable.thread = nullptr;
    break;
  }
  return Real::functions().join(id, value);
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  return coherence::lock(mutex, WF_CALLER);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  Machine::the().access(mutex, 1, Access::kReadModifyWrite, WF_CALLER);
  const int result = Real::functions().try_lock(mutex);
  if (result == 0) Machine::the().locked(mutex, WF_CALLER);
  if (result == EBUSY) Machine::the().spend(coherence::kPauseNs);
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  return coherence::unlock(mutex, WF_CALLER);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return coherence::wait(condition, mutex, coherence::kNever, WF_CALLER);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  return coherence::wait(condition, mutex, coherence::deadline_on(CLOCK_REALTIME, *deadline),
                         WF_CALLER);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  return coherence::wait(condition, mutex, coherence::deadline_on(clock, *deadline), WF_CALLER);
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  return coherence::notify(condition, false, WF_CALLER);
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  return coherence::notify(condition, true, WF_CALLER);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME) {
    return Real::functions().clock_gettime(clock, time);
  }
  Machine::the().spend(coherence::kClockNs);
  int64_t now_ns = Machine::the().now_ns();
  if (clock == CLOCK_REALTIME) {
    static const int64_t offset = coherence::offset_of(CLOCK_REALTIME);
    now_ns += offset;
  }
  time->tv_sec = now_ns / coherence::kNsPerSec;
  time->tv_nsec = now_ns % coherence::kNsPerSec;
  return 0;
}

int nanosleep(const timespec* time, timespec*) {
  return coherence::sleep_for(coherence::in_ns(*time));
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec*) {
  if ((flags & TIMER_ABSTIME) == 0) return coherence::sleep_for(coherence::in_ns(*time));
  return coherence::sleep_for(coherence::deadline_on(clock, *time) - Machine::the().now_ns());
}

int usleep(useconds_t microseconds) {
  return coherence::sleep_for(int64_t{microseconds} * 1000);
}

int sched_yield() noexcept {
  Machine::the().yield(coherence::kSystemCallNs);
  return 0;
}

int epoll_wait(int epoll_fd, epoll_event* events, int most, int timeout_ms) {
  Machine& machine = Machine::the();
  const int64_t deadline_ns =
      timeout_ms < 0 ? coherence::kNever : machine.now_ns() + timeout_ms * int64_t{1'000'000};
  for (;;) {
    const int count = Real::functions().epoll_wait(epoll_fd, events, most, 0);
    if (count != 0 || timeout_ms == 0 || !Machine::takes_part()) return count;
    if (!machine.wait_for_events(epoll_fd, deadline_ns)) return 0;
  }
}

int timerfd_settime(int fd, int flags, const itimerspec* when, itimerspec* old) noexcept {
  const int64_t at_ns = coherence::in_ns(when->it_value);
  if ((flags & TFD_TIMER_ABSTIME) == 0 || when->it_interval.tv_sec != 0 ||
      when->it_interval.tv_nsec != 0) {
    return Real::functions().timerfd_settime(fd, flags, when, old);
  }
  const itimerspec never = {};
  const int result = Real::functions().timerfd_settime(fd, 0, &never, old);
  Machine::the().arm(fd, at_ns == 0 ? coherence::kNever : at_ns);
  return result;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  const ssize_t result = Real::functions().write(fd, bytes, size);
  if (fd > 2 && Machine::takes_part()) {
    const int error = errno;
    Machine::the().look();
    errno = error;
  }
  return result;
}

}  // extern "C"
