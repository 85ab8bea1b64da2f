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

// A socket on a poller: what the connections of servers and of clients have in common. It counts
// references, receives events and one deadline that costs almost nothing to move, keeps what the
// socket does not take at once, and closes the socket when no event of it can come any more. The
// derived class decides what is sent and when. For a datagram socket, it calls write_unbounded(),
// or sends in a way of its own.
//
// Threads. "The poller's thread" is the leader, and a round is one pass of its loop
// (kernel/Poller.h). on_ready() and on_deadline() come on the poller's thread only; any thread may
// write. Lock order: mutex_, then those of the poller. No user code runs under mutex_, except
// what OpenSSL calls in a TLS handshake (docs/locks.md).
//
// Invariants:
// 1. Once watch() has succeeded, the descriptor is closed only on the poller's thread, after
//    retire(), or on any thread when the poller has stopped.
// 2. The creator has the first reference. watch() gives it to the poller; it is released when the
//    descriptor has been closed. retain() adds others. When the last one is released, end() is
//    called, once.
// 3. While the poller runs, bounded writes take at most kRoundBytes between two of its calls of
//    on_ready(), on all threads and however fast the peer reads. So neither the poller's other work
//    nor a thread that needs mutex_ waits long. The rest is kept as after an EAGAIN. Then spent_ is
//    set and ask_poller() called, so that on_ready() comes with EPOLLOUT.
// 4. deadline_ns_ is the deadline in force, kNever if there is none. This TimerNode is queued for
//    that time or an earlier one, but need not be for kNever. So a deadline that moves later costs
//    no queue operation.
class Channel : public IoHandler, public TimerNode, protected Runnable {
 public:
  void retain() { references_.add(); }
  // Any thread. The release of the last reference calls end(), so no lock may be held then. On a
  // poller's thread it is posted to the handler threads instead, which call end().
  void release();

  // The peer has closed, half-closed or reset the connection. Any thread.
  bool peer_closed() const { return peer_closed_.load(std::memory_order_acquire); }
  // 0, or -1 with errno: ENOTCONN when it is closed, ENOBUFS when `*length` is too small.
  int peer_addr(struct sockaddr* address, socklen_t* length) const;

 protected:
  Channel(Poller& poller, UniqueFd fd) : poller_(poller), stream_(std::move(fd)) {}
  ~Channel() override = default;

  // Called on the poller's thread with no lock held, when something happened to the descriptor, or
  // after ask_poller() (then `events` is 0, or EPOLLOUT if spent_ was set). This may be freed when
  // the call has returned. Items that are added to `finished` are run or posted after the call.
  virtual void on_ready(uint32_t events, RunnableList& finished) = 0;
  // Called on the poller's thread with no lock held, when the deadline has passed or there is no
  // memory to queue it again. If `stopped`, the poller stops and reports no further deadlines, so
  // everything that waits for the peer must end now.
  virtual void on_deadline(bool stopped, RunnableList& finished) = 0;
  // Called on the poller's thread with no lock held, when the descriptor is about to be closed.
  virtual void on_closing() = 0;
  // Must delete this. Called on a thread on which user code may block.
  virtual void end() = 0;

  // Registers the descriptor, and gives the caller's reference to the poller. 0, or -1 with errno;
  // then the caller keeps its reference.
  int watch() WF_REQUIRES(mutex_);
  // Makes the poller's thread call on_ready() soon, once for several requests. A reference is held
  // until on_ready() has returned. Any thread. False when the poller has stopped.
  bool ask_poller();
  // To be called once, in on_ready() or on_deadline(), without mutex_. No further event or
  // deadline is reported. Set no deadline any more. At the end of the round on_closing() is
  // called, and then the descriptor is closed. After ask_poller(), on_ready() may come even later.
  void retire();

  int64_t now_ns() const { return poller_.clock().now_ns(); }
  int64_t in_ns(int64_t duration_ns) const { return saturating_add(now_ns(), duration_ns); }
  // Sets the time of on_deadline(). Unless it is kNever, on_deadline() is also called when the
  // poller stops. Returns false if on_deadline() will not be called, because the poller has stopped
  // or memory has run out.
  bool set_deadline(int64_t deadline_ns) WF_REQUIRES(mutex_);
  // To be checked in on_deadline() unless `stopped`: false if another thread has moved the deadline
  // just before the call.
  bool deadline_passed() const WF_REQUIRES(mutex_) { return deadline_ns_ <= now_ns(); }

  // The next four functions write what the socket and invariant 3 allow. They return 0 when all
  // that they have to write was written, EAGAIN when the rest is kept, or another errno. After
  // EAGAIN call resume_writing() when on_ready() comes with EPOLLOUT.

  // Writes the vectors (struct iovec). Only to be called while none are unsent. The array is
  // changed, but not used after the call. The memory that the vectors point to must stay valid
  // until this call or resume_writing() returns anything but EAGAIN, or until forget_unsent().
  int write_out(struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  // Goes on with everything that is unsent.
  int resume_writing() WF_REQUIRES(mutex_);
  // Copies the data, and sends the copy before the unsent vectors, which this call does not write.
  // Only to be called while none of them is partly sent.
  int write_copy(const void* data, size_t size) WF_REQUIRES(mutex_);
  // Copies the data, and sends the copy after everything that is unsent.
  int append_copy(const void* data, size_t size) WF_REQUIRES(mutex_);
  size_t unsent_bytes() const WF_REQUIRES(mutex_);
  // How many of the unsent bytes are in copies and not in unsent vectors. A TLS record that is
  // partly sent counts as a copy.
  size_t copied_bytes() const WF_REQUIRES(mutex_) {
    return copied_.size() + behind_.size() + stream_.unsent_bytes();
  }
  // Drops the unsent vectors, and the copies that were to be sent after them.
  void forget_unsent() WF_REQUIRES(mutex_);
  // As ask_poller(), but on_ready() comes with EPOLLOUT.
  bool request_write_turn() WF_REQUIRES(mutex_);
  // Turns the bound of invariant 3 off. For datagrams, which must not be cut.
  void write_unbounded() WF_REQUIRES(mutex_) { is_bounded_ = false; }
  // As resume_writing(), but not bounded by invariant 3. For when no later round can send the rest,
  // or the caller bounds how much may be unsent.
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
  // The poller has this object in its inbox. Exchanged by ask_poller(), which releases even if it
  // finds the word set, and by run_queued(), which acquires. So on_ready() sees what each thread
  // did that has asked for it. The only store, when the poller has stopped, publishes nothing.
  std::atomic<bool> asked_{false};
  // Becomes true once. Release and acquire: whoever reads true comes after the event. A
  // connection that reads false misses nothing, because on_ready() follows.
  std::atomic<bool> peer_closed_{false};
  // How many bytes may still be written (invariant 3). Reduced under mutex_, reset by the poller's
  // thread without it. If a reset is lost to a reduction, the rest only waits for the next.
  // Relaxed: it is only a bound and publishes nothing.
  std::atomic<size_t> round_bytes_{kRoundBytes};
  bool spent_ WF_GUARDED_BY(mutex_) = false;  // the next run_queued() reports EPOLLOUT
  bool is_bounded_ WF_GUARDED_BY(mutex_) = true;
  int64_t deadline_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t queued_ns_ WF_GUARDED_BY(mutex_) = kNever;
  ByteQueue copied_ WF_GUARDED_BY(mutex_);                  // unsent; goes first
  std::vector<struct iovec> unsent_ WF_GUARDED_BY(mutex_);  // unsent; after copied_
  ByteQueue behind_ WF_GUARDED_BY(mutex_);                  // unsent; after unsent_
};

}  // namespace workflow
