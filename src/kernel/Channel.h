#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernel/Poller.h"
#include "kernel/Stream.h"
#include "util/ByteQueue.h"
#include "util/Mutex.h"
#include "workflow/detail/Ref.h"

namespace workflow {

// A stream on a poller: what the connections of servers and of clients have in common. It provides
// reference counts, events, one timeout that costs almost nothing to move, buffering of what the
// socket does not take at once, and an end after which nothing is in flight. The derived class
// decides what is sent and when. A Channel also serves datagrams, except for the buffered writing.
//
// Threads. Order: mutex_, then the PollerTimers lock. Reading, timeouts and closing happen on the
// poller's thread only; any thread may write. No user code runs under mutex_, except the callbacks
// that a program has set in OpenSSL, inside a handshake.
//
// Invariants:
// 1. The descriptor is closed on the poller's thread only, after retire(), or when the poller has
//    stopped.
// 2. The poller holds one reference until it has retired the descriptor; retain() adds others. When
//    the last one is released end() is called, once.
// 3. The number of bytes written between two rounds of the poller is bounded, whichever thread
//    writes and however fast the peer reads. So neither the poller's other work nor a thread that
//    needs mutex_ waits long. Beyond kRoundBytes writing goes on in the next round, as after an
//    EAGAIN (spent_, then ask_poller()).
// 4. deadline_ns_ is the deadline that holds. The node is queued for that time or an earlier one
//    (and need not be queued for kNever), so a deadline that moves later costs no queue operation.
class Channel : public IoHandler, public TimerNode, protected Runnable {
 public:
  void retain() { references_.add(); }
  void release();

  // The peer has closed, half-closed or reset the connection. Any thread.
  bool peer_closed() const { return peer_closed_.load(std::memory_order_acquire); }
  // 0, or -1 with errno: ENOTCONN when it is closed, ENOBUFS when `*length` is too small.
  int peer_addr(struct sockaddr* address, socklen_t* length) const;

 protected:
  Channel(Poller& poller, UniqueFd fd) : poller_(poller), stream_(std::move(fd)) {}
  ~Channel() override = default;

  // Called on the poller's thread with no lock held, when something happened to the descriptor, or
  // after ask_poller() (then `events` is 0, or EPOLLOUT: invariant 3). The reference under which it
  // is called may be the last one.
  virtual void on_ready(uint32_t events, RunnableList& finished) = 0;
  // Called on the poller's thread when the deadline has passed. If `stopped`, the poller ends and
  // reports no further deadlines, so everything that waits for the peer must end now.
  virtual void on_deadline(bool stopped, RunnableList& finished) = 0;
  // Called on the poller's thread when the descriptor is about to be closed.
  virtual void on_closing() = 0;
  // Deletes this. Called on a thread on which user code may block.
  virtual void end() = 0;

  // Registers the descriptor. 0, or -1 with errno.
  int watch() WF_REQUIRES(mutex_);
  // Makes the poller's thread call on_ready() soon. False when the poller has stopped.
  bool ask_poller();
  // Poller's thread only, once. No further event or deadline is reported, except for on_ready()
  // after an earlier ask_poller(). on_closing() is called, and then the descriptor is closed.
  void retire();

  int64_t now_ns() const { return poller_.clock().now_ns(); }
  int64_t in_ns(int64_t duration_ns) const { return saturating_add(now_ns(), duration_ns); }
  // Sets the time of on_deadline(). Only a time other than kNever makes sure of a call when the
  // poller stops. Returns false if on_deadline() will not be called, because the poller has stopped
  // or memory has run out.
  bool set_deadline(int64_t deadline_ns) WF_REQUIRES(mutex_);
  // To be checked in on_deadline(): another thread may have moved the deadline just before the
  // call.
  bool deadline_passed() const WF_REQUIRES(mutex_) { return deadline_ns_ <= now_ns(); }

  // Each of these calls writes what the socket and invariant 3 allow. It returns 0 when everything
  // was written, EAGAIN when the rest is kept for resume_writing(), or another errno. The vectors
  // themselves are changed. The memory that they point to must stay valid until everything was
  // written, or until forget_unsent().
  // Only while no vectors are unsent.
  int write_out(struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  int resume_writing() WF_REQUIRES(mutex_);
  // Copies the data, and sends the copy before the unsent vectors, none of which may be partly
  // sent.
  int write_copy(const void* data, size_t size) WF_REQUIRES(mutex_);
  // Copies the data, and sends the copy after everything that is unsent.
  int append_copy(const void* data, size_t size) WF_REQUIRES(mutex_);
  size_t unsent_bytes() const WF_REQUIRES(mutex_);
  // How many of the unsent bytes are not the user's but copies, including a TLS record that is
  // partly sent.
  size_t copied_bytes() const WF_REQUIRES(mutex_) {
    return copied_.size() + behind_.size() + stream_.unsent_bytes();
  }
  // Drops the unsent vectors, and the data that was to be sent after them.
  void forget_unsent() WF_REQUIRES(mutex_);
  // Makes the poller's thread call on_ready() with EPOLLOUT soon; see ask_poller().
  bool request_write_turn() WF_REQUIRES(mutex_);
  // Turns invariant 3 off, for datagrams, which are sent whole.
  void write_unbounded() WF_REQUIRES(mutex_) { is_bounded_ = false; }
  // As resume_writing(), but not bounded by invariant 3. For when the poller stops, so that no
  // later round could send the rest, or when little is unsent.
  int resume_without_bound() WF_REQUIRES(mutex_);

  Poller& poller_;
  mutable Mutex mutex_;
  Stream stream_ WF_GUARDED_BY(mutex_);

 private:
  static constexpr size_t kRoundBytes = 64 * 1024;

  // Called by the poller.
  void on_events(uint32_t events, RunnableList& finished) final;
  void on_retired() final;
  void left_queue(bool stopped, RunnableList& finished) final;
  void run_queued() final;

  int write_copied() WF_REQUIRES(mutex_);
  // As Stream::write(), within the bound of invariant 3.
  ssize_t write_some(struct iovec* vectors, int count) WF_REQUIRES(mutex_);

  RefCount references_;
  std::atomic<bool> asked_{false};  // run_queued() is queued at the poller
  std::atomic<bool> peer_closed_{false};
  // How many bytes may still be written in this round. Reduced under mutex_, reset by the poller's
  // thread.
  std::atomic<size_t> round_bytes_{kRoundBytes};
  bool spent_ WF_GUARDED_BY(mutex_) = false;
  bool is_bounded_ WF_GUARDED_BY(mutex_) = true;
  int64_t deadline_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t queued_ns_ WF_GUARDED_BY(mutex_) = kNever;
  ByteQueue copied_ WF_GUARDED_BY(mutex_);                  // unsent; goes first
  std::vector<struct iovec> unsent_ WF_GUARDED_BY(mutex_);  // unsent; after copied_
  ByteQueue behind_ WF_GUARDED_BY(mutex_);                  // unsent; after unsent_
};

}  // namespace workflow
