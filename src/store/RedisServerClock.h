#pragma once

#include <algorithm>
#include <cstdint>

namespace workflow {

// How far the clock of a server is ahead of the monotonic clock of this process. The replies tell:
// the server has looked at its clock between the sending and the arrival of each.
//
// Until either clock is set or drifts, offset_us() is never less than what it stands for: too much
// by as long as the quickest request so far was under way. So a delay that becomes a date by it is
// never too short, and who asks at that date does not ask too early.
class RedisServerClock {
 public:
  // False: no reply has come yet, and the offset is 0.
  bool is_known() const { return is_known_; }
  int64_t offset_us() const { return offset_us_; }

  // A request was sent and answered at these monotonic times, and the server said `server_us`.
  void learn(int64_t sent_us, int64_t received_us, int64_t server_us) {
    const int64_t least_us = server_us - received_us;
    const int64_t most_us = std::max(server_us - sent_us, least_us);
    offset_us_ = is_known_ ? std::clamp(offset_us_, least_us, most_us) : most_us;
    is_known_ = true;
  }

 private:
  int64_t offset_us_ = 0;
  bool is_known_ = false;
};

}  // namespace workflow
