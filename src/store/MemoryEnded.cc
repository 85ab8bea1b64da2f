#include "store/MemoryEnded.h"

#include <algorithm>
#include <utility>

namespace workflow {

void MemoryEnded::remember(Ended ended) {
  latest_[ended.name] = forgotten_ + order_.size();
  order_.push_back(std::move(ended));
}

void MemoryEnded::trim(size_t remembered) {
  while (order_.size() > remembered) {
    const Ended& oldest = order_.front();
    const auto latest = latest_.find(oldest.name);
    if (latest->second == forgotten_) {
      latest_.erase(latest);
    }
    // Others may have ended in the same microsecond.
    since_us_ = std::max(since_us_, oldest.when_us + 1);
    order_.pop_front();
    ++forgotten_;
  }
}

const MemoryEnded::Ended* MemoryEnded::latest(const std::string& name) const {
  const auto found = latest_.find(name);
  return found == latest_.end() ? nullptr : &order_[found->second - forgotten_];
}

}  // namespace workflow
