#pragma once

#include <functional>

#include "kernel/Poller.h"
#include "util/UniqueFd.h"

namespace workflow {

// Accepts connections on one listening socket, on one poller.
//
// Errors of accept(2) that belong to a single connection, or will pass, do not end it. Without
// descriptors it answers one waiting client by closing its connection, with a descriptor kept for
// that, and rests for kPauseNs: clients are not left hanging, and the processor is not either.
//
// Owned by nobody: it deletes itself after close(), and tells by on_closed.
class Listener final : public IoHandler, public TimerNode, private Runnable {
 public:
  static constexpr int64_t kPauseNs = 100'000'000;

  // `on_accept` gets each new connection, non-blocking, on the poller's thread; `on_closed` is the
  // last call.
  Listener(Poller& poller, UniqueFd fd, std::function<void(UniqueFd)> on_accept,
           std::function<void()> on_closed);

  // False with errno; then the caller deletes it.
  bool start();

  // Stops accepting, soon; once, from any thread. False when the poller has stopped: the caller
  // deletes it then, and on_closed is not called.
  bool close() { return poller_.post(this); }

  int fd() const { return fd_.get(); }

  ~Listener() override = default;

 private:
  // Connections accepted per round, so that a flood of them does not hold up the others' bytes.
  static constexpr int kMaxAccepts = 64;

  void on_events(uint32_t events, RunnableList& finished) override;
  void on_retired() override;
  void left_queue(bool stopped, RunnableList& finished) override;
  void take_turn() override;

  void out_of_descriptors();
  void pause();

  Poller& poller_;
  UniqueFd fd_;
  UniqueFd spare_;
  const std::function<void(UniqueFd)> on_accept_;
  const std::function<void()> on_closed_;
  bool paused_ = false;  // poller's thread only, like closing_
  bool closing_ = false;
};

// Whether accept(2) may be called again after this error without a pause.
bool accept_error_is_transient(int error);

}  // namespace workflow
