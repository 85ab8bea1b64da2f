#include "coherence/Machine.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <new>

#include "coherence/Real.h"

namespace coherence {

namespace {

enum class State : uint8_t { kRunnable, kWaiting, kPolling, kAway, kEnded };

constexpr int kNobody = -2;
constexpr int64_t kRealNsPerLook = 2'000'000;
constexpr int kLooksUntilAway = 25;

// Guards what the threads' states are. Not a std::mutex, because those are interposed.
std::atomic<bool> locked{false};

class Lock {
 public:
  Lock() {
    while (locked.exchange(true, std::memory_order_acquire))
      ::syscall(SYS_sched_yield);
  }
  ~Lock() { locked.store(false, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

}  // namespace

struct Thread {
  int number = 0;
  State state = State::kRunnable;
  bool timed_out = false;
  int64_t clock_ns = 0;
  int64_t limit_ns = 0;       // another thread may be behind when the clock has passed this
  int64_t held_until_ns = 0;  // nobody else runs before
  const void* object = nullptr;
  int epoll_fd = -1;
  int64_t deadline_ns = kNever;
  std::atomic<int> go{0};
};

namespace {

thread_local Thread* current = nullptr;

// Where the functions were called that have not returned. Deeper ones count as the last.
constexpr int kDeepest = 255;
thread_local uintptr_t calls[kDeepest + 1];
thread_local int depth = 0;

void sleep_until_go(Thread* thread) {
  while (thread->go.exchange(0, std::memory_order_acquire) == 0)
    ::syscall(SYS_futex, &thread->go, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
}

void let_go(Thread* thread) {
  thread->go.store(1, std::memory_order_release);
  ::syscall(SYS_futex, &thread->go, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool is_readable(int fd, int real_ms) {
  struct pollfd entry = {fd, POLLIN, 0};
  return ::poll(&entry, 1, real_ms) > 0;
}

}  // namespace

Machine& Machine::the() {
  alignas(Machine) static char memory[sizeof(Machine)];
  static Machine* const machine = new (memory) Machine;
  return *machine;
}

Machine::Machine() {
  timespec now;
  Real::functions().clock_gettime(CLOCK_MONOTONIC, &now);
  told_ns_ = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  // One processor: to pass the turn to another one takes longer.
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(::sched_getcpu()), &set);
  ::sched_setaffinity(0, sizeof set, &set);
  pthread_t watcher;
  if (Real::functions().create(&watcher, nullptr, &Machine::watch, this) != 0) std::abort();
}

uint64_t Machine::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

int Machine::threads() {
  return count_.load(std::memory_order_acquire);
}

bool Machine::takes_part() {
  return current == nullptr || current->state != State::kEnded;
}

bool Machine::has_ended(const Thread* thread) {
  return thread->state == State::kEnded;
}

Thread* Machine::create() {
  auto* const thread = new Thread;
  const Lock lock;
  thread->number = count_.load(std::memory_order_relaxed);
  if (thread->number >= kMaxThreads) std::abort();
  thread->clock_ns = current != nullptr ? current->clock_ns + kStartNs : told_ns_;
  if (current != nullptr) current->limit_ns = std::min(current->limit_ns, thread->clock_ns);
  threads_[thread->number] = thread;
  count_.store(thread->number + 1, std::memory_order_release);
  return thread;
}

void Machine::begin(Thread* thread) {
  current = thread;
  sleep_until_go(thread);
}

void Machine::end() {
  Thread* const thread = self();
  wake(thread, true);
  const Lock lock;
  thread->state = State::kEnded;
  pass_turn(next_thread());
}

Thread* Machine::self() {
  if (current == nullptr) {
    current = create();
    // A thread that was not created by us has no turn yet.
    current->state = State::kAway;
  }
  if (turn_.load(std::memory_order_relaxed) >> 1 != current->number) take_turn(current);
  return current;
}

// The thread has lost its turn, or never had one.
void Machine::take_turn(Thread* thread) {
  {
    const Lock lock;
    if (thread->state == State::kEnded) return;
    thread->clock_ns = std::max(thread->clock_ns, told_ns_);
    thread->state = State::kRunnable;
    if (turn_.load(std::memory_order_relaxed) == kNobody) {
      turn_.store(thread->number * 2, std::memory_order_release);
      set_limit(thread);
      return;
    }
  }
  sleep_until_go(thread);
}

void Machine::set_limit(Thread* thread) {
  int64_t next_ns = kNever;
  const int count = threads();
  for (int i = 0; i < count; ++i) {
    const Thread* const other = threads_[i];
    if (other == thread) continue;
    if (other->state == State::kRunnable) {
      next_ns = std::min(next_ns, other->clock_ns);
    } else if (other->state == State::kWaiting || other->state == State::kPolling) {
      next_ns = std::min(next_ns, other->deadline_ns);
    }
  }
  for (const Timer& timer : timers_)
    next_ns = std::min(next_ns, timer.deadline_ns);
  thread->limit_ns = next_ns;
}

// The runnable thread that is behind, after all waits have ended whose time is earlier. Null if all
// wait without a deadline. Threads that are in the kernel do not count.
Thread* Machine::next_thread() {
  for (;;) {
    Thread* best = nullptr;
    int64_t best_ns = kNever;
    int timer = -1;
    const int count = threads();
    const auto first = static_cast<int>(random() % static_cast<uint64_t>(std::max(count, 1)));
    for (int k = 0; k < count; ++k) {
      Thread* const other = threads_[(first + k) % count];
      const int64_t at_ns = other->state == State::kRunnable ? other->clock_ns
                            : other->state == State::kWaiting || other->state == State::kPolling
                                ? other->deadline_ns
                                : kNever;
      if (at_ns < best_ns) {
        best_ns = at_ns;
        best = other;
      }
    }
    for (int i = 0; i < static_cast<int>(std::size(timers_)); ++i) {
      if (timers_[i].deadline_ns < best_ns) {
        best_ns = timers_[i].deadline_ns;
        timer = i;
      }
    }
    if (timer >= 0) {
      expire_timer(timer);
    } else if (best == nullptr || best->state == State::kRunnable) {
      return best;
    } else {
      best->timed_out = true;
      make_runnable(best, best->deadline_ns);
    }
  }
}

void Machine::expire_timer(int index) {
  Timer& timer = timers_[index];
  const int64_t at_ns = timer.deadline_ns;
  timer.deadline_ns = kNever;
  struct itimerspec when = {};
  when.it_value.tv_nsec = 1;
  Real::functions().timerfd_settime(timer.fd, 0, &when, nullptr);
  is_readable(timer.fd, 1000);
  const int count = threads();
  for (int i = 0; i < count; ++i) {
    Thread* const other = threads_[i];
    if (other->state == State::kPolling && is_readable(other->epoll_fd, 0)) {
      make_runnable(other, at_ns + kWakeNs);
    }
  }
}

void Machine::make_runnable(Thread* thread, int64_t now_ns) {
  thread->state = State::kRunnable;
  thread->clock_ns = std::max(thread->clock_ns, now_ns) + static_cast<int64_t>(random() & 63);
  if (current != nullptr) current->limit_ns = std::min(current->limit_ns, thread->clock_ns);
}

// To be called with the lock held.
void Machine::pass_turn(Thread* thread) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (thread == nullptr) {
    turn_.store(kNobody, std::memory_order_release);
    return;
  }
  set_limit(thread);
  turn_.store(thread->number * 2, std::memory_order_release);
  if (thread != current) let_go(thread);
}

void Machine::switch_from(Thread* thread) {
  {
    const Lock lock;
    // It may have lost its turn meanwhile.
    if (turn_.load(std::memory_order_relaxed) >> 1 != thread->number) return;
    Thread* const next = next_thread();
    pass_turn(next);
    if (next == thread) return;
  }
  sleep_until_go(thread);
}

void Machine::enter(uintptr_t pc) {
  if (++depth <= kDeepest) calls[depth] = pc;
}

void Machine::leave() {
  if (depth > 0) --depth;
}

void Machine::access(const void* address, size_t size, Access kind, uintptr_t pc) {
  if (!takes_part()) return;
  Thread* const thread = self();
  if (thread->clock_ns - (kind == Access::kReadModifyWrite ? 0 : kAheadNs) > thread->limit_ns &&
      thread->clock_ns > thread->held_until_ns) {
    switch_from(thread);
  }
  int turn = thread->number * 2;
  while (!turn_.compare_exchange_strong(turn, thread->number * 2 + 1, std::memory_order_acquire)) {
    take_turn(thread);
    turn = thread->number * 2;
  }
  progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const uintptr_t first = reinterpret_cast<uintptr_t>(address) / kLineBytes;
  const uintptr_t last =
      (reinterpret_cast<uintptr_t>(address) + std::max<size_t>(size, 1) - 1) / kLineBytes;
  for (uintptr_t number = first; number <= last; ++number) {
    const Lines::Outcome outcome =
        lines_.access(thread->number, number, kind, pc, calls[std::min(depth, kDeepest)]);
    if (outcome.transfer) {
      const int64_t begin_ns = std::max(thread->clock_ns, outcome.line->free_at_ns);
      thread->clock_ns = begin_ns + transfer_ns_ + static_cast<int64_t>(random() & 7);
      outcome.line->free_at_ns = thread->clock_ns;
      if (kind != Access::kRead) thread->held_until_ns = thread->clock_ns + hold_ns_;
    }
    thread->clock_ns += kind == Access::kReadModifyWrite ? kReadModifyWriteNs : kAccessNs;
  }
  turn_.store(thread->number * 2, std::memory_order_release);
}

int64_t Machine::now_ns() {
  if (!takes_part()) return told_ns_;
  told_ns_ = std::max(told_ns_, self()->clock_ns);
  return told_ns_;
}

void Machine::spend(int64_t ns) {
  if (takes_part()) self()->clock_ns += ns;
}

void Machine::yield(int64_t ns) {
  if (!takes_part()) return;
  Thread* const thread = self();
  thread->clock_ns += ns;
  switch_from(thread);
}

bool Machine::wait(const void* object, int64_t deadline_ns) {
  Thread* const thread = self();
  {
    const Lock lock;
    thread->clock_ns += kSystemCallNs;
    thread->object = object;
    thread->deadline_ns = deadline_ns;
    thread->timed_out = false;
    thread->state = State::kWaiting;
  }
  switch_from(thread);
  thread->object = nullptr;
  thread->deadline_ns = kNever;
  return !thread->timed_out;
}

bool Machine::wake(const void* object, bool all) {
  Thread* const thread = takes_part() ? self() : nullptr;
  const Lock lock;
  const int64_t now_ns = thread != nullptr ? thread->clock_ns : told_ns_;
  bool found = false;
  const int count = threads();
  for (;;) {
    // The one that waits longest.
    Thread* oldest = nullptr;
    for (int i = 0; i < count; ++i) {
      Thread* const other = threads_[i];
      if (other->state == State::kWaiting && other->object == object &&
          (oldest == nullptr || other->clock_ns < oldest->clock_ns)) {
        oldest = other;
      }
    }
    if (oldest == nullptr) break;
    found = true;
    make_runnable(oldest, now_ns + kSystemCallNs + kWakeNs);
    if (!all) break;
  }
  if (found && thread != nullptr) thread->clock_ns += kSystemCallNs;
  return found;
}

bool Machine::wait_for_events(int epoll_fd, int64_t deadline_ns) {
  Thread* const thread = self();
  {
    const Lock lock;
    thread->clock_ns += kSystemCallNs;
    if (is_readable(epoll_fd, 0)) return true;
    thread->epoll_fd = epoll_fd;
    thread->deadline_ns = deadline_ns;
    thread->timed_out = false;
    thread->state = State::kPolling;
  }
  switch_from(thread);
  thread->deadline_ns = kNever;
  return !thread->timed_out;
}

void Machine::look() {
  Thread* const thread = self();
  const Lock lock;
  thread->clock_ns += kSystemCallNs;
  const int count = threads();
  for (int i = 0; i < count; ++i) {
    Thread* const other = threads_[i];
    if (other->state == State::kPolling && is_readable(other->epoll_fd, 0)) {
      make_runnable(other, thread->clock_ns + kWakeNs);
    }
  }
}

void Machine::arm(int timer_fd, int64_t deadline_ns) {
  Thread* const thread = self();
  const Lock lock;
  thread->clock_ns += kSystemCallNs;
  const auto is = [timer_fd](const Timer& timer) { return timer.fd == timer_fd; };
  Timer* timer = std::find_if(std::begin(timers_), std::end(timers_), is);
  if (timer == std::end(timers_)) {
    timer = std::find_if(std::begin(timers_), std::end(timers_),
                         [](const Timer& other) { return other.fd < 0; });
    if (timer == std::end(timers_)) std::abort();
    timer->fd = timer_fd;
  }
  timer->deadline_ns = deadline_ns;
  thread->limit_ns = std::min(thread->limit_ns, deadline_ns);
}

void Machine::locked(const void* mutex, uintptr_t pc) {
  if (!takes_part()) return;
  HeldMutex& held = mutexes_[(reinterpret_cast<uintptr_t>(mutex) / 8 * 0x9e3779b97f4a7c15U) >> 52];
  if (held.mutex == nullptr) held.mutex = mutex;
  if (held.mutex != mutex) return;
  held.pc = pc;
  held.caller = calls[std::min(depth, kDeepest)];
  held.since_ns = self()->clock_ns;
}

void Machine::unlocks(const void* mutex) {
  if (!takes_part()) return;
  HeldMutex& held = mutexes_[(reinterpret_cast<uintptr_t>(mutex) / 8 * 0x9e3779b97f4a7c15U) >> 52];
  if (held.mutex == mutex) held.held_ns += self()->clock_ns - held.since_ns;
}

HeldMutex Machine::longest_held() const {
  return *std::max_element(
      std::begin(mutexes_), std::end(mutexes_),
      [](const HeldMutex& a, const HeldMutex& b) { return a.held_ns < b.held_ns; });
}

void Machine::begin_counting() {
  (void)self();
  for (HeldMutex& held : mutexes_)
    held.held_ns = 0;
  lines_.clear_counts();
}

void* Machine::watch(void* machine) {
  for (;;) {
    const timespec pause = {0, kRealNsPerLook};
    Real::functions().nanosleep(&pause, nullptr);
    static_cast<Machine*>(machine)->look_after_turn();
  }
}

// Gives the turn to another thread if its holder does not proceed, or to anybody if it is nobody's.
void Machine::look_after_turn() {
  static uint64_t seen = 0;
  static int looks = 0;
  const uint64_t progress = progress_.load(std::memory_order_relaxed);
  looks = progress == seen ? looks + 1 : 0;
  seen = progress;
  const Lock lock;
  int turn = turn_.load(std::memory_order_relaxed);
  if (turn != kNobody) {
    if (looks < kLooksUntilAway || (turn & 1) != 0) return;
    if (!turn_.compare_exchange_strong(turn, kNobody)) return;
    Thread* const thread = threads_[turn >> 1];
    if (thread->state == State::kRunnable) thread->state = State::kAway;
    looks = 0;
  }
  pass_turn(next_thread());
}

}  // namespace coherence
