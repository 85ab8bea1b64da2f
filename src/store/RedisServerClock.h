#pragma once

#include <algorithm>
#include <cstdint>

namespace workflow {

// How far the clock of a server is ahead of the monotonic clock of this process. The replies tell:
// the server has looked at its clock between the sending and the arrival of each.
//
// At first offset_us() is too large, by the time that the quickest request so far took to reach the
// server. So a delay that becomes a date by it is not too short. When the clocks have drifted, it
// may also be too small, but by no more than the latest reply was under way.
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
