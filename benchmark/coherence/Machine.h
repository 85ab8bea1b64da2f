#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "coherence/Lines.h"

namespace coherence {

// What the machine's time consists of. Only the order of things depends on it, and the rates that
// are reported, not which accesses are counted.
inline constexpr int64_t kAccessNs = 1;  // and what a core computes in between
inline constexpr int64_t kReadModifyWriteNs = 6;
inline constexpr int64_t kSystemCallNs = 500;
inline constexpr int64_t kWakeNs = 5'000;  // from the call that wakes a thread until it runs
inline constexpr int64_t kPauseNs = 40;    // after an attempt to lock that has failed
inline constexpr int64_t kStartNs = 10'000;
// A thread that only reads and writes may be so far ahead of the others.
inline constexpr int64_t kAheadNs = 100;
inline constexpr int64_t kNever = INT64_MAX;

struct Thread;

// A machine with a core for each thread, in time of its own.
//
// One thread runs at a time: the one that holds the turn. Each has a clock, which moves with each
// of its accesses, and further if the line has to come from another core; transfers of one line
// happen one after the other. The turn goes to the thread whose clock is behind the others, before
// each atomic operation, and now and then otherwise. So the threads proceed as if side by side. A
// random number, of the seed, is added to the clocks, so that they do not march in step.
//
// A thread that waits, in one of the calls that are interposed, waits for the machine's time, and
// when all wait the time moves on at once. A thread that makes no access for some real time is
// taken to wait in the kernel and loses its turn until its next access. So nothing that waits in
// another way hangs, though its time is not that of the machine.
//
// Threads that were not made by the interposed pthread_create() join with their first access.
class Machine {
 public:
  // The only one. Never destroyed.
  static Machine& the();

  // To be called by an instruction before it touches this memory.
  void access(const void* address, size_t size, Access kind, uintptr_t pc);

  // The calling thread enters a function that is called at `pc`, or leaves it.
  static void enter(uintptr_t pc);
  static void leave();

  // Time of the calling thread; never less than what any thread was told before.
  int64_t now_ns();
  // The calling thread computes, or is in the kernel, for that long.
  void spend(int64_t ns);
  // The same, and then others may run.
  void yield(int64_t ns);

  // Waits, until wake() is called with that object or until the deadline. Returns false if the
  // deadline was reached.
  bool wait(const void* object, int64_t deadline_ns);
  // Wakes one of the threads that wait for the object, or all. Returns whether there was one.
  bool wake(const void* object, bool all);
  // Waits like wait(), for a call of look() that finds something in this epoll descriptor.
  bool wait_for_events(int epoll_fd, int64_t deadline_ns);
  // To be called when descriptors may have become readable.
  void look();
  // The timerfd expires at that time; kNever disarms it.
  void arm(int timer_fd, int64_t deadline_ns);

  // The calling thread has locked the mutex, at `pc`, or is about to unlock it.
  void locked(const void* mutex, uintptr_t pc);
  void unlocks(const void* mutex);
  // The mutex that was locked longest since begin_counting().
  HeldMutex longest_held() const;

  // A thread that is about to start, and its begin and end, called by itself.
  Thread* create();
  void begin(Thread* thread);
  void end();
  // Whether the calling thread takes part, that is, has not ended.
  static bool takes_part();
  // Whether that thread has ended. The object is not freed.
  static bool has_ended(const Thread* thread);

  // Counts of all threads, from begin_counting() on. The caller must hold the turn, as every
  // instrumented function does.
  void begin_counting();
  Lines& lines() { return lines_; }
  int threads();
  void set_transfer_ns(int64_t ns) { transfer_ns_ = ns; }
  void set_hold_ns(int64_t ns) { hold_ns_ = ns; }
  int64_t hold_ns() const { return hold_ns_; }
  int64_t transfer_ns() const { return transfer_ns_; }
  void seed(uint64_t seed) { random_ = seed * 2 + 1; }

 private:
  Machine();
  static void* watch(void* machine);
  void look_after_turn();
  Thread* self();
  void take_turn(Thread* thread);
  // Gives the turn to the thread that is behind, unless that is the caller's, and waits for the
  // next turn of the caller.
  void switch_from(Thread* thread);
  void pass_turn(Thread* thread);
  Thread* next_thread();
  void expire_timer(int index);
  void make_runnable(Thread* thread, int64_t now_ns);
  void set_limit(Thread* thread);
  uint64_t random();

  Lines lines_;
  int64_t transfer_ns_ = 60;
  // For so long after a line has come to a core, for a write, no other core gets it.
  int64_t hold_ns_ = 0;
  uint64_t random_ = 1;
  int64_t told_ns_ = 0;
  // By a hash of their addresses; the first mutex of a place keeps it.
  static constexpr size_t kMutexes = 4096;
  HeldMutex mutexes_[kMutexes];
  struct Timer {
    int fd = -1;
    int64_t deadline_ns = kNever;
  };
  Timer timers_[64];
  Thread* threads_[kMaxThreads] = {};
  std::atomic<int> count_{0};
  // Whose turn it is: twice its number, and one more while it is in the middle of an access. -2
  // when it is nobody's.
  std::atomic<int> turn_{-2};
  std::atomic<uint64_t> progress_{0};
};

}  // namespace coherence
