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
  // The step of time in which the node was linked, with the number of the shard in the low bits.
  // The step is later than that of every node linked before in the shard. Set by link(); 0 if the
  // node was never linked.
  uint64_t number_ = 0;
};

// Finds nodes by their names. For each name it has a list of the linked nodes, in the order in
// which they were linked. It owns no node, and stores each name once, as long as the name has
// nodes.
//
// Thread-safe. Names are spread over shards by their hash, so that threads that work on different
// names seldom contend. Each shard has a mutex; the NameRegistry lock is that of the name's shard.
// A linked node is alive as long as it is held, because the owner of the node unlinks it, under
// that lock, before freeing it.
//
// Rules (numbers as in docs/timer-protocol.md; 4 and 6 as timers use it):
// 4. A node is linked when it is created. The thread that unlinks it, under the lock, decides its
//    outcome.
// 6. The destructor of a node that was never started unlinks it.
// 7. take() and for_each() see only the nodes that were linked before they began (see number_).
//    They handle a bounded number of them in one critical section, and pause between two of them if
//    other threads wait.
//
// Each call has an expected cost of O(1) for each node that it links or unlinks, unless stated
// otherwise. When the table of one shard grows, the other shards are not affected.
class NameRegistry {
 public:
  NameRegistry();
  ~NameRegistry();
  NameRegistry(const NameRegistry&) = delete;
  NameRegistry& operator=(const NameRegistry&) = delete;

  // What happens to the nodes that have the name already. kAppend: they stay. kReplace: after
  // link() the caller takes those that are older (is_older), so a quota may be exceeded meanwhile.
  // kKeep: they stay, and the new node is refused if there are any.
  enum class Policy { kAppend, kReplace, kKeep };
  enum class Linked { kAlone, kWithOthers, kNameTaken, kOverQuota };

  // A name, which is not copied, and its place in the registry. If key_of() is called early, the
  // name's bucket is in the cache by the time it is needed. For that, key_of() reads the table's
  // size and addresses without the lock: they are only a hint.
  struct NameKey {
    std::string_view name;
    size_t shard;
    uint32_t tag;  // selects the bucket, and is compared before the name
  };
  NameKey key_of(std::string_view name) const WF_NO_THREAD_SAFETY_ANALYSIS;

  // Links a node, which is not linked yet, as the newest of the name, unless the policy or a quota
  // refuses it. `now_ns` is the time for linked_ns(), and is not negative. When this throws
  // std::bad_alloc, nothing has changed.
  Linked link(NamedNode* node, const NameKey& name_key, Policy policy, int64_t now_ns);
  Linked link(NamedNode* node, std::string_view name, Policy policy = Policy::kAppend) {
    return link(node, key_of(name), policy, 0);
  }

  // Returns when the node was linked: the `now_ns` that link() was given, rounded down to a
  // multiple of kNsPerStep and at most kLastNs. If the shard has already given out that multiple or
  // a later one, returns the next multiple after the last one given out, so that no two nodes of a
  // shard have the same time. If link() is always given 0, the result only counts the nodes of the
  // shard.
  static int64_t linked_ns(const NamedNode* node) {
    return static_cast<int64_t>(node->number_ / kShards - 1) * kNsPerStep;
  }

  // Whether `a` was linked before `b`. Both have the same name.
  static bool is_older(const NamedNode* a, const NamedNode* b) { return a->number_ < b->number_; }

  // Whether the node has, or had, a name.
  static bool was_linked(const NamedNode* node) { return node->number_ != 0; }

  // Unlinks the node. Returns false if it is not linked any more.
  bool unlink(NamedNode* node);

  // If the node is linked, calls wanted() under the lock, and unlinks the node if that returns
  // true. Returns whether this call has unlinked it.
  template <class Wanted>
  bool unlink_if(NamedNode* node, Wanted&& wanted);

  // Unlinks nodes of `name` that were linked before the call, oldest first, and at most `max`.
  // Stops at the first node for which wanted(node) returns false. Calls unlinked(node) for each
  // node that it has unlinked, still under the lock; after that call the node may belong to another
  // thread. Calls between() after each chunk, without the lock. Returns the number of nodes it has
  // unlinked.
  template <class Wanted, class Unlinked, class Between>
  size_t take(std::string_view name, size_t max, Wanted&& wanted, Unlinked&& unlinked,
              Between&& between);

  // Calls visit(node), under the lock, for each node of `name` that was linked before the call and
  // is still linked when its turn comes, oldest first. visit() must not throw. Works in chunks as
  // take() does, and calls between() after each chunk, without the lock. If between() returns false
  // the visit ends and for_each() returns false; what between() throws ends the visit, too.
  // O(number of nodes).
  template <class Visit, class Between>
  bool for_each(std::string_view name, Visit&& visit, Between&& between);
  template <class Visit>
  void for_each(std::string_view name, Visit&& visit) {
    for_each(name, visit, [] { return true; });
  }

  // Calls visit(name, node) for all names that begin with `prefix`, in no particular order and a
  // bounded number of nodes at a time. A node that is linked during the whole call is visited
  // exactly once, any other node at most once. O(all names).
  template <class Visit, class Between>
  bool for_each_prefix(std::string_view prefix, Visit&& visit, Between&& between);

  // From now on at most `max` nodes may be linked under the name `text`, or under all names that
  // begin with `text` taken together. Nodes that are linked already stay. NameQuotas::kNone removes
  // the quota. When this throws std::bad_alloc, nothing has changed. A quota for a new prefix costs
  // O(all names); one shard is locked at a time.
  void set_quota(NameQuotas::Of of, std::string_view text, size_t max);

  // Unlinks the oldest node of `name`. Then unlinks each following node, until stays(node) returns
  // true for one of them. Calls unlinked(node), under the lock, for each node that it has unlinked.
  // Returns false if the name has no node left.
  template <class Stays, class Unlinked>
  bool advance(std::string_view name, Stays&& stays, Unlinked&& unlinked);

  // For the end of the registry: unlinks all nodes, and calls unlinked(node), under the lock, for
  // each of them. O(nodes + buckets).
  template <class Unlinked>
  void unlink_all(Unlinked&& unlinked);

  // For reports: each name with its number of nodes. Locks one shard at a time.
  std::vector<std::pair<std::string, size_t>> names() const;
  // Returns the number of nodes of a name. O(1).
  size_t count(std::string_view name) const;
  // The number of nodes of all names that begin with `prefix`. O(all names), in chunks.
  size_t count_prefix(std::string_view prefix);
  bool empty() const;

 private:
  using Entry = NameEntry;
  static constexpr size_t kShards = 256;
  static constexpr int64_t kNsPerStep = 32;
  static constexpr int64_t kLastNs = int64_t{1}
                                     << 60;  // the latest time of linked_ns(), after 36 years
  static constexpr size_t kChunk = 64;
  // The cost of visiting a node of that name. 1 for a short name; more for a long one, because the
  // visitor may copy it.
  static size_t work_of(std::string_view name) { return 1 + name.size() / 1024; }

  // How far a visit of all names of a shard has come.
  struct Scan {
    NameTable::Position position = 0;
    bool over = false;
  };

  struct Shard {
    mutable Mutex mutex;
    Cursors<NamedNode> visitors WF_GUARDED_BY(mutex);
    // How many threads wait for the mutex. Without this, one visit after the other could keep them
    // waiting for ever. Relaxed: it publishes nothing, and a value that is out of date costs one
    // pause too many or too few.
    mutable std::atomic<int> waiting{0};
    NameTable table WF_GUARDED_BY(mutex);
    uint64_t next_number WF_GUARDED_BY(mutex) = 1;  // the least unused one
    const NameQuotas* quotas WF_GUARDED_BY(mutex) = nullptr;

    void lock() const WF_ACQUIRE(mutex);
    void unlock() const WF_RELEASE(mutex) { mutex.unlock(); }
    // Unlinks the node. Returns its entry if that has no node left; the caller frees it, best
    // without the lock.
    Entry* unlink(NamedNode* node) WF_REQUIRES(mutex);
    size_t count_covered(const NameRegistry& registry, NameQuotas::Of of,
                         std::string_view text) const WF_REQUIRES(mutex);
    void yield_lock() const;
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
  // Visits one chunk of the shard: calls visit_entry(entry) for the names that begin with `prefix`.
  // visit_entry() returns how much work it has done, as work_of() counts it.
  template <class VisitEntry>
  static void scan(Shard& shard, Scan& scan, std::string_view prefix, VisitEntry& visit_entry);

  const SipKey key_;  // random, because an attacker may choose names that would collide
  std::array<Shard, kShards> shards_;
  Mutex quotas_mutex_;  // held while quotas are changed; ordered before the shards' mutexes
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
  const NameKey name_key = key_of(name);
  Shard& shard = shards_[name_key.shard];
  size_t count = 0;
  uint64_t end_number = 0;
  bool more = max > 0;
  for (bool first = true; more; first = false) {
    Entry* emptied = nullptr;
    shard.lock();
    if (first) {
      end_number = shard.next_number;
    }
    Entry* entry = shard.table.find(name, name_key.tag);
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
      shard.yield_lock();
    }
  }
  return count;
}

template <class Visit, class Between>
bool NameRegistry::for_each(std::string_view name, Visit&& visit, Between&& between) {
  const NameKey name_key = key_of(name);
  Shard& shard = shards_[name_key.shard];
  Cursors<NamedNode>::Cursor visitor;
  shard.lock();
  const uint64_t end_number = shard.next_number;
  Entry* const entry = shard.table.find(name, name_key.tag);
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
      shard.visitors.end(&visitor);  // because the visitor is on this stack
      shard.unlock();
      throw;
    }
    shard.yield_lock();
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
      if (!between()) return false;
      for (; !crowded.empty(); crowded.pop_back()) {
        const std::string& name = crowded.back();
        if (!for_each(
                name, [&](NamedNode* node) { visit(name, node); }, between)) {
          return false;
        }
      }
      shard.yield_lock();
    }
  }
  return true;
}

template <class Unlinked>
void NameRegistry::unlink_all(Unlinked&& unlinked) {
  for (Shard& shard : shards_) {
    shard.lock();
    for (size_t i = 0; i < shard.table.bucket_count(); i++) {
      while (Entry* entry = shard.table.first_in(i)) {
        NamedNode* node = entry->head;
        NameTable::free(shard.unlink(node));
        unlinked(node);
      }
    }
    shard.unlock();
  }
}

template <class Stays, class Unlinked>
bool NameRegistry::advance(std::string_view name, Stays&& stays, Unlinked&& unlinked) {
  const NameKey name_key = key_of(name);
  Shard& shard = shards_[name_key.shard];
  Entry* emptied = nullptr;
  shard.lock();
  Entry* entry = shard.table.find(name, name_key.tag);
  for (bool first = true; entry && !emptied; first = false) {
    NamedNode* node = entry->head;
    if (!first && stays(node)) break;
    emptied = shard.unlink(node);
    unlinked(node);
  }
  shard.unlock();
  NameTable::free(emptied);
  return entry && !emptied;
}

}  // namespace workflow
