#pragma once

#include <memory>
#include <utility>

#include "kernel/EndClaim.h"

namespace workflow {

class ReplyStream;

// The entry by which a task of a streamed reply ends before its time: why it shall.
//
// Made for a task that can be interrupted; others have none. Who interrupts may hold C, which comes
// after the stream's T: so a handler's turn looks for the task among those that wait.
//
// Invariants:
// 1. Who takes the task out of those that wait, under T, ends it, here as everywhere.
// 2. A task comes to wait under T, and looks there whether it shall end. It is said before the turn
//    takes T; so either the turn finds the task, or the task finds that it shall end.
// 3. Under T a task is known by this. Its own address may be that of another one by then.
class PieceEnd final : public EndClaim {
 public:
  explicit PieceEnd(std::shared_ptr<ReplyStream> stream) : stream_(std::move(stream)) {}
  // The task has ended, and nobody asks any more.
  void give_up() { unref(); }

  void take_turn() override;

 private:
  ~PieceEnd() override = default;

  const std::shared_ptr<ReplyStream> stream_;
};

}  // namespace workflow
