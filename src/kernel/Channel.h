#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/Poller.h"
#include "kernel/Stream.h"
#include "util/Mutex.h"

namespace workflow {

// A stream on a poller: what the connections of servers and of clients have in common. References,
// events, one timeout that moves at no cost, writing what the socket does not take at once, and an
// end after which nothing is in flight. What is said over it, and when, is the derived class's.
// For datagrams it does the same, but for the writing.
//
// Threads. C is mutex_; order C, then the poller's P. Reading, timeouts and closing happen on the
// poller's thread alone, writing on any. No user code runs under C.
//
// Invariants:
// 1. The descriptor is closed on the poller's thread only, after retire(), or when the poller has
//    stopped.
// 2. References: one for the poller until it has retired the descriptor, others by retain(). With
//    the last of them end() is called, once.
// 3. What is written between two turns of the poller is bounded, whoever writes it and however fast
//    the peer reads, so that neither the poller's other work nor who wants C waits for long: beyond
//    kRoundBytes writing goes on in the next turn, as after an EAGAIN (spent_, then ask_poller()).
// 4. deadline_ns_ is what counts; the node is queued no later than that (or not at all for kNever),
//    so a deadline that only moves later costs no queue operation.
class Channel : public IoHandler, public TimerNode, protected Runnable {
 public:
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();

  // The peer has closed, half-closed or reset the connection. Any thread.
  bool peer_closed() const { return peer_closed_.load(std::memory_order_acquire); }
  // 0, or -1 with errno: ENOTCONN when it is closed, ENOBUFS when `*length` is too small.
  int peer_addr(struct sockaddr* address, socklen_t* length) const;

 protected:
  Channel(Poller& poller, UniqueFd fd) : poller_(poller), stream_(std::move(fd)) {}
  ~Channel() override = default;

  // Poller's thread, no lock held: something happened to the descriptor, or ask_poller() was
  // called (then `events` is 0, or EPOLLOUT: invariant 3). May be the last thing done with a
  // reference.
  virtual void on_ready(uint32_t events, RunnableList& finished) = 0;
  // Poller's thread: the deadline has passed. `stopped`: the poller ends, and no deadline will
  // pass any more; what waits for the peer ends now.
  virtual void on_deadline(bool stopped, RunnableList& finished) = 0;
  // Poller's thread: the descriptor is about to be closed.
  virtual void on_closing() = 0;
  // Deletes this. On a thread that may run user code which waits.
  virtual void end() = 0;

  // Registers the descriptor. 0, or -1 with errno.
  int watch() WF_REQUIRES(mutex_);
  // on_ready() is called soon on the poller's thread. False when the poller has stopped.
  bool ask_poller();
  // Poller's thread, once: no event or deadline comes any more, on_closing() does, and the
  // descriptor is closed.
  void retire();

  int64_t now_ns() const { return poller_.clock().now_ns(); }
  static int64_t timeout_ns(int ms) { return ms < 0 ? kNever : ms * kNsPerMs; }
  int64_t in_ns(int64_t duration_ns) const { return saturating_add(now_ns(), duration_ns); }
  // False when the poller will not tell: it has stopped, or memory has run out.
  bool set_deadline(int64_t deadline_ns) WF_REQUIRES(mutex_);
  // In on_deadline(): it may have been moved on the way there.
  bool deadline_passed() const WF_REQUIRES(mutex_) { return deadline_ns_ <= now_ns(); }

  // Each writes as far as the socket takes it: 0 when all has left, EAGAIN when the rest is kept
  // for resume_writing(), or an errno. The vectors are used up; what they point to stays until all
  // has left or forget_unsent().
  int write_out(struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  int resume_writing() WF_REQUIRES(mutex_);
  // Of a copy that goes before everything not yet written.
  int write_copy(const void* data, size_t size) WF_REQUIRES(mutex_);
  // Of a copy that goes after it.
  int write_behind(const void* data, size_t size) WF_REQUIRES(mutex_);
  size_t unsent_bytes() const WF_REQUIRES(mutex_);
  // Of them those that are not the user's, a TLS record under way included.
  size_t copied_bytes() const WF_REQUIRES(mutex_) {
    return copied_.size() + behind_.size() + stream_.unsent_bytes();
  }
  // The vectors not yet written, and what was to go after them.
  void forget_unsent() WF_REQUIRES(mutex_);
  // on_ready() is called with EPOLLOUT soon; see ask_poller().
  bool ask_for_turn_of_writing() WF_REQUIRES(mutex_);
  // Datagrams, which leave whole: without regard to invariant 3.
  void write_unbounded() WF_REQUIRES(mutex_) { is_bounded_ = false; }
  // Without regard to invariant 3: where the poller stops, and will not go on with what is unsent;
  // or where it is little.
  int resume_without_bound() WF_REQUIRES(mutex_);

  Poller& poller_;
  mutable Mutex mutex_;  // C
  Stream stream_ WF_GUARDED_BY(mutex_);

 private:
  static constexpr size_t kRoundBytes = 64 * 1024;

  // Of the poller.
  void on_events(uint32_t events, RunnableList& finished) final;
  void on_retired() final;
  void left_queue(bool stopped, RunnableList& finished) final;
  void take_turn() final;

  int write_copied() WF_REQUIRES(mutex_);
  // As Stream::write(), within invariant 3.
  ssize_t write_some(struct iovec* vectors, int count) WF_REQUIRES(mutex_);

  std::atomic<int> references_{1};
  std::atomic<bool> asked_{false};  // take_turn() is queued at the poller
  std::atomic<bool> peer_closed_{false};
  // What may still be written in this turn: spent under C, replenished by the poller.
  std::atomic<size_t> round_bytes_{kRoundBytes};
  bool spent_ WF_GUARDED_BY(mutex_) = false;
  bool is_bounded_ WF_GUARDED_BY(mutex_) = true;
  int64_t deadline_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t queued_ns_ WF_GUARDED_BY(mutex_) = kNever;
  std::string copied_ WF_GUARDED_BY(mutex_);                // not yet sent
  std::vector<struct iovec> unsent_ WF_GUARDED_BY(mutex_);  // after that
  std::string behind_ WF_GUARDED_BY(mutex_);                // after those
};

}  // namespace workflow
