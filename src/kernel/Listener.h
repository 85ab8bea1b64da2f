#pragma once

#include <atomic>
#include <functional>

#include "kernel/Poller.h"
#include "util/UniqueFd.h"

namespace workflow {

// Accepts connections on one listening socket, on one poller.
//
// Errors of accept(2) that concern a single connection, or are temporary, do not end it. If the
// process has run out of descriptors, it uses a descriptor kept for this purpose to accept and
// close the connection of one waiting client. Then it pauses for kPauseNs. So clients do not wait
// in vain, and the listener does not keep the processor busy.
//
// Has no owner: after close() it calls on_closed and deletes itself.
class Listener final : public IoHandler, public TimerNode, private Runnable {
 public:
  static constexpr int64_t kPauseNs = 100'000'000;

  // `on_accept` is called with each new connection, which is non-blocking, on the poller's thread.
  // `on_closed` is the last call.
  Listener(Poller& poller, UniqueFd fd, std::function<void(UniqueFd)> on_accept,
           std::function<void()> on_closed);

  // False with errno; then the caller deletes it.
  bool start();

  // Makes the listener stop accepting: what it accepts at this moment is its last connection. To be
  // called once, on any thread. Returns false if the poller has stopped: then the caller deletes
  // the listener, and on_closed is not called.
  bool close() {
    closing_.store(true, std::memory_order_relaxed);
    return poller_.post(this);
  }

  int fd() const { return fd_.get(); }

  ~Listener() override = default;

 private:
  // The most connections accepted in one round, so that a flood of them does not delay the data of
  // other connections.
  static constexpr int kMaxAccepts = 64;

  void on_events(uint32_t events, RunnableList& finished) override;
  void on_retired() override;
  void left_queue(bool stopped, RunnableList& finished) override;
  void run_queued() override;

  void out_of_descriptors();
  void pause();

  Poller& poller_;
  UniqueFd fd_;
  UniqueFd spare_;
  const std::function<void(UniqueFd)> on_accept_;
  const std::function<void()> on_closed_;
  bool paused_ = false;  // poller's thread only
  // Relaxed: it publishes nothing. The poller's thread ends the listener when it runs what was
  // posted.
  std::atomic<bool> closing_{false};
};

// Whether accept(2) may be called again after this error without a pause.
bool accept_error_is_transient(int error);

}  // namespace workflow
