#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "util/VirtualScheduler.h"

namespace workflow {

// A joinable thread: the system's, or a virtual one when created inside a simulation.
// The owner must call join() before the Thread is destroyed.
class Thread {
 public:
  Thread() = default;
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&&) noexcept = default;

  // Returns false, and starts nothing, if the system refuses another thread (EAGAIN,
  // pthread_create(3)). Tools show `name`, which must have at most 15 bytes: the system refuses a
  // longer one (pthread_setname_np(3)). The new thread blocks every signal except those that report
  // its own faults, so that signals sent to the process reach the application's threads.
  bool start(const char* name, std::function<void()> body);
  void join();
  bool joinable() const { return thread_.joinable() || virtual_id_.has_value(); }

 private:
  std::thread thread_;
  std::optional<VirtualScheduler::ThreadId> virtual_id_;
};

// Asks the kernel to wake the calling thread from timed waits as soon as their time is up. By
// default it may be late by 50 µs, so as to wake several threads at once (PR_SET_TIMERSLACK,
// prctl(2)). For threads that watch others. A thread that the calling thread then starts through
// Thread gets the slack that the caller had before this call. Does nothing in a simulation.
void wake_promptly();

// Lets other threads run for about this long. This is only a hint: the delay is not guaranteed.
void pause_ns(long duration_ns);

}  // namespace workflow
