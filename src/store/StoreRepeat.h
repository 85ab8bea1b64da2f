#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/StoreRequest.h"

namespace workflow {

// How a stored timer recurs. A value; the backends keep it as text.
class StoreRepeat {
 public:
  // `due` has a cron expression or a period. `first_us` is its first date.
  StoreRepeat(const WFStoreDue& due, int64_t first_us, bool every_missed_date);

  // Empty if `text` is none, or if its time zone is not known on this machine.
  static std::optional<StoreRepeat> parse(const std::string& text);
  std::string to_text() const;

  // The first date after `after_us`; kNeverUs if there is none.
  int64_t next_us(int64_t after_us) const;

  // The date for which a timer runs that has been due since `due_us`: the latest that has come by
  // `now_us`, or `due_us` itself if there is none after it or if each missed date counts.
  int64_t date_to_run_us(int64_t due_us, int64_t now_us) const;

 private:
  StoreRepeat() = default;

  // The latest date up to `now_us`, if at least one is after `due_us`.
  int64_t latest_of_cron_us(int64_t due_us, int64_t now_us) const;

  std::optional<WFCron> cron_;
  int64_t period_us_ = 0;  // if there is no cron_
  int64_t first_us_ = 0;   // dates are multiples of the period from here
  bool every_missed_date_ = false;
};

}  // namespace workflow
