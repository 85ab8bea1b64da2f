#pragma once

#include <atomic>

#include "workflow/Runnable.h"

namespace workflow {

// The claim of an interrupter that something shall end before its time: why. A handler's turn, with
// no lock held, does what is to be done then.
//
// For what is found under a lock that an interrupter may hold already, or that comes before his.
// Two use a claim, the task until it has ended, and that turn; the second of both frees it.
class EndClaim : public Runnable {
 public:
  EndClaim(const EndClaim&) = delete;
  EndClaim& operator=(const EndClaim&) = delete;

  // Once at most, while the task has not ended: it shall end with this errno value. Takes no lock.
  // The caller has a handler give this its turn.
  void ask(int error);
  // That value, or 0.
  int error() const { return error_.load(std::memory_order_acquire); }

 protected:
  EndClaim() = default;
  ~EndClaim() override = default;

  // By each of the two, as the last it does with this.
  void unref();

 private:
  std::atomic<int> error_{0};
  std::atomic<int> users_{1};
};

}  // namespace workflow
