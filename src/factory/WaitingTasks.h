#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "kernel/Runtime.h"
#include "util/Mutex.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

// The waiting tasks of a runtime: those that are started and not completed, so that the stop finds
// them; those that were aborted, and those that are dropped but still pointed to, until the runtime
// is gone. See WaitingTask for the protocol.
//
// Thread-safe. W is the mutex of a list. Under W a task in the list is alive: who completes or
// frees it takes it out first. Nothing is called under W.
class WaitingTasks final : public RuntimePart {
 public:
  ~WaitingTasks() override;

  static WaitingTasks& current() { return Runtime::current().part<WaitingTasks>(); }

  enum class Start { kWaits, kEnds };
  // The start of the task. kEnds: the caller owns the completion, as it was published, or because
  // the waits of this runtime have ended: then the task is aborted.
  Start start(WaitingTask* task);

  // A task that has no owner but those who still point to it. remove() it before it is freed.
  void park(WaitingTask* task);

  // Takes the task out of the list it is in, if any.
  static void remove(WaitingTask* task);

  // An aborted task after its callback.
  void keep(WaitingTask* task);

  // RuntimePart
  void end_waits(Runtime& runtime) override;

 private:
  // Enough that threads seldom meet.
  static constexpr size_t kLists = 64;

  struct alignas(64) List {
    Mutex mutex;  // W
    WaitingTask* head WF_GUARDED_BY(mutex) = nullptr;

    void insert(WaitingTask* task) WF_REQUIRES(mutex);
    void erase(WaitingTask* task) WF_REQUIRES(mutex);
  };

  List& list_of(const WaitingTask* task);
  // Aborts the tasks of the list that nobody has claimed; they are not in it then.
  static RunnableList abort_all(List& list);
  // False when somebody has claimed the task.
  static bool abort(WaitingTask* task);

  std::array<List, kLists> waiting_;
  List parked_;
  Mutex kept_mutex_;
  RunnableList kept_ WF_GUARDED_BY(kept_mutex_);
};

}  // namespace workflow
