#pragma once

#include <cstdint>
#include <functional>

namespace workflow {

// The interface that lets the whole library run on one thread, under a scheduler with a seed.
//
// Every blocking primitive of the library (Mutex, CondVar, Thread) first asks current(). On an
// ordinary thread it is null, and the primitive is the operating system's. On a thread that runs a
// simulation it is the simulation, which implements locks, waits, threads and time itself, and
// decides at each call which of its virtual threads runs next.
//
// Code that synchronises without a Mutex must mark the place with schedule_point(). Otherwise the
// simulation never tries the other order there.
class VirtualScheduler {
 public:
  using ThreadId = uint64_t;

  // The scheduler that owns the calling thread, or null. One load from thread-local storage.
  static VirtualScheduler* current() { return current_; }

  // Another virtual thread may run before this returns.
  virtual void point() = 0;

  virtual void lock(const void* mutex) = 0;
  virtual bool try_lock(const void* mutex) = 0;
  virtual void unlock(const void* mutex) = 0;

  // Releases `mutex`, waits until `condition` is notified or virtual time reaches `deadline_ns`,
  // and takes `mutex` again. Returns false if the deadline ended the wait.
  virtual bool wait(const void* condition, const void* mutex, int64_t deadline_ns) = 0;
  virtual void notify(const void* condition, bool all) = 0;

  virtual int64_t now_ns() = 0;

  // `name` must live as long as the scheduler. Diagnostic messages show it.
  virtual ThreadId spawn(const char* name, std::function<void()> body) = 0;
  virtual void join(ThreadId thread) = 0;

 protected:
  ~VirtualScheduler() = default;
  static void set_current(VirtualScheduler* scheduler) { current_ = scheduler; }

 private:
#if defined(__GNUC__)
  [[gnu::tls_model("initial-exec")]]
#endif
  static constinit thread_local VirtualScheduler* current_;
};

inline void schedule_point() {
  if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
    scheduler->point();
  }
}

}  // namespace workflow
