#pragma once

#include <atomic>

namespace workflow {

// A member that tells whether this process is the one that made the object.
//
// In a child of fork(2) an object of the parent may have a lock that stays locked for ever, because
// the thread that holds it is not there. What such an object has open, such as the timerfd of a
// poller, belongs to the parent, too. So the child asks this before it locks or changes anything.
//
// Constant after construction, so no lock is needed to ask. An answer costs one relaxed load.
class OriginProcess {
 public:
  OriginProcess() : forks_before_(forks_.load(std::memory_order_relaxed)) {}

  // Whether this process is a child, or a descendant, of the one that made the object. Calls of
  // fork(2) before the first use of the process's runtime do not count.
  bool is_parent() const { return forks_before_ != forks_.load(std::memory_order_relaxed); }

  // Called in each child, while it has one thread.
  static void forked() { forks_.fetch_add(1, std::memory_order_relaxed); }

 private:
  // Relaxed: only a child that has one thread changes it, and starts its other threads later.
  static constinit std::atomic<int> forks_;

  const int forks_before_;
};

}  // namespace workflow
