#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "store/StoreCall.h"
#include "store/StoreRequest.h"
#include "store/StoreRun.h"

namespace workflow {

// The end of a run, on its way to the store.
struct StoreFinish {
  StoreRequest request;
  std::shared_ptr<StoreRun> run;
  bool settled = false;   // the store has accepted or refused it, or nobody asks for it again
  bool in_doubt = false;  // the store may have accepted it, and its answer was lost
};

// What the thread of an engine has its backend carry out at a time, and the answers to it. Plain
// data that belongs to that thread.
struct StoreGroup {
  // In this order.
  std::vector<StoreFinish> finishes;
  std::optional<StoreRequest> extend;
  std::vector<std::shared_ptr<StoreCall>> calls;
  std::optional<StoreRequest> claim;
  std::optional<StoreRequest> look;

  std::vector<std::shared_ptr<StoreRun>> extended;  // the runs of `extend`
  bool has_begun = false;                           // the store may have seen the requests

  std::vector<StoreRequest*> requests() {
    std::vector<StoreRequest*> all;
    for (StoreFinish& finish : finishes) {
      all.push_back(&finish.request);
    }
    if (extend) {
      all.push_back(&*extend);
    }
    for (const std::shared_ptr<StoreCall>& call : calls) {
      all.push_back(&call->request);
    }
    for (std::optional<StoreRequest>* const own : {&claim, &look}) {
      if (*own) {
        all.push_back(&**own);
      }
    }
    return all;
  }
};

}  // namespace workflow
