#include "kernel/TimerQueue.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace workflow {

namespace {

constexpr size_t kArity = 4;
constexpr size_t parent_of(size_t i) {
  return i / kArity + 2;
}
constexpr size_t first_child_of(size_t i) {
  return (i - 2) * kArity;
}

// When a leaf has come down to a multiple of kJoinStep, it is joined with a neighbour if both
// together have no more than kJoined timers.
constexpr size_t kHalf = TimerLeaf::kCapacity / 2;
constexpr size_t kJoined = kHalf;
constexpr size_t kJoinStep = 256;

// How many timers each part of a divided leaf gets at least.
constexpr size_t kFewest = 16;

size_t earliest_in(const TimerLeaf& leaf) {
  size_t found = TimerLeaf::kFirst;
  for (size_t i = found + 1; i < leaf.end(); i++) {
    found = leaf.slot(i).deadline_ns < leaf.slot(found).deadline_ns ? i : found;
  }
  return found;
}

size_t latest_in(const TimerLeaf& leaf) {
  size_t found = TimerLeaf::kFirst;
  for (size_t i = found + 1; i < leaf.end(); i++) {
    found = leaf.slot(i).deadline_ns > leaf.slot(found).deadline_ns ? i : found;
  }
  return found;
}

// Timers that are each due later than those before, as with a constant delay, leave full leaves
// behind them.
bool is_later_than_all(const TimerLeaf& leaf, int64_t deadline_ns) {
  return deadline_ns >= leaf.slot(latest_in(leaf)).deadline_ns;
}

// Returns a time that divides a full leaf. At least kFewest timers are due then or earlier, and at
// least as many then or later. It is the middle of a sample, unless the sample has a gap that is
// larger than all the rest. In that way timers of two delays, each of which is due later than those
// before of the same delay, come to different leaves, which they fill.
int64_t middle_of(const TimerLeaf& leaf) {
  constexpr size_t kLooked = 63;
  constexpr size_t kStep = TimerLeaf::kCapacity / kLooked;
  std::array<int64_t, kLooked> sample;
  for (size_t i = 0; i < kLooked; i++) {
    sample[i] = leaf.slot(TimerLeaf::kFirst + i * kStep).deadline_ns;
  }
  std::sort(sample.begin(), sample.end());
  const auto distance = [&sample](size_t from, size_t to) {
    return static_cast<uint64_t>(sample[to]) - static_cast<uint64_t>(sample[from]);
  };
  for (size_t i = kFewest; i <= kLooked - kFewest; i++) {
    const uint64_t gap = distance(i - 1, i);
    if (gap > distance(0, kLooked - 1) / 2) return sample[i - 1] + static_cast<int64_t>(gap / 2);
  }
  return sample[kLooked / 2];
}

// Makes the cache misses of the nodes of a leaf overlap.
void prefetch_nodes(const TimerLeaf& leaf) {
  for (size_t i = TimerLeaf::kFirst; i < leaf.end(); i++) {
    __builtin_prefetch(leaf.slot(i).node, 1);
  }
}

}  // namespace

TimerQueue::~TimerQueue() {
  while (order_.size() > 0) {
    drop(order_.last());
  }
}

bool TimerQueue::insert(TimerQueueNode* node, int64_t deadline_ns) {
  if (!first_) {
    TimerLeaf* const leaf = leaves_.take();
    try {
      order_.insert_first(leaf);
    } catch (...) {
      leaves_.give(leaf);
      throw;
    }
    first_ = leaf;
  }
  TimerLeaf* leaf = first_;
  if (order_.size() > 1 || leaf->full()) {
    const Place place = order_.find(deadline_ns);
    leaf = order_.at(place);
    if (leaf->full()) {
      leaf = split(place, deadline_ns);
    }
  }
  add(leaf, {deadline_ns, node});
  size_++;
  return first_->slot(kRoot).node == node;
}

void TimerQueue::erase(TimerQueueNode* node) {
  erase_at(leaf_of(node), slot_of(node));
}

TimerQueueNode* TimerQueue::pop_due(int64_t now_ns) {
  if (empty() || first_->slot(kRoot).deadline_ns > now_ns) return nullptr;
  TimerQueueNode* const node = first_->slot(kRoot).node;
  erase_at(first_, kRoot);
  return node;
}

void TimerQueue::erase_at(TimerLeaf* leaf, size_t i) {
  const auto [deadline_ns, node] = leaf->slot(i);
  node->index_ = TimerQueueNode::kNotQueued;
  remove_at(leaf, i);
  size_--;
  tidy(leaf, deadline_ns);
}

bool TimerQueue::move(TimerQueueNode* node, int64_t deadline_ns) {
  const TimerSlot value{deadline_ns, node};
  TimerLeaf* const from = leaf_of(node);
  const Place place = order_.find(deadline_ns);
  TimerLeaf* to = order_.at(place);
  if (to == from && from == first_) {
    sift(slot_of(node), value);
  } else if (to == from) {
    from->slot(slot_of(node)) = value;
  } else {
    if (to->full()) {
      try {
        to = split(place, deadline_ns);
      } catch (const std::bad_alloc&) {
      }
    }
    const int64_t before_ns = from->slot(slot_of(node)).deadline_ns;
    remove_at(from, slot_of(node));
    if (to->full()) {
      add_by_shifting(order_.place_of(from, before_ns), place, value);
    } else {
      add(to, value);
    }
    tidy(from, before_ns);
  }
  return first_->slot(kRoot).node == node;
}

void TimerQueue::add(TimerLeaf* leaf, const TimerSlot& value) {
  if (leaf == first_) {
    const size_t i = leaf->end();
    leaf->set_end(i + 1);
    sift_up(i, value);
  } else {
    append(leaf, value);
    leaf->prefetch_end();
  }
}

void TimerQueue::remove_at(TimerLeaf* leaf, size_t i) {
  const size_t end = leaf->end() - 1;
  leaf->set_end(end);
  if (i == end) return;
  if (leaf == first_) {
    sift(i, leaf->slot(end));
  } else {
    put(leaf, i, leaf->slot(end));
  }
}

void TimerQueue::tidy(TimerLeaf* leaf, int64_t deadline_ns) {
  if (leaf->size() % kJoinStep != 0 || leaf->size() > kJoined) return;
  if (leaf == first_) {
    if (leaf->empty() && order_.size() > 1) {
      drop({});
      first_ = order_.first();
      make_heap();
    }
    return;
  }
  const Place place = order_.place_of(leaf, deadline_ns);
  const auto can_join = [this, leaf](const TimerLeaf* other) {
    return other != first_ && leaf->size() + other->size() <= kJoined;
  };
  Place other = place;
  const bool is_last = !order_.advance(&other);
  if (!is_last && leaf->empty()) {
    drop(place);
  } else if (!is_last && can_join(order_.at(other))) {
    join(leaf, other);
  } else if (other = place; order_.retreat(&other) && can_join(order_.at(other))) {
    join(order_.at(other), place);
  }
}

void TimerQueue::drop(Place place) {
  leaves_.give(order_.at(place));
  leaves_.give_memory(order_.erase(place));
}

void TimerQueue::join(TimerLeaf* left, Place right) {
  TimerLeaf* const leaf = order_.at(right);
  prefetch_nodes(*leaf);
  for (size_t i = TimerLeaf::kFirst; i < leaf->end(); i++) {
    append(left, leaf->slot(i));
  }
  drop(right);
}

void TimerQueue::move_those_after(TimerLeaf* leaf, int64_t middle_ns, TimerLeaf* added) {
  const auto move_if = [leaf, added](auto condition) {
    size_t i = TimerLeaf::kFirst;
    size_t end = leaf->end();
    while (i < end) {
      if (!condition(leaf->slot(i).deadline_ns)) {
        i++;
        continue;
      }
      append(added, leaf->slot(i));
      // The hole is filled from the end.
      while (--end > i && condition(leaf->slot(end).deadline_ns)) {
        append(added, leaf->slot(end));
      }
      if (i < end) {
        put(leaf, i++, leaf->slot(end));
      }
    }
    leaf->set_end(end);
  };
  prefetch_nodes(*leaf);
  move_if([middle_ns](int64_t ns) { return ns > middle_ns; });
  // If many are equal to the middle, a part of them goes, too. At least kFewest have not moved
  // above, and at least kFewest have moved after this, so neither leaf is full.
  if (added->size() < kFewest) {
    move_if([middle_ns, added](int64_t ns) { return ns == middle_ns && added->size() < kHalf; });
  }
}

TimerLeaf* TimerQueue::split(Place place, int64_t deadline_ns) {
  TimerLeaf* const leaf = order_.at(place);
  if (is_later_than_all(*leaf, deadline_ns)) {
    TimerLeaf* const small = small_leaf_behind(place, deadline_ns);
    return small ? small : insert_leaf_behind(place, deadline_ns);
  }
  const int64_t middle_ns = middle_of(*leaf);
  TimerLeaf* const added = insert_leaf_behind(place, middle_ns);
  move_those_after(leaf, middle_ns, added);
  if (leaf == first_) {
    make_heap();
  }
  return deadline_ns < middle_ns ? leaf : added;
}

TimerLeaf* TimerQueue::small_leaf_behind(Place place, int64_t begin_ns) {
  if (!order_.advance(&place) || order_.at(place)->size() >= kJoinStep) return nullptr;
  order_.set_begin(place, begin_ns);
  return order_.at(place);
}

TimerLeaf* TimerQueue::insert_leaf_behind(Place place, int64_t begin_ns) {
  TimerLeaf* const added = leaves_.take();
  try {
    order_.insert_after(place, begin_ns, added);
  } catch (...) {
    leaves_.give(added);
    throw;
  }
  return added;
}

void TimerQueue::add_by_shifting(Place hole, Place to, const TimerSlot& value) {
  const auto take = [this](TimerLeaf* leaf, size_t i) {
    const TimerSlot taken = leaf->slot(i);
    remove_at(leaf, i);
    return taken;
  };
  // The last leaf on the way gives nothing if `value` itself is what it would have to give.
  while (hole != to) {
    Place giver = hole;
    const bool is_later = hole < to;
    is_later ? order_.advance(&giver) : order_.retreat(&giver);
    TimerLeaf* const leaf = order_.at(giver);
    const size_t i = is_later ? earliest_in(*leaf) : latest_in(*leaf);
    const int64_t at_ns = leaf->slot(i).deadline_ns;
    const bool is_value =
        giver == to && (is_later ? value.deadline_ns <= at_ns : value.deadline_ns >= at_ns);
    // Of two neighbours the later one begins at what moves between them.
    order_.set_begin(is_later ? giver : hole, is_value ? value.deadline_ns : at_ns);
    if (is_value) break;
    add(order_.at(hole), take(leaf, i));
    hole = giver;
  }
  add(order_.at(hole), value);
}

void TimerQueue::sift_up(size_t i, const TimerSlot& value) {
  while (i > kRoot) {
    const size_t parent = parent_of(i);
    if (first_->slot(parent).deadline_ns <= value.deadline_ns) break;
    put(first_, i, first_->slot(parent));
    i = parent;
  }
  put(first_, i, value);
}

void TimerQueue::sift_down(size_t i, const TimerSlot& value) {
  for (;;) {
    const size_t first = first_child_of(i);
    if (first >= first_->end()) break;
    const size_t end = std::min(first + kArity, first_->end());
    size_t smallest = first;
    for (size_t child = first + 1; child < end; child++) {
      if (first_->slot(child).deadline_ns < first_->slot(smallest).deadline_ns) {
        smallest = child;
      }
    }
    if (value.deadline_ns <= first_->slot(smallest).deadline_ns) break;
    put(first_, i, first_->slot(smallest));
    i = smallest;
  }
  put(first_, i, value);
}

void TimerQueue::sift(size_t i, const TimerSlot& value) {
  if (i > kRoot && value.deadline_ns < first_->slot(parent_of(i)).deadline_ns) {
    sift_up(i, value);
  } else {
    sift_down(i, value);
  }
}

void TimerQueue::make_heap() {
  prefetch_nodes(*first_);
  if (first_->size() < 2) return;
  for (size_t i = parent_of(first_->end() - 1); i >= kRoot; i--) {
    sift_down(i, TimerSlot(first_->slot(i)));
  }
}

void TimerQueue::check_invariants() const {
  const auto require = [this](bool holds, const char* what) {
    if (!holds) {
      std::fprintf(stderr, "TimerQueue of %zu timers: %s\n", size_, what);
      std::abort();
    }
  };
  size_t count = 0;
  if (first_) {
    order_.check_invariants();
    require(first_ == order_.first(), "another leaf is the first");
    require(empty() || !first_->empty(), "the first leaf is empty");
    Place place;
    bool has_more;
    do {
      const TimerLeaf* const leaf = order_.at(place);
      const int64_t begin_ns = order_.begin_ns(place);
      has_more = order_.advance(&place);
      const int64_t end_ns = has_more ? order_.begin_ns(place) : INT64_MAX;
      require(leaves_.at(leaf->number()) == leaf, "the table does not know the leaf");
      require(!leaf->empty() || !has_more, "a leaf that is not the last one is empty");
      for (size_t i = TimerLeaf::kFirst; i < leaf->end(); i++) {
        const auto [deadline_ns, node] = leaf->slot(i);
        require(leaf_of(node) == leaf && slot_of(node) == i, "a node does not know its slot");
        require(begin_ns <= deadline_ns && deadline_ns <= end_ns, "a timer is in the wrong leaf");
        require(leaf != first_ || i == kRoot || leaf->slot(parent_of(i)).deadline_ns <= deadline_ns,
                "a parent is later than its child");
      }
      count += leaf->size();
    } while (has_more);
  }
  require(count == size_, "the count is wrong");
}

}  // namespace workflow
