#include "store/SqliteAnswerText.h"

#include <type_traits>

#include "store/StoreBytes.h"
#include "store/StoreTime.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kLeastAnswerBytes = 8;  // one for each field

}  // namespace

std::string encode_answer(const WFStoreResult& result) {
  std::string out;
  StoreBytes::put(out, kVersion);
  StoreBytes::put(out, static_cast<uint64_t>(result.error));
  StoreBytes::put(out, result.message);
  StoreBytes::put(out, result.timer);
  StoreBytes::put(out, result.count);
  StoreBytes::put(out, result.answers.size());
  for (const WFStoreAnswer& answer : result.answers) {
    StoreBytes::put(out, static_cast<uint64_t>(answer.verdict));
    StoreBytes::put(out, answer.timer);
    StoreBytes::put(out, answer.owner);
    StoreBytes::put(out, answer.fence);
    StoreBytes::put(out, static_cast<uint64_t>(answer.lease_left.count()));
    StoreBytes::put(out, answer.attempts);
    StoreBytes::put(out, static_cast<uint64_t>(answer.outcome));
    StoreBytes::put(out, static_cast<uint64_t>(us_of_time(answer.when)));
  }
  return out;
}

bool decode_answer(std::string_view bytes, WFStoreResult* result) {
  StoreBytes::Reader reader(bytes);
  if (reader.number() != kVersion) return false;
  result->error = static_cast<int>(reader.number());
  result->state = result->error ? WFT_STATE_SYS_ERROR : WFT_STATE_SUCCESS;
  result->message = reader.text();
  result->timer = reader.number();
  result->count = reader.number();
  const uint64_t answers = reader.number();
  if (answers > reader.left() / kLeastAnswerBytes) return false;
  result->answers.clear();
  for (uint64_t i = 0; i < answers && reader.good(); i++) {
    WFStoreAnswer& answer = result->answers.emplace_back();
    answer.verdict = static_cast<WFStoreVerdict>(reader.number());
    answer.timer = reader.number();
    answer.owner = reader.text();
    answer.fence = reader.number();
    answer.lease_left = std::chrono::microseconds(reader.number());
    answer.attempts = static_cast<unsigned>(reader.number());
    answer.outcome = static_cast<WFStoreOutcome>(reader.number());
    answer.when = time_of_us(static_cast<int64_t>(reader.number()));
  }
  return reader.good() && reader.left() == 0;
}

WFStoreResult result_of(const StoreRequest& request) {
  WFStoreResult result;
  result.error = request.failure.error;
  result.state = result.error ? WFT_STATE_SYS_ERROR : WFT_STATE_SUCCESS;
  result.message = request.failure.message;
  std::visit(
      [&result](const auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          result.timer = what.timer;
        }
        if constexpr (std::is_same_v<What, ScheduleRequest> ||
                      std::is_same_v<What, CancelRequest> ||
                      std::is_same_v<What, RescheduleRequest>) {
          result.answers = what.answers;
        }
        if constexpr (std::is_same_v<What, FailedRequest>) {
          result.count = what.count;
        }
      },
      request.what);
  return result;
}

void set_result(const WFStoreResult& result, StoreRequest* request) {
  request->failure.error = result.error;
  request->failure.message = result.message;
  std::visit(
      [&result](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          what.timer = result.timer;
        }
        if constexpr (std::is_same_v<What, ScheduleRequest> ||
                      std::is_same_v<What, CancelRequest> ||
                      std::is_same_v<What, RescheduleRequest>) {
          what.answers = result.answers;
        }
        if constexpr (std::is_same_v<What, FailedRequest>) {
          what.count = result.count;
        }
      },
      request->what);
}

}  // namespace workflow
