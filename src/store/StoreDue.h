#pragma once

#include <cstdint>
#include <string>

#include "store/StoreRequest.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// When a timer is to be due, as a user has said it: delays count from when they are read. A value.
class StoreDue {
 public:
  StoreDue(const WFStoreDue& due, bool every_missed_date)
      : due_(due), every_missed_date_(every_missed_date) {}

  // Why no timer can be due like that; the error is 0 if one can. `now_us` is the time of the
  // store.
  StoreFailure check(int64_t now_us) const;

  // Writes into a ScheduleRequest or a RescheduleRequest when the timer is due, and how it recurs.
  // Returns what check() would. Throws std::bad_alloc.
  StoreFailure write_to(StoreRequest& request, int64_t now_us) const;

 private:
  StoreFailure read(int64_t now_us, int64_t& due_us, std::string& repeat_text) const;

  WFStoreDue due_;
  bool every_missed_date_;
};

}  // namespace workflow
