#include "store/SqliteAnswerText.h"

#include <type_traits>

#include "store/StoreTime.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kLeastAnswerBytes = 8;  // one for each field

// Seven bits in each byte, the lowest first; the highest bit says that more follow.
void put(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void put(std::string& out, std::string_view text) {
  put(out, text.size());
  out.append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) {
        break;
      }
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    good_ = false;
    return 0;
  }

  std::string text() {
    const uint64_t size = number();
    if (size > bytes_.size()) {
      good_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }

  size_t left() const { return bytes_.size(); }
  bool good() const { return good_; }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace

std::string encode_answer(const WFStoreResult& result) {
  std::string out;
  put(out, kVersion);
  put(out, static_cast<uint64_t>(result.error));
  put(out, result.message);
  put(out, result.timer);
  put(out, result.count);
  put(out, result.answers.size());
  for (const WFStoreAnswer& answer : result.answers) {
    put(out, static_cast<uint64_t>(answer.verdict));
    put(out, answer.timer);
    put(out, answer.owner);
    put(out, answer.fence);
    put(out, static_cast<uint64_t>(answer.lease_left.count()));
    put(out, answer.attempts);
    put(out, static_cast<uint64_t>(answer.outcome));
    put(out, static_cast<uint64_t>(us_of_time(answer.when)));
  }
  return out;
}

bool decode_answer(std::string_view bytes, WFStoreResult* result) {
  Reader reader(bytes);
  if (reader.number() != kVersion) {
    return false;
  }
  result->error = static_cast<int>(reader.number());
  result->state = result->error ? WFT_STATE_SYS_ERROR : WFT_STATE_SUCCESS;
  result->message = reader.text();
  result->timer = reader.number();
  result->count = reader.number();
  const uint64_t answers = reader.number();
  if (answers > reader.left() / kLeastAnswerBytes) {
    return false;
  }
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
