#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "kernel/Channel.h"
#include "server/ServerPeer.h"

namespace workflow {

// The sending half of a server's connection: a Channel with limits for what it sends. They limit
// the time without progress, and the memory of pushed bytes, which are those that are sent before
// the end of a reply. It knows neither exchanges nor the states of a connection.
//
// Threads: see Channel. Everything here is guarded by mutex_, the Channel lock.
//
// Invariants:
// 1. Bytes are pushed between begin_pushing() and end_pushing() only; otherwise reply_stream_ is
//    null. Meanwhile the deadline is when the client must have taken some of the pushed bytes, if
//    any are unsent (pushing_), or when the next heartbeat is due.
// 2. At most kMaxPushed bytes are copied, besides the head of a streamed reply.
class ReplyChannel : public Channel, public ServerPeer, public protocol::MessageChannel {
 public:
  // MessageChannel: called by the message that is being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;
  // ServerPeer
  int push(const void* buffer, size_t size) override;
  size_t unsent() const override;
  void set_heartbeat(int ms) override;
  int peer_addr(struct sockaddr* address, socklen_t* length) const override {
    return Channel::peer_addr(address, length);
  }
  bool peer_closed() const override { return Channel::peer_closed(); }
  void retain() override { Channel::retain(); }
  void release() override { Channel::release(); }

 protected:
  using Channel::Channel;
  ~ReplyChannel() override = default;

  // How long the client may take nothing of what is being sent; -1: unlimited.
  void set_send_limit(int timeout_ms) WF_REQUIRES(mutex_) { send_ms_ = timeout_ms; }

  void begin_pushing(int send_timeout_ms) WF_REQUIRES(mutex_);
  // Returns the stream, if there is one. The caller frees it after it has released mutex_.
  std::shared_ptr<ReplyStream> end_pushing() WF_REQUIRES(mutex_);
  // Begins a streamed reply. Returns 0 or an errno.
  int push_head(std::shared_ptr<ReplyStream> stream, const std::string& head) WF_REQUIRES(mutex_);
  // To be called on the poller's thread, without mutex_, when the socket may take more. Writes what
  // was pushed; if `to_the_end`, as much as the socket takes, otherwise as invariant 3 of Channel
  // allows. Then tells the stream that there is room or, if the write has failed, ends it.
  void continue_pushing(bool to_the_end);
  // The client is lost. Tasks of the stream that are cut short from now on, for example by the end
  // of a scope, end with `error`. Returns the stream, or null. The caller ends it with over(error),
  // after it has released mutex_.
  std::shared_ptr<ReplyStream> lose_stream(int error) WF_REQUIRES(mutex_);
  // Something was pushed for the current or the last request.
  bool has_pushed() const WF_REQUIRES(mutex_) { return pushed_; }
  bool is_pushing() const WF_REQUIRES(mutex_) { return pushing_; }
  // Nothing is unsent: sets the deadline. Returns the stream if there is a heartbeat.
  std::shared_ptr<ReplyStream> await_heartbeat() WF_REQUIRES(mutex_);

  // Called after a write of a reply, which has returned `error`. After EAGAIN, returns EAGAIN if
  // the poller will go on with it. If no deadline can be set (the poller has stopped, or memory has
  // run out), writes what the socket still takes now, and returns 0 if that was all, or an errno:
  // ECANCELED if the rest was cut.
  int leave_to_poller(int error) WF_REQUIRES(mutex_);
  // Goes on with a reply, as resume_writing() does. `renew`: progress extends the time limit.
  int resume_reply(bool to_the_end, bool renew) WF_REQUIRES(mutex_);

 private:
  static constexpr size_t kMaxPushed = 1024 * 1024;

  size_t room() const WF_REQUIRES(mutex_) {
    return kMaxPushed - std::min(copied_bytes(), kMaxPushed);
  }
  // Returns 0, or an errno: ENOBUFS if there is no room; ECANCELED if the rest can have no time
  // limit, because the poller has stopped or memory has run out; or that of the write.
  int push_bytes(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  // Does the same, whether or not there is room.
  int push_now(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  // Sets the deadline after a write of pushed bytes, which has returned `error`, and before which
  // `bytes_before` were unsent. Returns `error`, or ECANCELED if no limit could be set.
  int limit_push(int error, size_t bytes_before) WF_REQUIRES(mutex_);
  // Gives what is unsent its time limit. Sets a deadline even if there is no limit, so that the
  // write ends when the poller stops. Returns false if none could be set.
  bool limit_write() WF_REQUIRES(mutex_);

  std::shared_ptr<ReplyStream> reply_stream_ WF_GUARDED_BY(mutex_);
  int send_ms_ WF_GUARDED_BY(mutex_) = -1;
  int heartbeat_ms_ WF_GUARDED_BY(mutex_) = -1;  // -1: there is none
  bool is_open_ WF_GUARDED_BY(mutex_) = false;   // bytes may be pushed
  bool pushed_ WF_GUARDED_BY(mutex_) = false;
  bool pushing_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
