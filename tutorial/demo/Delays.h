#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "workflow/WFTaskFactory.h"

// The delays outstanding: makes their timers, cancels them by name, and knows how many there are.
//
// The library has the timers; this only counts. The counts are exact because cancel_by_name() says
// exactly how many timers it made end as cancelled: these are taken off by cancel(), all others
// by their own callback. Thread-safe. Outlives its timers.
class Delays {
 public:
  struct End {
    const char* state;  // "expired", "cancelled" or "aborted"
    int64_t waited_ms;
  };
  using Callback = std::function<void(const End&)>;

  struct Counts {
    std::map<std::string, size_t> names;
    size_t unnamed = 0;
  };

  // A timer for the caller to push on a series; `callback` runs on a thread of the library.
  WFTimerTask* create(const std::optional<std::string>& name, uint64_t ms, Callback callback);

  // The oldest `max` of that name end now. Returns how many did.
  size_t cancel(const std::string& name, size_t max);

  Counts counts() const;

 private:
  void subtract(const std::optional<std::string>& name, size_t n);
  void subtract_locked(const std::optional<std::string>& name, size_t n);

  // Held while a timer is created or cancelled, too: a delay that counts() shows can be cancelled,
  // and one that was cancelled is no longer shown. No callback runs inside these calls.
  mutable std::mutex mutex_;
  Counts counts_;  // guarded by mutex_
};
