#include "store/OwnedState.h"

#include <cerrno>
#include <type_traits>
#include <utility>
#include <variant>

#include "store/MemoryRecord.h"

namespace workflow {

bool OwnedState::carry_out(StoreRequest& request, bool stores) {
  const bool has_id = request.id.number != 0;
  if (has_id) {
    switch (answers_.find(request)) {
      case OwnedAnswers::Found::kYes:
        return true;
      case OwnedAnswers::Found::kUsedUp:
        request.failure.error = ECANCELED;
        request.failure.message = "its id was asked for, and is used up";
        return true;
      case OwnedAnswers::Found::kNo:
      case OwnedAnswers::Found::kForgotten:
        break;
    }
  }
  if (!stores && std::holds_alternative<ScheduleRequest>(request.what)) {
    return false;
  }
  carry_out_new(request);
  timers_.trim(remembered_);
  if (has_id) {
    answers_.add(request);
    must_last_ = true;
  }
  return true;
}

void OwnedState::carry_out_new(StoreRequest& request) {
  std::visit(
      [this, &request](auto& what) {
        using What = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<What, ScheduleRequest>) {
          timers_.carry_out(what, request.failure);
        } else if constexpr (std::is_same_v<What, AskRequest>) {
          answers_.carry_out(what, request.failure);
          must_last_ = true;
        } else {
          timers_.carry_out(what);
        }
      },
      request.what);
}

void OwnedState::know_session(uint64_t session) {
  answers_.know(session);
}

bool OwnedState::write() {
  const int64_t before = journal_.bytes();
  const bool must_last = std::exchange(must_last_, false) || timers_.must_last();
  timers_.write();
  answers_.write();
  const int64_t written = journal_.bytes() - before;
  if (must_last) {
    clean(written);
  }
  return must_last;
}

void OwnedState::clean(int64_t written) {
  auto left = static_cast<int64_t>(kCleanedBytes) + 2 * written;
  while (left > 0 && journal_.is_worth_cleaning()) {
    if (const size_t dropped = journal_.drop_first()) {
      left -= static_cast<int64_t>(dropped);
    } else {
      left -= journal_.oldest().bytes;
      write_again(journal_.oldest());
    }
  }
}

void OwnedState::write_again(JournalEntry& entry) {
  switch (entry.kind) {
    case JournalEntry::Kind::kTimer:
      timers_.write_again(static_cast<MemoryTimer&>(entry));
      return;
    case JournalEntry::Kind::kEnded:
      timers_.write_again(static_cast<MemoryEnded::Ended&>(entry));
      return;
    case JournalEntry::Kind::kAnswer:
      answers_.write_again(static_cast<OwnedAnswers::Answer&>(entry));
      return;
    case JournalEntry::Kind::kSession:
      answers_.write_again(static_cast<OwnedAnswers::Session&>(entry));
      return;
  }
}

OwnedState::Counters OwnedState::counters() const {
  return {timers_.counters(), answers_.has_dropped(), timers_.size()};
}

bool OwnedState::read(int64_t row, std::string_view bytes) {
  if (!journal_.read(row, bytes.size())) return false;
  StoreBytes::Reader record(bytes);
  while (record.left() > 0) {
    const char kind = record.byte();
    const bool is_of_answers = kind == MemoryRecord::kAnswer || kind == MemoryRecord::kSession ||
                               kind == MemoryRecord::kDropped;
    if (!(is_of_answers ? answers_.read(kind, record) : timers_.read(kind, record))) return false;
  }
  return record.good();
}

bool OwnedState::restore(const Counters& counters, uint64_t over_fence, int64_t over_us) {
  answers_.restore(counters.has_dropped);
  const bool fits = timers_.restore(counters.timers, over_fence, over_us);
  timers_.trim(remembered_);
  return fits && timers_.size() == counters.stored;
}

}  // namespace workflow
