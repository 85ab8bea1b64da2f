#pragma once

#include <optional>
#include <string>

#include "store/StoreRequest.h"

namespace workflow {

// The answers to requests with an id, as rule 12 of StoreBackend.h has them, over whatever keeps
// them as text.
//
// Used by one thread at a time.
class StoreAnswers {
 public:
  virtual ~StoreAnswers() = default;

  // If the request has an id that was answered or used up before, gives it that answer and returns
  // true: then it is not carried out.
  bool repeat(StoreRequest& request);
  // Remembers the answer to a request that was carried out. No effect if it has no id.
  void add(const StoreRequest& request);
  // Looks for the answer to another request. An id that is not found is used up.
  void carry_out(AskRequest& request, StoreFailure& failure);

 protected:
  enum class Found {
    kNo,        // it was not carried out
    kYes,       // its answer is in the result
    kUsedUp,    // another request has asked for it in vain
    kForgotten  // it may have been carried out
  };
  virtual Found find(const WFStoreRequestId& id, WFStoreResult& result) = 0;
  // Keeps the answer to a request that was not found. Without an answer its id is used up.
  virtual void keep(const WFStoreRequestId& id, std::optional<std::string>&& answer) = 0;
};

}  // namespace workflow
