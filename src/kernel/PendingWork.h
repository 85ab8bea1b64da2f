#pragma once

#include <atomic>
#include <cstdint>

#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class ExposedWork;
class StallWatch;

// Work that a thread, its owner, does piece by piece, for example the tasks that it dispatches one
// after the other. User code that runs in one piece may block or compute for long. So the pieces
// that are left are exposed while user code runs: if it goes on for long, the runtime's StallWatch
// gives them to other threads. If it announces that it blocks (BlockingScope), the owner does so at
// once.
//
// Lives on the stack of its owner. Only the owner calls its functions.
//
// Invariants:
// 1. A piece is in pieces_ until the owner begins it or it is given away, so it begins once.
// 2. The owner uses pieces_ only while state_ is kOwned. Another thread uses it only after it has
//    changed kExposed to kTaken, and until it releases the mutex of ExposedWork.
// 3. From its first exposure to the end of its destructor this is in the list of an ExposedWork,
//    under whose mutex it enters and leaves. So whoever finds it there under that mutex finds it
//    alive.
class PendingWork {
 public:
  // Lets other threads begin the pieces, and leaves the list empty. Called by any thread, which
  // holds no lock.
  using Give = void (*)(RunnableList& pieces);

  // `owner` distinguishes this work from other pending work of the thread.
  PendingWork(const void* owner, RunnableList& pieces, Give give);
  ~PendingWork();
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  const void* owner() const { return owner_; }

  // The next piece, which the caller begins; null if none is left.
  Runnable* next();
  // Adds pieces behind those that are left. May be called within a piece.
  void add(RunnableList& pieces);

  // Called when user code is about to run. Exposes all pending work of the calling thread. Where
  // there is none, or all is exposed already, this costs a load or two.
  static void expose_all(PendingWork* innermost) {
    for (PendingWork* work = innermost; work && work->is_owned(); work = work->outer_) {
      work->expose();
    }
  }
  // Called when the thread is about to block. Gives away all pending work of the calling thread.
  static void give_all();

 private:
  friend class ExposedWork;
  enum class State : uint8_t { kOwned, kExposed, kTaken };

  bool is_owned() const { return state_.load(std::memory_order_relaxed) == State::kOwned; }
  void expose();
  // Makes state_ kOwned. If the pieces were taken, they have left the list when this returns.
  void take_back();

  const void* const owner_;
  PendingWork* const outer_;
  const Give give_;
  RunnableList pieces_;
  // The owner exposes with release, and whoever takes acquires, so it sees the pieces as the owner
  // has left them. The owner takes back with acquire, which only matters after kTaken: then it
  // also locks the mutex of ExposedWork, under which the pieces have left.
  std::atomic<State> state_{State::kOwned};
  // How often this was exposed. Relaxed: it only tells a later look whether the owner was still in
  // the same piece. If it reads an old number, the exchange of state_ decides who has the pieces.
  std::atomic<uint32_t> turn_{0};

  // The list of ExposedWork; guarded by its mutex, but for list_, which only the owner changes.
  ExposedWork* list_ = nullptr;
  PendingWork* before_ = nullptr;
  PendingWork* after_ = nullptr;
  uint32_t seen_turn_ = 0;  // turn_ at the last look, if this was exposed then
  uint32_t seen_look_ = 0;  // the last look
};

// The pending work of all threads of a runtime that was ever exposed. Any thread.
class ExposedWork {
 public:
  ExposedWork() = default;
  ExposedWork(const ExposedWork&) = delete;
  ExposedWork& operator=(const ExposedWork&) = delete;

  // Gives away the pieces of each work whose owner is in the same piece as at the last look. One
  // thread at a time. Returns whether there is any work.
  bool look();

 private:
  friend class PendingWork;

  void add(PendingWork* work);
  void remove(PendingWork* work);
  // Waits for a thread that has taken pieces to have moved them.
  void wait_for_taker() { const MutexLock lock(mutex_); }
  // Looks at the works that look number look_ has not seen yet, until it has moved the pieces of
  // one to `taken`. Returns how to give them; null if there are none.
  PendingWork::Give take_stuck(RunnableList& taken) WF_REQUIRES(mutex_);

  Mutex mutex_;
  PendingWork* first_ WF_GUARDED_BY(mutex_) = nullptr;
  uint32_t look_ WF_GUARDED_BY(mutex_) = 0;
};

}  // namespace workflow
