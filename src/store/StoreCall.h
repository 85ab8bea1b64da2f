#pragma once

#include <vector>

#include "kernel/LendingCondition.h"
#include "store/StoreRequest.h"
#include "util/Mutex.h"
#include "workflow/WFTimerStore.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class StoreTask;

// A thread that waits for the answer to one request. Lives on its stack.
class StoreWaiter {
 public:
  // Called once. The waiter may be gone when this returns.
  void answer(WFStoreResult&& result);
  WFStoreResult wait();

 private:
  // Created first: a thread of the library that waits is to be lent.
  LendingCondition::Waiter waiter_{{"a call of WFTimerStore", nullptr, nullptr}};
  Mutex mutex_;
  LendingCondition answered_;
  bool has_answer_ WF_GUARDED_BY(mutex_) = false;
  WFStoreResult result_ WF_GUARDED_BY(mutex_);
};

// A request of a user on its way to the store and back. Either a task or a thread waits for its
// answer. The task or thread and the engine share the call.
//
// 1. Exactly one of answer() and withdraw() ends the call for what waits. The other one, and every
//    later answer(), does nothing but free what it was given.
// 2. A task that waits withdraws before it ends for another reason. So it is alive when answer()
//    finds it. A thread stays until it has its answer.
// 3. `request` is used by one thread at a time: before submit() by the thread that makes the call,
//    and from then on by the thread of the engine.
//
// Thread-safe but for rule 3. The mutex is a leaf.
class StoreCall {
 public:
  explicit StoreCall(StoreRequest&& its_request) : request(std::move(its_request)) {}

  StoreRequest request;
  int64_t submitted_ns = 0;  // when it was submitted, by monotonic_now_ns()

  // Names the task or the thread that waits. One of these is called, once, before the call is
  // submitted.
  void will_answer(StoreTask& task);
  void will_answer(StoreWaiter& waiter);

  // The store is about to see the request. Returns false if nothing waits any more; then the store
  // does not see it.
  bool take();
  // The task has ended for another reason. Returns whether the store may have seen the request.
  bool withdraw();
  // Gives the result to the task or thread that waits. `in_doubt`: its only answer is kInDoubt. A
  // task that ends thereby is appended to the list, and whoever has the list posts it to the
  // handlers.
  void answer(WFStoreResult&& result, bool in_doubt, RunnableList& posted);
  // Makes kInDoubt the only answer of the result, without memory. For the thread that ends the
  // call.
  void put_in_doubt(WFStoreResult& result);

 private:
  Mutex mutex_;
  StoreTask* task_ WF_GUARDED_BY(mutex_) = nullptr;
  StoreWaiter* waiter_ WF_GUARDED_BY(mutex_) = nullptr;
  bool taken_ WF_GUARDED_BY(mutex_) = false;
  std::vector<WFStoreAnswer> in_doubt_ = std::vector<WFStoreAnswer>(1);
};

}  // namespace workflow
