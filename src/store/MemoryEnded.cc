#include "store/MemoryEnded.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "store/MemoryRecord.h"

namespace workflow {

namespace {

// A record has the outcome in the lowest bits of a number, and the attempts above them. So records
// that were written before the attempts were remembered can be read: they have 0.
constexpr unsigned kOutcomeBits = 3;

}  // namespace

void MemoryEnded::remember(Ended ended) {
  ended.position = next_position_++;
  Ended& last = order_.emplace_hint(order_.end(), ended.position, std::move(ended))->second;
  latest_[last.name] = &last;
  if (journal_ != nullptr) {
    write(last);
  }
}

void MemoryEnded::trim(size_t remembered) {
  while (order_.size() > remembered) {
    // Others may have ended in the same microsecond.
    since_us_ = std::max(since_us_, order_.begin()->second.when_us + 1);
    forget(order_.begin());
  }
}

void MemoryEnded::forget(Order::iterator ended) {
  const auto latest = latest_.find(ended->second.name);
  if (latest != latest_.end() && latest->second == &ended->second) {
    latest_.erase(latest);
  }
  if (journal_ != nullptr) {
    journal_->forget(ended->second);
  }
  order_.erase(ended);
}

const MemoryEnded::Ended* MemoryEnded::latest(const std::string& name) const {
  const auto found = latest_.find(name);
  return found == latest_.end() ? nullptr : found->second;
}

void MemoryEnded::write(Ended& ended) {
  std::string& out = journal_->begin(MemoryRecord::kEnded);
  StoreBytes::put(out, ended.position);
  StoreBytes::put(out, ended.timer);
  StoreBytes::put(out,
                  uint64_t{ended.attempts} << kOutcomeBits | static_cast<uint64_t>(ended.outcome));
  StoreBytes::put_signed(out, ended.when_us);
  StoreBytes::put(out, ended.name);
  journal_->end(&ended);
}

const MemoryEnded::Ended* MemoryEnded::read(StoreBytes::Reader& record, size_t left) {
  const uint64_t position = record.number();
  Ended& ended = order_[position];
  ended.position = position;
  ended.timer = record.number();
  const uint64_t end = record.number();
  ended.attempts = static_cast<unsigned>(end >> kOutcomeBits);
  ended.outcome = static_cast<WFStoreOutcome>(end & ((1U << kOutcomeBits) - 1));
  ended.when_us = record.signed_number();
  ended.name = record.text();
  if (!record.good() || ended.outcome <= WFStoreOutcome::kNone ||
      ended.outcome > WFStoreOutcome::kFailed) {
    return nullptr;
  }
  journal_->place(ended, left - record.left());
  return &ended;
}

void MemoryEnded::restore(uint64_t next_position, int64_t since_us) {
  since_us_ = std::max(since_us_, since_us);
  // Records of some that were forgotten long ago may have stayed, but not those between.
  auto first = order_.end();
  uint64_t position = next_position;
  while (first != order_.begin() && std::prev(first)->first == position - 1) {
    --first;
    --position;
  }
  while (order_.begin() != first) {
    forget(order_.begin());
  }
  next_position_ = next_position;
  for (const auto& [at, ended] : order_) {
    latest_[ended.name] = &ended;
  }
}

}  // namespace workflow
