#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "util/VirtualScheduler.h"

namespace workflow {

// A joinable thread: the system's, or a virtual one when created inside a simulation.
// The owner calls join() before the Thread is destroyed.
class Thread {
 public:
  Thread() = default;
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&&) noexcept = default;

  // False (and nothing started) when the system refuses another thread (EAGAIN, pthread_create(3)).
  // `name` is shown by tools, at most 15 bytes. The new thread blocks every signal except those
  // that report its own faults, so that signals sent to the process reach the application's
  // threads.
  bool start(const char* name, std::function<void()> body);
  void join();
  bool joinable() const { return thread_.joinable() || virtual_id_.has_value(); }

 private:
  std::thread thread_;
  std::optional<VirtualScheduler::ThreadId> virtual_id_;
};

// Gives other threads about that long to run. A hint, no delay to count on.
void pause_ns(long duration_ns);

}  // namespace workflow
