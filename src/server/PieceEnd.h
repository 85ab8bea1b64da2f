#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "workflow/Runnable.h"

namespace workflow {

class ReplyStream;

// The entry by which a task of a streamed reply ends before its time: why it shall.
//
// Made for a task that can be interrupted; others have none. Who interrupts may hold C, which comes
// after the stream's T: so ask() takes no lock, and a handler's turn looks for the task among those
// that wait. Two use this, the task until it has ended, and that turn; the second of both frees it.
//
// Invariants:
// 1. Who takes the task out of those that wait, under T, ends it, here as everywhere.
// 2. A task comes to wait under T, and looks there whether it shall end. It is said before the turn
//    takes T; so either the turn finds the task, or the task finds that it shall end.
// 3. Under T a task is known by this. Its own address may be that of another one by then.
class PieceEnd final : public Runnable {
 public:
  explicit PieceEnd(std::shared_ptr<ReplyStream> stream) : stream_(std::move(stream)) {}
  PieceEnd(const PieceEnd&) = delete;
  PieceEnd& operator=(const PieceEnd&) = delete;

  // Once at most, while the task has not ended: it shall end with this errno value. The caller has
  // a handler give this its turn.
  void ask(int error);
  // That value, or 0.
  int error() const { return error_.load(std::memory_order_acquire); }
  // The task has ended, and nobody asks any more.
  void give_up() { unref(); }

  void take_turn() override;

 private:
  ~PieceEnd() override = default;
  void unref();

  const std::shared_ptr<ReplyStream> stream_;
  std::atomic<int> error_{0};
  std::atomic<int> users_{1};
};

}  // namespace workflow
