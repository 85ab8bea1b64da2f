#pragma once

#include <atomic>
#include <cstdint>

#include "store/StoreTimes.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// The counters behind WFTimerStoreStats. Thread-safe.
class StoreCounters {
 public:
  // Relaxed, as those of StoreHistogram.
  using Count = std::atomic<uint64_t>;
  Count stored{0};
  Count due{0};
  Count overdue{0};
  Count unhandled{0};
  Count leased{0};
  Count failed_timers{0};
  Count scheduled{0};
  Count cancelled{0};
  Count rescheduled{0};
  Count begun{0};
  Count acknowledged{0};
  Count retried{0};
  Count failed{0};
  Count missed{0};
  Count lost{0};
  Count in_doubt{0};
  Count errors{0};
  StoreHistogram lateness;
  StoreHistogram group;
  StoreHistogram request;

  // All but `running`, which StoreRuns knows, and what StoreTimes has.
  WFTimerStoreStats snapshot() const;
};

}  // namespace workflow
