#pragma once

#include <cstdint>

#include "util/Time.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

// How far an exchange has come, and which of its time limits holds. Pure data: knows no clock, no
// lock and no socket.
//
// While the request is being sent, only ClientTimes::send counts. Afterwards the earliest of these
// deadlines holds:
//
//  limit          begins with
//  first_byte     the call of deadline_ns(). It holds until a byte has come
//  after_renew    the call of deadline_ns(). After restarted() it holds instead of first_byte
//  between_reads  the call of deadline_ns(). It holds once a byte has come
//  receive        the end of the request, or restarted(); with receive_from_first_byte, the first
//                 byte after either of them. The end of a pause begins it anew
//  whole          the end of the request. Pauses after that do not count
//
// If first_byte or between_reads is -2, the response timeout of the endpoint holds instead. If
// after_renew is -2, first_byte holds.
class ExchangeProgress {
 public:
  ExchangeProgress() = default;
  // The request is being sent, or `sent` says that it has been. `response_timeout`: the endpoint's,
  // in ms.
  ExchangeProgress(const ClientTimes& times, int response_timeout, bool sent, int64_t now_ns)
      : times_(times),
        response_timeout_(response_timeout),
        sending_(!sent),
        sent_ns_(now_ns),
        receive_ns_(now_ns) {}

  // The request was sent to the end, or its rest will not be sent.
  void request_ended(int64_t now_ns);
  // Bytes of the response have come.
  void bytes_came(int64_t now_ns);
  // The response begins anew, so the next byte is its first.
  void restarted(int64_t now_ns);
  // No time passes between these two.
  void paused(int64_t now_ns) { paused_ns_ = now_ns; }
  void resumed(int64_t now_ns);

  // Whether a byte of the response has come.
  bool has_received() const { return received_; }
  int64_t deadline_ns(int64_t now_ns) const;

  // In ms; -1 is no limit.
  int send_timeout() const { return times_.send >= 0 ? times_.send : response_timeout_; }
  int keep_alive() const { return times_.keep_alive; }

 private:
  ClientTimes times_;
  int response_timeout_ = -1;
  bool sending_ = false;
  bool received_ = false;
  bool restarted_ = false;
  // No byte of the response has come yet, or none since restarted().
  bool awaits_first_ = true;
  // While sending_ is true, the time at which sending began; afterwards, the time at which it
  // ended. Each pause moves it forward by its length.
  int64_t sent_ns_ = kNever;
  int64_t receive_ns_ = kNever;  // when ClientTimes::receive began
  int64_t paused_ns_ = 0;        // when the last pause began
};

}  // namespace workflow
