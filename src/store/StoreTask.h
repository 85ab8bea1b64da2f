#pragma once

#include <memory>

#include "store/StoreEngine.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// A request as a task. It waits for its StoreCall, which claims it when the answer has come: until
// then a scope or the stop of the library may end it.
class StoreTask final : public WFStoreTask {
 public:
  // `refusal`: the request is wrong, and the task ends with that error when it is dispatched.
  StoreTask(std::shared_ptr<StoreEngine> engine, StoreRequest&& request, StoreFailure refusal,
            WFTimerStore::Callback&& callback);

  void dispatch() override;

  // In place of a start: the calling thread waits for the answer. The task is freed without a
  // callback.
  WFStoreResult run_and_free();

  // For the StoreCall, which holds its mutex. Returns false if the task has ended for another
  // reason. After true, the task stays alive until finish().
  bool take_answer() { return claim(); }
  // After take_answer(), without the mutex.
  void finish(WFStoreResult&& result);

  // What a user sees of a request that was answered, or has failed.
  static WFStoreResult result_of(StoreRequest& request, const WFStoreReceipt& receipt);
  // Whether it makes a difference to the user that the answer to this request is not known.
  static bool can_be_in_doubt(const StoreRequest& request);

 private:
  ~StoreTask() override = default;
  SubTask* done() override;
  void leave_waiting() override;
  void refuse(StoreFailure&& failure);
  // Returns 0, or why the request was not submitted.
  StoreFailure submit() noexcept;
  StoreFailure try_to_submit();

  const std::shared_ptr<StoreEngine> engine_;
  const std::shared_ptr<StoreCall> call_;
  const StoreFailure refusal_;
};

}  // namespace workflow
