#include "store/OwnedState.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "store/MemoryRecord.h"

namespace workflow {

bool OwnedState::carry_out(StoreRequest& request, bool stores) {
  if (answers_.repeat(request)) return true;
  if (!stores && std::holds_alternative<ScheduleRequest>(request.what)) return false;
  const uint64_t last_number = timers_.last_number();
  carry_out_new(request);
  timers_.trim(remembered_);
  answers_.add(request);
  // A number must not be given out again, so it is on the disk before a handler sees it.
  sync_ = std::max(sync_, timers_.last_number() == last_number ? sync_of(request) : Sync::kNow);
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
        } else {
          timers_.carry_out(what);
        }
      },
      request.what);
}

void OwnedState::know_session(uint64_t session) {
  if (answers_.knows(session)) return;
  answers_.know(session);
  sync_ = Sync::kNow;
}

OwnedState::Sync OwnedState::sync_of(const StoreRequest& request) {
  if (only_reads(request) || std::holds_alternative<ClaimRequest>(request.what) ||
      std::holds_alternative<ExtendRequest>(request.what)) {
    return Sync::kNotNeeded;
  }
  return std::holds_alternative<FinishRequest>(request.what) ? Sync::kSoon : Sync::kNow;
}

OwnedState::Sync OwnedState::write() {
  timers_.write();
  answers_.write();
  if (const size_t written = journal_.written_bytes()) {
    clean(written);  // also after claims and longer leases, whose records never count
  }
  return std::exchange(sync_, Sync::kNotNeeded);
}

void OwnedState::clean(size_t written) {
  auto left = static_cast<int64_t>(kCleanedBytes + 2 * written);
  while (left > 0 && journal_.has_appended_rows() && journal_.is_worth_cleaning()) {
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
