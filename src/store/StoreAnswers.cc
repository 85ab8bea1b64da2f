#include "store/StoreAnswers.h"

#include <cerrno>

#include "store/SqliteAnswerText.h"

namespace workflow {

bool StoreAnswers::repeat(StoreRequest& request) {
  if (request.id.number == 0) return false;
  WFStoreResult result;
  switch (find(request.id, result)) {
    case Found::kYes:
      set_result(result, &request);
      return true;
    case Found::kUsedUp:
      request.failure.error = ECANCELED;
      request.failure.message = "its id was asked for, and is used up";
      return true;
    case Found::kNo:
    case Found::kForgotten:
      break;
  }
  return false;
}

void StoreAnswers::add(const StoreRequest& request) {
  if (request.id.number != 0) {
    keep(request.id, encode_answer(result_of(request)));
  }
}

void StoreAnswers::carry_out(AskRequest& request, StoreFailure& failure) {
  request.result = WFStoreResult();
  switch (find(request.asked, request.result)) {
    case Found::kYes:
      request.found = true;
      break;
    case Found::kForgotten:
      failure.error = ENODATA;
      failure.message = "the store does not remember requests from so long ago";
      break;
    case Found::kNo:
      keep(request.asked, std::nullopt);
      break;
    case Found::kUsedUp:
      break;
  }
}

}  // namespace workflow
