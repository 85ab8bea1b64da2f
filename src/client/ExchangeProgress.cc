#include "client/ExchangeProgress.h"

#include <algorithm>
#include <utility>

namespace workflow {

namespace {

int64_t after_ms(int64_t begin_ns, int ms) {
  return ms < 0 ? kNever : saturating_add(begin_ns, ms * kNsPerMs);
}

}  // namespace

void ExchangeProgress::request_ended(int64_t now_ns) {
  sending_ = false;
  sent_ns_ = receive_ns_ = now_ns;
}

void ExchangeProgress::bytes_came(int64_t now_ns) {
  received_ = true;
  if (std::exchange(awaits_first_, false) && times_.receive_from_first_byte) {
    receive_ns_ = now_ns;
  }
}

void ExchangeProgress::restarted(int64_t now_ns) {
  restarted_ = awaits_first_ = true;
  receive_ns_ = now_ns;
}

void ExchangeProgress::resumed(int64_t now_ns) {
  sent_ns_ = saturating_add(sent_ns_, now_ns - std::max(paused_ns_, sent_ns_));
  receive_ns_ = now_ns;  // what came before the pause has been delivered
}

int64_t ExchangeProgress::deadline_ns(int64_t now_ns) const {
  if (sending_) return after_ms(sent_ns_, times_.send);
  int next_bytes = times_.between_reads;
  if (awaits_first_) {
    const bool renewed = restarted_ && times_.after_renew >= -1;
    next_bytes = renewed ? times_.after_renew : times_.first_byte;
  }
  if (next_bytes < -1) {
    next_bytes = response_timeout_;
  }
  const int64_t deadline_ns =
      std::min(after_ms(now_ns, next_bytes), after_ms(sent_ns_, times_.whole));
  return awaits_first_ && times_.receive_from_first_byte
             ? deadline_ns
             : std::min(deadline_ns, after_ms(receive_ns_, times_.receive));
}

}  // namespace workflow
