#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/Interleaving.h"
#include "kernel/ThreadContext.h"
#include "util/Fiber.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// Virtual threads, locks, condition variables and time on one system thread, scheduled from a seed.
//
// While it exists, it is the VirtualScheduler of the thread that created it, and that thread's flow
// of control is virtual thread 0. Not thread-safe; to be used on that thread only.
//
// Invariants:
// 1. Exactly one virtual thread is kRunning: current_. ready_ holds exactly the kReady ones.
// 2. The next thread depends on the seed and on the calls made so far, never on an address.
// 3. Time moves only when no thread is ready, and then to the earliest deadline that any thread
//    waits for.
// 4. A thread in kLocking waits for a mutex in held_. Each locked mutex is in held_ once, with its
//    owner.
// 5. Once all threads together have made more than max_steps steps, a thread that reaches a point()
//    gives way to thread 0 if that is ready or in run_others(). After twice as many steps the
//    process aborts with a message at a point() at which thread 0 runs or is blocked.
class FiberScheduler : public VirtualScheduler {
 public:
  struct Options {
    bool spurious_wakeups = true;
    uint64_t max_steps = 10'000'000;
  };

  FiberScheduler(uint64_t seed, const Options& options);
  // Abandons threads that have not ended: their stacks, and everything that objects on them own,
  // stay allocated.
  virtual ~FiberScheduler();
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  void point() override;
  void lock(const void* mutex) override;
  bool try_lock(const void* mutex) override;
  void unlock(const void* mutex) override;
  bool wait(const void* condition, const void* mutex, int64_t deadline_ns) override;
  void notify(const void* condition, bool all) override;
  int64_t now_ns() override { return now_ns_; }
  ThreadId spawn(const char* name, std::function<void()> body) override;
  void join(ThreadId thread) override;

  // The calling virtual thread waits until virtual time reaches `deadline_ns`.
  void sleep_until(int64_t deadline_ns);

  // Thread 0 only. Lets the other threads run until none can go on and no deadline up to `until_ns`
  // is left, or until the step limit. In the first case the time is `until_ns` afterwards, unless
  // that is kNever.
  void run_others(int64_t until_ns);

  bool over_limit() const { return steps_ > options_.max_steps; }
  bool on_main_thread() const { return current_ == threads_[0].get(); }
  bool ended(ThreadId thread) const { return threads_[thread]->state == State::kEnded; }
  // To be called after run_others(kNever). Returns whether a thread waits for ever for a lock, for
  // the end of another thread, or in a wait that user code has requested. Threads of the library
  // that wait for work do not count.
  bool any_stuck() const;
  // Returns one line for each thread that any_stuck() looks for, with what the thread waits for
  // and, if known, which thread holds or runs that. Adds one line for each thread that could run,
  // and one for each thread of `listed` that waits to be notified.
  std::string describe(const std::vector<ThreadId>& listed) const;

  uint64_t seed() const { return seed_; }
  uint64_t steps() const { return steps_; }
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  // At about every 256th point a waiting thread wakes spuriously.
  static constexpr unsigned kSpuriousBits = 8;

  enum class State {
    kRunning,
    kReady,
    kLocking,  // until `object` is unlocked
    kWaiting,  // until `object` is notified or time reaches deadline_ns
    kJoining,  // until the thread `joined` has ended
    kResting,  // thread 0 in run_others()
    kEnded
  };
  struct VirtualThread {
    ThreadId id = 0;
    const char* name = "";
    State state = State::kReady;
    const void* object = nullptr;
    ThreadId joined = 0;
    int64_t deadline_ns = kNever;
    bool timed_out = false;
    uint64_t priority = 0;
    ThreadContext context;
    std::function<void()> body;
    std::unique_ptr<Fiber> fiber;
    FiberScheduler* scheduler = nullptr;
  };
  struct HeldMutex {
    const void* mutex;
    VirtualThread* owner;
  };
  // The kinds of steps in the trace.
  enum class Step : uint64_t { kPoint, kSwitch, kSpawn, kEnd, kTime };

  static void thread_main(void* thread);

  void count_step(Step step, uint64_t detail);
  void point_over_limit();
  void maybe_wake_spuriously();
  void make_ready(VirtualThread* thread, bool timed_out);
  // Switches to `next`; the calling thread stays ready.
  void yield_to(VirtualThread* next);
  // Switches to another thread; `current_` already contains what it waits for.
  void block();
  VirtualThread* take_next();
  size_t choose_ready();
  bool advance_time();
  void switch_to(VirtualThread* next);

  static bool is_stuck(const VirtualThread& thread);
  std::string label(ThreadId id) const;
  std::string mutex_of(const VirtualThread& thread) const;
  std::string wait_of(const VirtualThread& thread) const;

  HeldMutex* find_held(const void* mutex);
  void acquire(const void* mutex);
  void release(const void* mutex);
  [[noreturn]] void fail(const char* what);

  const uint64_t seed_;
  const Options options_;
  Interleaving interleaving_;
  std::vector<std::unique_ptr<VirtualThread>> threads_;  // by id
  std::vector<VirtualThread*> ready_;
  std::vector<HeldMutex> held_;  // few at any time, so it is searched linearly
  VirtualThread* current_;
  std::unique_ptr<Fiber> ended_fiber_;  // freed once another stack is in use
  size_t locking_ = 0;                  // threads in kLocking
  size_t waiting_ = 0;                  // threads in kWaiting
  int64_t now_ns_ = 0;
  int64_t run_until_ns_ = kNever;
  uint64_t steps_ = 0;
  uint64_t trace_hash_ = 0;
};

}  // namespace workflow
