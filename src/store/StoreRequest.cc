#include "store/StoreRequest.h"

#include <type_traits>

namespace workflow {

void clear_answer(StoreRequest& request) {
  request.failure = StoreFailure();
  std::visit(
      [](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          what.timer = 0;
          what.answers.clear();
        } else if constexpr (std::is_same_v<What, CancelRequest> ||
                             std::is_same_v<What, RescheduleRequest>) {
          what.answers.clear();
        } else if constexpr (std::is_same_v<What, ClaimRequest>) {
          what.claimed.clear();
          what.next_us = kNeverUs;
          what.more = what.again = false;
        } else if constexpr (std::is_same_v<What, FinishRequest>) {
          what.accepted = false;
        } else if constexpr (std::is_same_v<What, ExtendRequest>) {
          what.extended.clear();
        } else if constexpr (std::is_same_v<What, AskRequest>) {
          what.found = false;
          what.result = WFStoreResult();
        } else if constexpr (std::is_same_v<What, CountRequest> ||
                             std::is_same_v<What, FailedRequest>) {
          what.count = 0;
        } else if constexpr (std::is_same_v<What, ListRequest>) {
          what.timers.clear();
          what.more = false;
          what.bytes = 0;
        } else {
          what.stored = 0;
          what.due = 0;
          what.overdue = 0;
          what.unhandled = 0;
          what.leased = 0;
          what.failed_timers = 0;
        }
      },
      request.what);
}

bool only_reads(const StoreRequest& request) {
  return std::holds_alternative<CountRequest>(request.what) ||
         std::holds_alternative<ListRequest>(request.what) ||
         std::holds_alternative<LookRequest>(request.what);
}

}  // namespace workflow
