#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "util/Mutex.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class ExposedWork;
class StallWatch;

// Work that a thread, its owner, does piece by piece, for example the tasks that it dispatches one
// after the other. User code that runs in one piece may block or compute for long. So the pieces
// that are left are exposed while user code runs: if it goes on for long, the runtime's StallWatch
// gives them to the handler threads. If it announces that it blocks (BlockingScope), the owner does
// so at once.
//
// Lives on the stack of its owner. Only the owner calls its functions.
//
// Invariants:
// 1. A piece is in pieces_ until the owner begins it, or a thread gives it away, which moves it
//    into the queue of a pool. So it begins once, and it is always in one of these places while the
//    owner has not ended: whoever finds the owner idle and the pools empty finds nothing left.
// 2. The owner alone uses pieces_, except from expose() to the next take_back(). In that time only
//    a thread that has changed kExposed to kTaken uses them, while this is ExposedWork::giving_.
//    take_back() waits for that thread.
// 3. From its first exposure to the end of its destructor this is in the list of an ExposedWork,
//    under whose mutex it enters and leaves. So whoever finds it there under that mutex finds it
//    alive. It cannot leave while it is giving_.
// 4. While user code runs in a piece of it, is_open_ is true. If when_ is kWhenHeldUp and the
//    runtime watches the work of this thread, the pieces that are left are exposed meanwhile, also
//    those that were added since. If it is open, so is all work around it.
class PendingWork {
 public:
  // Posts the pieces for other threads. Those for which there is no memory stay in the list. May be
  // called by any thread.
  using Give = void (*)(RunnableList& pieces);
  // When pieces are given away: only when the owner announces that it blocks, or also when somebody
  // else notices that a piece takes long.
  enum class Gives { kWhenItBlocks, kWhenHeldUp };

  // `owner` is not the thread, but an address that tells this work from other pending work of the
  // thread.
  PendingWork(const void* owner, RunnableList& pieces, Give give, Gives when);
  ~PendingWork();
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  const void* owner() const { return owner_; }

  // The next piece, which the caller begins; null if none is left.
  Runnable* next();
  // Adds pieces behind those that are left. May be called within a piece. If the thread has
  // announced that it blocks, they are given away at once.
  void add(RunnableList& pieces);

  // Called when user code is about to run, at least once in each piece that runs some. Exposes
  // `innermost` and all work around it: all pending work of the calling thread.
  static void expose_all(PendingWork* innermost) {
    for (PendingWork* work = innermost; work && !work->is_open_; work = work->outer_) {
      work->open();
    }
  }
  // Called when the thread is about to block. Gives away all pending work of the calling thread.
  static void give_all();

 private:
  friend class ExposedWork;
  enum class State : uint8_t { kOwned, kExposed, kTaken };

  void open();
  // Exposes what is left, if the runtime watches such work.
  void expose();
  // Makes state_ kOwned. If pieces were taken, they have been given away when this returns.
  void take_back();

  const void* const owner_;
  PendingWork* const outer_;
  const Give give_;
  const Gives when_;
  bool is_open_ = false;  // used by the owner only
  RunnableList pieces_;
  // The owner exposes with release, and whoever takes acquires, so it sees the pieces as the owner
  // has left them. That store, and the load by which a look tells whether there is exposed work,
  // are seq_cst for the reason given at StallWatch::awake_. An owner that takes back needs no order
  // if nobody has taken. Otherwise it waits under the mutex of ExposedWork until the other thread
  // has done, which orders the two.
  std::atomic<State> state_{State::kOwned};
  // How many pieces of this have run user code. Relaxed: it only tells a later look whether the
  // owner was still in the same piece. If a look reads an old number, pieces are given away too
  // early; who has them is decided by state_.
  std::atomic<uint64_t> turn_{0};

  // Whose exposed() lists this; null before the first exposure. Used by the owner only.
  StallWatch* watch_ = nullptr;

  // The list of ExposedWork; guarded by its mutex.
  PendingWork* before_ = nullptr;
  PendingWork* after_ = nullptr;
  uint64_t seen_turn_ = 0;   // turn_ at the last look, if this was exposed then; 0: it was not
  int64_t seen_cpu_ns_ = 0;  // the processor time of the owner when a look saw that turn first
  uint64_t seen_look_ = 0;   // the number of the last look
  pid_t thread_ = 0;         // the owner; 0 in a simulation
  clockid_t cpu_clock_ = 0;  // of the owner
};

// The list of the pending work of a runtime's threads that is exposed now, or was exposed during an
// earlier piece. Any thread may add or remove its work. One thread at a time may call look(). The
// list must be empty when this is destroyed.
class ExposedWork {
 public:
  ExposedWork() = default;
  ~ExposedWork();
  ExposedWork(const ExposedWork&) = delete;
  ExposedWork& operator=(const ExposedWork&) = delete;

  // To be called before any work is exposed. Otherwise none ever is.
  void enable() { is_enabled_ = true; }

  // Gives away the pieces of each work whose owner is in the same piece as at an earlier look, and
  // sleeps, or has used kBusyNs of a processor since. An owner that only waits for a processor is
  // left alone: on a busy machine the others would wait beside it. In a simulation two looks are
  // enough. To be called by one thread at a time. Returns whether some work is still exposed, so
  // that a later look may have to give it away. Work that is only listed, since nothing of it is
  // left or a thread has taken what was, needs no look until its owner exposes it again.
  bool look();

 private:
  friend class PendingWork;
  static constexpr int64_t kBusyNs = 250'000;

  static bool is_held_up(const PendingWork& work);
  void add(PendingWork* work);
  void remove(PendingWork* work);
  // Waits until the thread that has taken the pieces of `work` has given them away.
  void wait_for_giver(const PendingWork* work);
  // Looks at the works that the look of this number has not seen yet, until it has taken the pieces
  // of one. Returns that; null if there is none.
  PendingWork* take_stuck() WF_REQUIRES(mutex_);
  bool any_exposed() const WF_REQUIRES(mutex_);

  bool is_enabled_ = false;
  Mutex mutex_;
  CondVar given_;
  PendingWork* first_ WF_GUARDED_BY(mutex_) = nullptr;
  const PendingWork* giving_ WF_GUARDED_BY(mutex_) = nullptr;  // its pieces are being given away
  uint64_t look_ WF_GUARDED_BY(mutex_) = 0;                    // the number of the last look
};

}  // namespace workflow
