#pragma once

#include <array>
#include <cstddef>

#include "kernel/Runtime.h"
#include "util/Mutex.h"
#include "workflow/WFWaitingTask.h"

namespace workflow {

// The waiting tasks of a runtime. Those that are started and not completed are listed here, so that
// the stop finds them. Those that have ended or were dismissed while somebody may still use their
// address are parked here until their last user has come, or until the runtime is gone. An aborted
// task has no last user. See WaitingTask for the protocol.
//
// Thread-safe. A task in a list is alive as long as the mutex of the list is held, because it is
// taken out before it is completed or freed. Nothing is called under that mutex.
class WaitingTasks final : public RuntimePart {
 public:
  ~WaitingTasks() override;

  static WaitingTasks& current() { return Runtime::current().part<WaitingTasks>(); }

  enum class Start { kWaits, kEnds };
  // Starts the task. kEnds: the caller owns the completion, because the task was published already,
  // or because the waits of this runtime have ended and nobody has claimed the task; in this case
  // it is aborted. After kWaits the task may be gone.
  Start start(WaitingTask* task);

  // Keeps a task that has no owner, but whose address somebody may still use. Its last user passes
  // it to remove() and frees it; without one, the destructor of this object does.
  void park(WaitingTask* task);

  // Takes the task out of its list, if any. For the owner of the completion, or the last user of a
  // parked task.
  static void remove(WaitingTask* task);

  // RuntimePart
  void end_waits(Runtime& runtime) override;

 private:
  // There are enough lists that threads seldom contend.
  static constexpr size_t kLists = 64;

  struct alignas(64) List {
    Mutex mutex;
    WaitingTask* head WF_GUARDED_BY(mutex) = nullptr;

    void insert(WaitingTask* task) WF_REQUIRES(mutex);
    void erase(WaitingTask* task) WF_REQUIRES(mutex);
    // Returns null if the list is empty.
    WaitingTask* pop();
  };

  List& list_of(const WaitingTask* task);
  // Aborts the tasks of the list that nobody has claimed. Takes them out of the list and returns
  // them.
  static RunnableList abort_all(List& list);
  // Returns false if somebody has claimed the task.
  static bool abort(WaitingTask* task);

  std::array<List, kLists> waiting_;
  List parked_;
};

}  // namespace workflow
