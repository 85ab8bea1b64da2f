#include "store/MemoryTimer.h"

#include <algorithm>
#include <limits>

namespace workflow {

void MemoryKind::insert(int64_t at_us, uint64_t number) {
  queue_.emplace(at_us, number);
  for (Mark* mark : {&due_, &overdue_}) {
    mark->count += at_us <= mark->us ? 1 : 0;
  }
}

void MemoryKind::erase(int64_t at_us, uint64_t number) {
  queue_.erase({at_us, number});
  for (Mark* mark : {&due_, &overdue_}) {
    mark->count -= at_us <= mark->us ? 1 : 0;
  }
}

size_t MemoryKind::Mark::move_to(int64_t to_us, const Queue& queue) {
  constexpr uint64_t kLastNumber = std::numeric_limits<uint64_t>::max();
  const int64_t last_us = std::max(us, to_us);
  size_t between = 0;
  for (auto next = queue.upper_bound({std::min(us, to_us), kLastNumber});
       next != queue.end() && next->first <= last_us; ++next) {
    ++between;
  }
  count = us <= to_us ? count + between : count - between;  // the clock may have been set back
  us = to_us;
  return count;
}

StoredSpec MemoryTimer::spec() const {
  return {name, kind->name, payload, repeat_text(), skip_after_us};
}

void MemoryTimerRecord::put_whole(std::string& out, const MemoryTimer& timer) {
  StoreBytes::put(out, timer.name);
  StoreBytes::put(out, timer.kind->name);
  StoreBytes::put(out, timer.payload);
  StoreBytes::put(out, timer.repeat_text());
  StoreBytes::put(out, timer.reason_text());
  StoreBytes::put_signed(out, timer.skip_after_us);
  put_move(out, timer);
}

void MemoryTimerRecord::put_move(std::string& out, const MemoryTimer& timer) {
  StoreBytes::put(out, static_cast<uint64_t>(timer.state) << 1 | uint64_t{timer.marked});
  StoreBytes::put_signed(out, timer.due_us);
  // Most of the time the two are equal. Only the sum needs to be right, so it may overflow.
  StoreBytes::put_signed(out, static_cast<int64_t>(static_cast<uint64_t>(timer.wake_us) -
                                                   static_cast<uint64_t>(timer.due_us)));
  StoreBytes::put(out, timer.fence);
  StoreBytes::put(out, uint64_t{timer.attempts});
  StoreBytes::put(out, timer.blocked_by);
  StoreBytes::put(out, timer.state == MemoryTimer::State::kLeased && timer.owner
                           ? std::string_view(*timer.owner)
                           : std::string_view());
}

bool MemoryTimerRecord::read_whole(StoreBytes::Reader& record, MemoryTimer& timer, Names& names) {
  timer.name = record.text();
  names.kind = record.text();
  timer.payload = record.text();
  MemoryTimer::set(timer.repeat, record.text());
  MemoryTimer::set(timer.reason, record.text());
  timer.skip_after_us = record.signed_number();
  return read_move(record, timer, names);
}

bool MemoryTimerRecord::read_move(StoreBytes::Reader& record, MemoryTimer& timer, Names& names) {
  const uint64_t state = record.number();
  timer.state = static_cast<MemoryTimer::State>(state >> 1);
  timer.marked = (state & 1) != 0;
  timer.due_us = record.signed_number();
  timer.wake_us = static_cast<int64_t>(static_cast<uint64_t>(record.signed_number()) +
                                       static_cast<uint64_t>(timer.due_us));
  timer.fence = record.number();
  timer.attempts = static_cast<unsigned>(record.number());
  timer.blocked_by = record.number();
  names.owner = record.text();
  return record.good() && state <= (static_cast<uint64_t>(MemoryTimer::State::kFailed) << 1 | 1);
}

}  // namespace workflow
