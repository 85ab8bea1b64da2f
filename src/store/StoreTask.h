#pragma once

#include <memory>
#include <optional>

#include "store/StoreDue.h"
#include "store/StoreEngine.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// A request as a task. It waits for the answer to its StoreCall. When the answer has come, the call
// becomes the owner of the task's completion (take_answer()). Until then a scope or the stop of the
// library may end the task.
class StoreTask final : public WFStoreTask {
 public:
  // What else there is to know of a request.
  struct Details {
    // Of a ScheduleRequest or a RescheduleRequest. It is written into the request when that is
    // submitted, so that a delay counts from then.
    std::optional<StoreDue> due;
    // It gets an id of the engine when it is submitted, or earlier if the user asks for the id. So
    // the numbers are in the order of the requests, unless a user has asked.
    bool chooses_id = false;
  };
  // `refusal`: the request is wrong, and the task ends with that error when it is dispatched.
  StoreTask(std::shared_ptr<StoreEngine> engine, StoreRequest&& request, Details details,
            StoreFailure refusal, WFTimerStore::Callback&& callback);

  const WFStoreRequestId& request_id() const override;

  void dispatch() override;

  // In place of a start: the calling thread waits for the answer. The task is freed without a
  // callback.
  WFStoreResult run_and_free();

  // For the StoreCall, which holds its mutex. Returns false if the task has ended for another
  // reason. After true, the task stays alive until finish().
  bool take_answer() { return claim(); }
  // After take_answer(), without the mutex. Appends the task to the list, unless its dispatch or a
  // canceller is going to complete it; whoever has the list posts it to the handlers.
  void finish(WFStoreResult&& result, RunnableList& posted);

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
  const Details details_;
  const StoreFailure refusal_;
  // Of the request, or of the one that is asked for. Its number is 0 while it is not chosen, and
  // for requests without an id.
  mutable WFStoreRequestId id_;
};

}  // namespace workflow
