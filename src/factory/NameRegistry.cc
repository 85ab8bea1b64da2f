#include "factory/NameRegistry.h"

#include <algorithm>
#include <cassert>

#include "util/Thread.h"

namespace workflow {

// A simulation uses a constant key, so that every run with the same seed is the same.
NameRegistry::NameRegistry() : key_(VirtualScheduler::current() ? SipKey() : SipKey::random()) {}

NameRegistry::~NameRegistry() {
  unlink_all([](NamedNode*) {});
}

NameRegistry::NameKey NameRegistry::key_of(std::string_view name) const {
  const uint64_t hash = sip_hash(key_, name);
  const NameKey name_key = {name, hash % kShards, static_cast<uint32_t>(hash >> 32)};
  shards_[name_key.shard].table.prefetch(name_key.tag);
  return name_key;
}

void NameRegistry::Shard::lock() const {
  if (!mutex.try_lock()) {
    waiting.fetch_add(1, std::memory_order_relaxed);
    mutex.lock();
    waiting.fetch_sub(1, std::memory_order_relaxed);
  }
}

void NameRegistry::Shard::yield_lock() const {
  // A mutex is not passed to a waiter when it is unlocked. Without a pause the visitor would lock
  // it again and again before a waiter that has been woken gets to run.
  if (waiting.load(std::memory_order_relaxed) > 0) {
    pause_ns(20'000);
  }
}

NameRegistry::Entry* NameRegistry::Shard::unlink(NamedNode* node) {
  Entry* entry = node->entry_;
  assert(entry);
  visitors.leaves(node, node->next_);
  (node->previous_ ? node->previous_->next_ : entry->head) = node->next_;
  (node->next_ ? node->next_->previous_ : entry->tail) = node->previous_;
  node->entry_ = nullptr;
  entry->count--;
  if (quotas) {
    quotas->give_back(entry->name());
  }
  if (entry->head) return nullptr;
  table.remove(entry);
  return entry;
}

NameRegistry::Linked NameRegistry::link(NamedNode* node, const NameKey& name_key, Policy policy,
                                        int64_t now_ns) {
  const std::string_view name = name_key.name;
  Shard& shard = shards_[name_key.shard];
  const ShardLock lock(shard);
  Entry* entry = shard.table.find(name, name_key.tag);
  if (entry && policy == Policy::kKeep) return Linked::kNameTaken;
  const bool alone = !entry;
  const bool takes_place = entry && policy == Policy::kReplace;
  if (shard.quotas && !shard.quotas->take(name, takes_place)) return Linked::kOverQuota;
  if (!entry) {
    try {
      entry = shard.table.add(name, name_key.tag);
    } catch (...) {
      if (shard.quotas) {
        shard.quotas->give_back(name);
      }
      throw;
    }
  }
  node->entry_ = entry;
  const uint64_t number = std::max(
      shard.next_number, static_cast<uint64_t>(std::min(now_ns, kLastNs) / kNsPerStep) + 1);
  shard.next_number = number + 1;
  node->number_ = number * kShards + name_key.shard;
  node->next_ = nullptr;
  node->previous_ = entry->tail;
  (entry->tail ? entry->tail->next_ : entry->head) = node;
  entry->tail = node;
  entry->count++;
  return alone ? Linked::kAlone : Linked::kWithOthers;
}

void NameRegistry::set_quota(NameQuotas::Of of, std::string_view text, size_t max) {
  MutexLock lock(quotas_mutex_);
  const bool exists = quotas_ && quotas_->contains(of, text);
  if (exists && max != NameQuotas::kNone) {
    quotas_->set_max(of, text, max);
    return;
  }
  if (!exists && max == NameQuotas::kNone) return;
  const NameQuotas none;
  const NameQuotas& before = quotas_ ? *quotas_ : none;
  std::unique_ptr<const NameQuotas> set =
      exists ? before.without(of, text) : before.with(of, text, max);
  for (Shard& shard : shards_) {
    const ShardLock shard_lock(shard);
    if (!exists) {
      set->add(of, text, shard.count_covered(*this, of, text));
    }
    shard.quotas = set.get();
  }
  quotas_ = std::move(set);
}

size_t NameRegistry::Shard::count_covered(const NameRegistry& registry, NameQuotas::Of of,
                                          std::string_view text) const {
  if (of == NameQuotas::Of::kName) {
    const Entry* const entry = table.find(text, registry.key_of(text).tag);
    return entry ? entry->count : 0;
  }
  size_t nodes = 0;
  for (size_t i = 0; i < table.bucket_count(); i++) {
    for (const Entry* entry = table.first_in(i); entry; entry = entry->chain) {
      nodes += NameQuotas::covers(of, text, entry->name()) ? entry->count : 0;
    }
  }
  return nodes;
}

bool NameRegistry::unlink(NamedNode* node) {
  return unlink_if(node, [] { return true; });
}

std::vector<std::pair<std::string, size_t>> NameRegistry::names() const {
  std::vector<std::pair<std::string, size_t>> result;
  for (const Shard& shard : shards_) {
    const ShardLock lock(shard);
    for (size_t i = 0; i < shard.table.bucket_count(); i++) {
      for (const Entry* entry = shard.table.first_in(i); entry; entry = entry->chain) {
        result.emplace_back(std::string(entry->name()), entry->count);
      }
    }
  }
  return result;
}

size_t NameRegistry::count(std::string_view name) const {
  const NameKey name_key = key_of(name);
  const Shard& shard = shards_[name_key.shard];
  const ShardLock lock(shard);
  const Entry* const entry = shard.table.find(name, name_key.tag);
  return entry ? entry->count : 0;
}

size_t NameRegistry::count_prefix(std::string_view prefix) {
  size_t nodes = 0;
  auto visit_entry = [&nodes](const Entry* entry) {
    nodes += entry->count;
    return size_t{1};
  };
  for (Shard& shard : shards_) {
    for (Scan position; !position.over; shard.yield_lock()) {
      scan(shard, position, prefix, visit_entry);
    }
  }
  return nodes;
}

bool NameRegistry::empty() const {
  for (const Shard& shard : shards_) {
    const ShardLock lock(shard);
    if (shard.table.size() > 0) return false;
  }
  return true;
}

}  // namespace workflow
