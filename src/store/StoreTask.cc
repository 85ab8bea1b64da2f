#include "store/StoreTask.h"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "store/StoreText.h"

namespace workflow {

namespace {

template <class... CASES>
struct Cases : CASES... {
  using CASES::operator()...;
};
template <class... CASES>
Cases(CASES...) -> Cases<CASES...>;

}  // namespace

StoreTask::StoreTask(std::shared_ptr<StoreEngine> engine, StoreRequest&& request, Details details,
                     StoreFailure refusal, WFTimerStore::Callback&& callback)
    : WFStoreTask(std::move(callback)),
      engine_(std::move(engine)),
      call_(std::make_shared<StoreCall>(std::move(request))),
      details_(std::move(details)),
      refusal_(std::move(refusal)) {
  assert(call_);
  const auto* const ask = std::get_if<AskRequest>(&call_->request.what);
  id_ = ask ? ask->asked : call_->request.id;
}

const WFStoreRequestId& StoreTask::request_id() const {
  if (details_.chooses_id && id_.number == 0) {
    id_ = engine_->next_id();
    call_->request.id = id_;
  }
  return id_;
}

void StoreTask::dispatch() {
  if (refusal_.error != 0 || cancel_reason() == 0) {
    call_->will_answer(*this);
    StoreFailure failure = submit();
    if (failure.error != 0) {
      refuse(std::move(failure));
    }
  }
  WFStoreTask::dispatch();
}

WFStoreResult StoreTask::run_and_free() {
  StoreWaiter waiter;
  call_->will_answer(waiter);
  StoreFailure failure = submit();
  WFStoreResult result;
  if (failure.error == 0) {
    result = waiter.wait();
    result.request = id_;
  } else {
    result = std::move(result_);
    result.request = request_id();
    result.state = WFT_STATE_SYS_ERROR;
    result.error = failure.error;
    result.message = std::move(failure.message);
  }
  dismiss();
  return result;
}

StoreFailure StoreTask::submit() noexcept {
  try {
    return try_to_submit();
  } catch (const std::bad_alloc&) {
    return {ENOMEM, {}, false};  // only texts of refusals need memory
  }
}

StoreFailure StoreTask::try_to_submit() {
  if (refusal_.error != 0) return refusal_;
  if (details_.due) {
    StoreFailure failure = details_.due->write_to(call_->request, engine_->now_us());
    if (failure.error != 0) return failure;
  }
  const bool chooses_id = details_.chooses_id && id_.number == 0;
  const int refusal = engine_->submit(call_, chooses_id ? &id_ : nullptr);
  switch (refusal) {
    case 0:
      return {};
    case ESHUTDOWN:
      return {refusal, "the store is closed", false};
    case EAGAIN:
      return {refusal, "too many requests wait for the store", false};
    case ECHILD:
      return {refusal, "the store was opened before a fork", false};
    default:
      return {refusal, std::strerror(refusal), false};
  }
}

void StoreTask::refuse(StoreFailure&& failure) {
  if (claim()) {
    state = WFT_STATE_SYS_ERROR;
    error = failure.error;
    result_.message = std::move(failure.message);
    publish();
  }
}

void StoreTask::leave_waiting() {
  const bool taken = engine_->withdraw(*call_);
  const bool in_doubt = taken && id_.number != 0;
  if (in_doubt) {
    call_->put_in_doubt(result_);
  }
  try {
    result_.message = in_doubt ? "ended before the store had answered"
                               : "ended before the store had seen the request";
  } catch (const std::bad_alloc&) {
    // The error and the verdict have to do.
  }
}

void StoreTask::finish(WFStoreResult&& result, RunnableList& posted) {
  result_ = std::move(result);
  state = result_.state;
  error = result_.error;
  if (publish()) {
    complete_elsewhere(posted);
  }
}

SubTask* StoreTask::done() {
  result_.state = state;
  result_.error = error;
  result_.request = request_id();
  return call_back(static_cast<WFStoreTask*>(this), callback_);
}

bool StoreTask::can_be_in_doubt(const StoreRequest& request) {
  return request.id.number != 0 || std::holds_alternative<AskRequest>(request.what);
}

WFStoreResult StoreTask::result_of(StoreRequest& request, const WFStoreReceipt& receipt) {
  WFStoreResult result;
  const Cases read = {
      [&](ScheduleRequest& what) {
        result.timer = what.timer;
        result.answers = std::move(what.answers);
      },
      [&](CancelRequest& what) { result.answers = std::move(what.answers); },
      [&](RescheduleRequest& what) { result.answers = std::move(what.answers); },
      [&](AskRequest& what) {
        result = std::move(what.result);
        if (!what.found) {
          result.answers.resize(1);
          result.answers[0].verdict = WFStoreVerdict::kUnknown;
        }
      },
      [&](CountRequest& what) { result.count = what.count; },
      [&](ListRequest& what) {
        if (what.more && !what.timers.empty()) {
          result.cursor = StoreText::cursor_at(what.timers.back());
        }
        result.timers = std::move(what.timers);
      },
      [&](FailedRequest& what) { result.count = what.count; },
      [](ClaimRequest&) {},
      [](FinishRequest&) {},
      [](ExtendRequest&) {},
      [](LookRequest&) {},
  };
  const StoreFailure& failure = request.failure;
  if (failure.error == 0) {
    std::visit(read, request.what);
    result.receipt = receipt;
    return result;
  }
  result.state = WFT_STATE_SYS_ERROR;
  result.error = failure.error;
  result.message = failure.message.empty() ? std::strerror(failure.error) : failure.message;
  // What an unanswered request has led to is as unknown as before if asking fails.
  const bool asks = std::holds_alternative<AskRequest>(request.what);
  if (can_be_in_doubt(request) && (asks ? failure.error != ENODATA : failure.in_doubt)) {
    result.answers.resize(1);
    result.answers[0].verdict = WFStoreVerdict::kInDoubt;
  }
  return result;
}

}  // namespace workflow
