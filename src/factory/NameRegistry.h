#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "factory/NameQuotas.h"
#include "factory/NameTable.h"
#include "util/Cursors.h"
#include "util/Mutex.h"
#include "util/SipHash.h"

namespace workflow {

class NameRegistry;

// The part of a named thing that the registry keeps in it.
class NamedNode {
 private:
  friend class NameRegistry;
  NamedNode* next_ = nullptr;
  NamedNode* previous_ = nullptr;
  NameEntry* entry_ = nullptr;  // null: not linked
  // When it was linked, in steps, later than all before it in the shard; and the shard itself in
  // the low bits. Set by link(); 0: never.
  uint64_t number_ = 0;
};

// Who is known under which name: for each name the linked nodes in the order of their creation.
// Owns no node; holds each name once, for as long as it has nodes.
//
// Thread-safe; sharded by hash, so that threads working on different names seldom meet.
// B is the mutex of a shard. Under B a linked node is alive, because its destructor unlinks it.
//
// Rules (numbers as in docs/timer-protocol.md):
// 4. A node is linked from creation on. Whoever unlinks it, under B, decides its outcome.
// 6. The destructor of what was never started unlinks it.
// 7. One visit sees only the nodes linked before it began (number_), in bounded chunks per hold of
//    B, stepping aside between them while others wait.
//
// Costs: O(1) expected each; a shard that grows rehashes its own names only.
class NameRegistry {
 public:
  NameRegistry();
  ~NameRegistry();
  NameRegistry(const NameRegistry&) = delete;
  NameRegistry& operator=(const NameRegistry&) = delete;

  // What becomes of those that have the name already: they stay, or they will be taken, so that the
  // new one may take their place in a quota, or they stay and the new one is refused.
  enum class Policy { kAppend, kReplace, kKeep };
  enum class Linked { kAlone, kWithOthers, kNameTaken, kOverQuota };

  // A name and where it is. Who seeks it some time before the call has memory fetched meanwhile,
  // for which the table's address and size are looked at without B.
  struct Sought {
    std::string_view name;
    size_t shard;
    uint32_t tag;  // which bucket, and a first comparison
  };
  Sought seek(std::string_view name) const WF_NO_THREAD_SAFETY_ANALYSIS;

  // Adds the node, which is not linked, as the newest of the name; not if it is refused. `now_ns`,
  // not negative, is for linked_ns(). Throws std::bad_alloc; nothing has changed then.
  Linked link(NamedNode* node, const Sought& sought, Policy policy, int64_t now_ns);
  Linked link(NamedNode* node, std::string_view name, Policy policy = Policy::kAppend) {
    return link(node, seek(name), policy, 0);
  }

  // When the node was linked, to some dozens of nanoseconds.
  static int64_t linked_ns(const NamedNode* node) {
    return static_cast<int64_t>(node->number_ / kShards - 1) * kNsPerStep;
  }

  // Which of two nodes of one name was linked first.
  static bool is_older(const NamedNode* a, const NamedNode* b) { return a->number_ < b->number_; }

  // Whether the node has, or had, a name.
  static bool was_linked(const NamedNode* node) { return node->number_ != 0; }

  // False when somebody unlinked it before.
  bool unlink(NamedNode* node);

  // Under B, if the node is linked: unlinks it if wanted(). True when it was unlinked by this call.
  template <class Wanted>
  bool unlink_if(NamedNode* node, Wanted&& wanted);

  // Unlinks nodes of `name` that were linked before the call, oldest first and at most `max`, until
  // wanted(node) is false. Then unlinked(node) is called for each, still under B: from there on the
  // node may be somebody else's. `between` runs after each chunk, without B. Returns how many.
  template <class Wanted, class Unlinked, class Between>
  size_t take(std::string_view name, size_t max, Wanted&& wanted, Unlinked&& unlinked,
              Between&& between);

  // Calls visit(node), under B, for each node of `name` that was linked before the call and still
  // is when its turn comes, oldest first. O(their number), in chunks as in take(); after each,
  // between(), without B: false ends it, and so does what it throws. visit() throws nothing.
  template <class Visit, class Between>
  bool for_each(std::string_view name, Visit&& visit, Between&& between);
  template <class Visit>
  void for_each(std::string_view name, Visit&& visit) {
    for_each(name, visit, [] { return true; });
  }

  // The same with visit(name, node) for each name that begins with `prefix`, in no order. Each node
  // that is linked during all of the call is visited once, others at most once. O(all names).
  template <class Visit, class Between>
  bool for_each_prefix(std::string_view prefix, Visit&& visit, Between&& between);

  // From now on at most `max` nodes have that name, or all names that begin with it together;
  // those that are there stay. NameQuotas::kNone: any number. Throws std::bad_alloc; nothing has
  // changed then. O(all names) if there was no such quota: a shard at a time.
  void set_quota(NameQuotas::Of of, std::string_view text, size_t max);

  // Unlinks the oldest node of `name`, and all that are then the oldest until stays(node) is true.
  // Calls unlinked(node), under B, for each that it has unlinked. False when no node is left.
  template <class Stays, class Unlinked>
  bool advance(std::string_view name, Stays&& stays, Unlinked&& unlinked);

  // For the end: unlinks some node, and returns it; null when there is none.
  NamedNode* unlink_any();

  // For reports: each name with its number of nodes. Locks shard by shard.
  std::vector<std::pair<std::string, size_t>> names() const;
  // The number of nodes of a name. O(1).
  size_t count(std::string_view name) const;
  // Of all names that begin with `prefix`. O(all names), in chunks.
  size_t count_prefix(std::string_view prefix);
  bool empty() const;

 private:
  using Entry = NameEntry;
  static constexpr size_t kShards = 256;
  static constexpr int64_t kNsPerStep = 32;
  static constexpr int64_t kLastNs = int64_t{1}
                                     << 60;  // the time stands still then, after 36 years
  static constexpr size_t kChunk = 64;
  // Visiting a node, in nodes of short names: its name may be copied.
  static size_t work_of(std::string_view name) { return 1 + name.size() / 1024; }

  // Where a visit of all names of a shard is.
  struct Scan {
    NameTable::Position position = 0;
    bool over = false;
  };

  struct Shard {
    mutable Mutex mutex;  // B
    Cursors<NamedNode> visitors WF_GUARDED_BY(mutex);
    // How many threads wait for B: one visit after the other could keep them waiting for ever.
    mutable std::atomic<int> waiting{0};
    NameTable table WF_GUARDED_BY(mutex);
    uint64_t next_number WF_GUARDED_BY(mutex) = 1;  // the least that is left
    const NameQuotas* quotas WF_GUARDED_BY(mutex) = nullptr;

    void lock() const WF_ACQUIRE(mutex);
    void unlock() const WF_RELEASE(mutex) { mutex.unlock(); }
    // Takes the node out; returns its entry if that is empty now, for the caller to free unlocked.
    Entry* unlink(NamedNode* node) WF_REQUIRES(mutex);
    size_t count_covered(const NameRegistry& registry, NameQuotas::Of of,
                         std::string_view text) const WF_REQUIRES(mutex);
    void step_aside() const;
  };

  class WF_SCOPED_CAPABILITY ShardLock {
   public:
    explicit ShardLock(const Shard& shard) WF_ACQUIRE(shard.mutex) : shard_(shard) { shard.lock(); }
    ~ShardLock() WF_RELEASE() { shard_.unlock(); }
    ShardLock(const ShardLock&) = delete;
    ShardLock& operator=(const ShardLock&) = delete;

   private:
    const Shard& shard_;
  };

  static size_t shard_of(const NamedNode* node) { return node->number_ % kShards; }
  // A chunk of a visit of the shard: visit_entry(entry), which returns how much work it was, in
  // nodes.
  template <class VisitEntry>
  static void scan(Shard& shard, Scan& scan, std::string_view prefix, VisitEntry& visit_entry);

  const SipKey key_;  // names may be chosen by somebody who wants them to collide
  std::array<Shard, kShards> shards_;
  Mutex quotas_mutex_;  // one change at a time; before B
  std::unique_ptr<const NameQuotas> quotas_ WF_GUARDED_BY(quotas_mutex_);
};

template <class Wanted>
bool NameRegistry::unlink_if(NamedNode* node, Wanted&& wanted) {
  Shard& shard = shards_[shard_of(node)];
  Entry* emptied = nullptr;
  shard.lock();
  const bool unlinks = node->entry_ && wanted();
  if (unlinks) {
    emptied = shard.unlink(node);
  }
  shard.unlock();
  NameTable::free(emptied);
  return unlinks;
}

template <class Wanted, class Unlinked, class Between>
size_t NameRegistry::take(std::string_view name, size_t max, Wanted&& wanted, Unlinked&& unlinked,
                          Between&& between) {
  const Sought sought = seek(name);
  Shard& shard = shards_[sought.shard];
  size_t count = 0;
  uint64_t end_number = 0;
  bool more = max > 0;
  for (bool first = true; more; first = false) {
    Entry* emptied = nullptr;
    shard.lock();
    if (first) {
      end_number = shard.next_number;
    }
    Entry* entry = shard.table.find(name, sought.tag);
    more = entry != nullptr;
    for (size_t i = 0; more && i < kChunk; i++) {
      NamedNode* node = entry->head;
      if (node->number_ / kShards >= end_number || !wanted(node)) {
        more = false;
        break;
      }
      emptied = shard.unlink(node);
      unlinked(node);
      count++;
      more = !emptied && count < max;
    }
    shard.unlock();
    NameTable::free(emptied);
    between();
    if (more) {
      shard.step_aside();
    }
  }
  return count;
}

template <class Visit, class Between>
bool NameRegistry::for_each(std::string_view name, Visit&& visit, Between&& between) {
  const Sought sought = seek(name);
  Shard& shard = shards_[sought.shard];
  Cursors<NamedNode>::Cursor visitor;
  shard.lock();
  const uint64_t end_number = shard.next_number;
  Entry* const entry = shard.table.find(name, sought.tag);
  shard.visitors.begin(&visitor, entry ? entry->head : nullptr);
  const auto more = [&visitor, end_number] {
    return visitor.next && visitor.next->number_ / kShards < end_number;
  };
  const size_t chunk = std::max<size_t>(kChunk / work_of(name), 1);
  bool goes_on = true;
  while (goes_on && more()) {
    for (size_t i = 0; i < chunk && more(); i++) {
      NamedNode* const node = visitor.next;
      visitor.next = node->next_;
      visit(node);
    }
    if (!more()) {
      shard.visitors.end(&visitor);
      shard.unlock();
      return between();
    }
    shard.unlock();
    try {
      goes_on = between();
    } catch (...) {
      shard.lock();
      shard.visitors.end(&visitor);  // it is on this stack
      shard.unlock();
      throw;
    }
    shard.step_aside();
    shard.lock();
  }
  shard.visitors.end(&visitor);
  shard.unlock();
  return goes_on;
}

template <class VisitEntry>
void NameRegistry::scan(Shard& shard, Scan& scan, std::string_view prefix,
                        VisitEntry& visit_entry) {
  const ShardLock lock(shard);
  size_t work = 0;
  for (scan.over = shard.table.size() == 0; !scan.over && work < kChunk;
       scan.over = !shard.table.advance(&scan.position)) {
    work++;
    Entry* entry = shard.table.first_at(scan.position);
    for (; entry; entry = entry->chain) {
      const std::string_view name = entry->name();
      work += name.substr(0, prefix.size()) == prefix ? visit_entry(entry) : size_t{1};
    }
  }
}

template <class Visit, class Between>
bool NameRegistry::for_each_prefix(std::string_view prefix, Visit&& visit, Between&& between) {
  std::vector<std::string> crowded;
  auto visit_entry = [&crowded, &visit](Entry* entry) {
    const std::string_view name = entry->name();
    const size_t work = entry->count * work_of(name);
    if (work > kChunk) {
      crowded.emplace_back(name);
      return work_of(name);
    }
    for (NamedNode* node = entry->head; node; node = node->next_) {
      visit(name, node);
    }
    return work;
  };
  for (Shard& shard : shards_) {
    for (Scan position; !position.over;) {
      scan(shard, position, prefix, visit_entry);
      if (!between()) {
        return false;
      }
      for (; !crowded.empty(); crowded.pop_back()) {
        const std::string& name = crowded.back();
        if (!for_each(
                name, [&](NamedNode* node) { visit(name, node); }, between)) {
          return false;
        }
      }
      shard.step_aside();
    }
  }
  return true;
}

template <class Stays, class Unlinked>
bool NameRegistry::advance(std::string_view name, Stays&& stays, Unlinked&& unlinked) {
  const Sought sought = seek(name);
  Shard& shard = shards_[sought.shard];
  Entry* emptied = nullptr;
  shard.lock();
  Entry* entry = shard.table.find(name, sought.tag);
  for (bool first = true; entry && !emptied; first = false) {
    NamedNode* node = entry->head;
    if (!first && stays(node)) {
      break;
    }
    emptied = shard.unlink(node);
    unlinked(node);
  }
  shard.unlock();
  NameTable::free(emptied);
  return entry && !emptied;
}

}  // namespace workflow
