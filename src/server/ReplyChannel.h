#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernel/Channel.h"

namespace workflow {

// The sending half of a server's connection: a Channel with limits for what it sends. There is one
// for the time without progress, and one for the memory of pushed bytes, which are those that are
// sent before the end of a reply. It knows neither requests nor the states of a connection.
//
// Threads: see Channel. Everything here is guarded by C.
//
// Invariants, while a request is processed:
// 1. While pushing_ is true, pushed bytes are unsent, and some of them must leave until the
//    deadline. Otherwise the deadline is when the next heartbeat is due.
// 2. At most kMaxPushed bytes are copied, besides those of push_head().
class ReplyChannel : public Channel {
 protected:
  using Channel::Channel;
  ~ReplyChannel() override = default;

  // How long the client may take nothing of what is being sent.
  void set_send_limit(int64_t send_ns) WF_REQUIRES(mutex_) { send_ns_ = send_ns; }

  // A request is processed from now on, and until end_pushing().
  void begin_pushing(int64_t send_ns) WF_REQUIRES(mutex_);
  void end_pushing() WF_REQUIRES(mutex_);
  // Sends or copies the bytes. Returns 0, or an errno: ENOBUFS if there is no room, ECANCELED if
  // nobody would notice that the client does not read.
  int push_bytes(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  // Does the same, whether or not there is room.
  int push_head(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  // Goes on with what was pushed, as resume_writing() does.
  int resume_pushing(bool without_bound) WF_REQUIRES(mutex_);
  // Something was pushed for the current or the last request.
  bool has_pushed() const WF_REQUIRES(mutex_) { return pushed_; }
  bool is_pushing() const WF_REQUIRES(mutex_) { return pushing_; }

  // The deadline comes again and again while nothing is unsent. kNever: there is no heartbeat.
  void set_heartbeat_interval(int64_t interval_ns) WF_REQUIRES(mutex_);
  bool has_heartbeat() const WF_REQUIRES(mutex_) { return heartbeat_ns_ != kNever; }
  void await_heartbeat() WF_REQUIRES(mutex_) { set_deadline(in_ns(heartbeat_ns_)); }

  // Called after a write of a reply has failed with EAGAIN. Returns EAGAIN if the poller will go on
  // with it. If the poller is stopping, writes what the socket still takes now, and returns 0 if
  // that was all, or an errno: ECANCELED if the rest was cut.
  int leave_to_poller() WF_REQUIRES(mutex_);
  // Goes on with a reply, as resume_writing() does. `renew`: progress extends the time limit.
  int resume_reply(bool without_bound, bool renew) WF_REQUIRES(mutex_);

 private:
  static constexpr size_t kMaxPushed = 1024 * 1024;

  size_t room() const WF_REQUIRES(mutex_) {
    return kMaxPushed - std::min(copied_bytes(), kMaxPushed);
  }
  // Sets the deadline after a write of pushed bytes, which has returned `error`, and before which
  // `bytes_before` were unsent. Returns `error`, or ECANCELED if no limit could be set.
  int limit_push(int error, size_t bytes_before) WF_REQUIRES(mutex_);

  int64_t send_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t heartbeat_ns_ WF_GUARDED_BY(mutex_) = kNever;
  bool pushed_ WF_GUARDED_BY(mutex_) = false;
  bool pushing_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
