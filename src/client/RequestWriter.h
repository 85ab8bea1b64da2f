#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "kernel/Channel.h"
#include "workflow/ProtocolMessage.h"

namespace workflow {

// The sending half of a client's connection: a Channel that sends one request at a time, and what
// may follow it: bytes that its exchange has to send later, and feedback, which the response gives
// while it is being received. It knows how much of all this was sent, but neither exchanges nor the
// states of a connection.
//
// Threads: see Channel. Everything here but parsing_ is guarded by mutex_, the Channel lock.
//
// Invariants:
// 1. Vectors of a request are unsent while is_sending() only. They point into the request, which
//    has to stay until resume_request() or end_request() has made is_sending() false.
// 2. What follows a request is copied, so it may be unsent when the exchange has ended
//    (is_flushing()). What would follow a request whose rest is dropped is dropped, too.
// 3. write_now() adds a copy only if all unsent copies, also those of send_more(), then have
//    kMaxFeedback bytes at most.
// 4. When ask_to_send() has returned, the poller's thread will look at asked_to_send_, either
//    because it parses (parsing_) and looks afterwards, or because it was asked to look.
class RequestWriter : public Channel, public protocol::MessageChannel {
 public:
  // Makes the exchange's take_more_to_send() be called soon. Any thread that holds a reference.
  void ask_to_send();
  // MessageChannel: called by the message that is being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;

 protected:
  using Channel::Channel;
  ~RequestWriter() override = default;

  // Begins to send a request, behind the copies that are unsent. Returns 0 if all of it was sent,
  // EAGAIN if resume_request() has to go on, or another errno; then the caller ends the request.
  int begin_request(struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  // Goes on with what is unsent. Returns as begin_request() does. After an error the rest of the
  // request is dropped.
  int resume_request() WF_REQUIRES(mutex_);
  // The exchange is over, so the rest of its request is dropped. Returns whether another request
  // may follow, because this one was sent to the end.
  bool end_request() WF_REQUIRES(mutex_);
  // Some of the last request is unsent.
  bool is_sending() const WF_REQUIRES(mutex_) { return request_ == Request::kSending; }

  // Sends what follows the request. Only while nothing is unsent. Returns 0, also if the poller
  // sends the rest, or an errno. The exchange may have still more to send, unless there was an
  // error.
  int send_more(const std::string& bytes) WF_REQUIRES(mutex_);
  // The exchange may have more to send.
  bool is_asked_to_send() const WF_REQUIRES(mutex_) { return asked_to_send_; }
  // The same, if nothing is unsent. It is not asked to send then, until ask_to_send() or
  // send_more() is called again.
  bool take_question() WF_REQUIRES(mutex_) {
    return !has_unsent() && std::exchange(asked_to_send_, false);
  }
  // To be called with true before the poller's thread parses a response, and with false afterwards.
  // That thread must then take mutex_ and look for a question before it waits again, because
  // ask_to_send() does not ask for a turn of it meanwhile.
  void set_parsing(bool parsing) { parsing_.store(parsing, std::memory_order_relaxed); }

  // Something waits for the socket to take more.
  bool has_unsent() const WF_REQUIRES(mutex_) { return is_sending() || flushing_; }
  // Something that follows a request waits for the socket.
  bool is_flushing() const WF_REQUIRES(mutex_) { return flushing_; }
  // Limits the time in which the bytes that is_flushing() reports must be sent. If no deadline can
  // be set, is_flushing() becomes false, and the connection does not wait for these bytes.
  void limit_flushing(int timeout_ms) WF_REQUIRES(mutex_);
  // Nobody waits for it any more.
  void end_flushing() WF_REQUIRES(mutex_) { flushing_ = false; }

 private:
  // How far the last request is. kSent before the first; kCut: its rest will not be sent.
  enum class Request { kSending, kSent, kCut };

  static constexpr size_t kMaxFeedback = size_t{1024} * 1024;

  // Sends bytes behind all that is unsent. Returns 0, also if the poller sends the rest, or an
  // errno.
  int send_behind(const void* bytes, size_t size) WF_REQUIRES(mutex_);

  // Whether the poller's thread parses a response, and will look at asked_to_send_ afterwards.
  // Relaxed is enough, because mutex_ orders the accesses. The poller's thread stores false before
  // it locks mutex_ and looks. ask_to_send() sets asked_to_send_ under mutex_, and then loads
  // parsing_. If the look came first, the load cannot return the `true` of before that look. So if
  // it returns true, the poller's thread will look once more.
  std::atomic<bool> parsing_{false};

  Request request_ WF_GUARDED_BY(mutex_) = Request::kSent;
  bool flushing_ WF_GUARDED_BY(mutex_) = false;
  bool asked_to_send_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
