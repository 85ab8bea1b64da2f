#pragma once

#include <cstdint>

#include "workflow/detail/Runnable.h"

namespace workflow {

// The place in a scope of something that waits inside it, such as a task. It is embedded in a
// series, which waits for one thing at a time, so entering a scope never allocates.
//
// All members are guarded by the mutex of the scope that was entered. Outside, they belong to the
// owner of the registration. See kernel/CancelScope.h.
class CancelRegistration {
 public:
  CancelRegistration() = default;
  CancelRegistration(const CancelRegistration &) = delete;
  CancelRegistration &operator=(const CancelRegistration &) = delete;

  // What waits. A scope can be asked to end its timers only; a scope nested in it counts as one.
  enum class Kind : uint8_t { kTimer, kOther };

 protected:
  ~CancelRegistration() = default;

 private:
  friend class CancelScope;

  enum class State : uint8_t {
    kOutside,    // or in the slot of its scope
    kEntered,    // in a list of its scope
    kCalled,     // a canceller has taken it out of the slot or list, and calls on_cancel()
    kHandedOver  // what waited has ended meanwhile; the canceller posts `ended_`
  };

  // Ends the wait with `reason`, an errno value, unless something else has ended it already. The
  // canceller calls this on its own thread, with no lock held. Whatever waits is not freed before
  // it returns.
  virtual void on_cancel(int reason) = 0;

  CancelRegistration *next_ = nullptr;
  CancelRegistration *previous_ = nullptr;
  Runnable *ended_ = nullptr;
  State state_ = State::kOutside;
  Kind kind_ = Kind::kOther;  // while it is in a list
};

}  // namespace workflow
