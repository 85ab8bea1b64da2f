#include "factory/NameRegistry.h"

#include <cstring>
#include <functional>
#include <new>

#include "util/Thread.h"

namespace workflow {

// A name and its nodes. The bytes of the name follow the struct.
struct NamedNode::Entry {
  Entry* chain;  // the next entry of the bucket
  NamedNode* head;
  NamedNode* tail;
  uint32_t tag;
  uint32_t length;

  std::string_view name() const {
    return {reinterpret_cast<const char*>(this) + sizeof(Entry), length};
  }
};

// In a simulation every run with a seed is the same.
NameRegistry::NameRegistry() : key_(VirtualScheduler::current() ? SipKey() : SipKey::random()) {}

NameRegistry::~NameRegistry() {
  while (unlink_any()) {
  }
}

NamedNode* NameRegistry::unlink_any() {
  for (Shard& shard : shards_) {
    NamedNode* node = nullptr;
    shard.lock();
    for (size_t i = 0; !node && i < shard.bucket_count; i++) {
      if (Entry* entry = shard.buckets[i]) {
        node = entry->head;
        free_entry(shard.unlink(node));
      }
    }
    shard.unlock();
    if (node) {
      return node;
    }
  }
  return nullptr;
}

NameRegistry::Place NameRegistry::place_of(std::string_view name) const {
  const uint64_t hash = sip_hash(key_, name);
  return {hash % kShards, static_cast<uint32_t>(hash >> 32)};
}

NamedNode* NameRegistry::oldest(Entry* entry) {
  return entry->head;
}

void NameRegistry::free_entry(Entry* entry) {
  ::operator delete(entry);
}

void NameRegistry::Shard::lock() const {
  if (!mutex.try_lock()) {
    waiting.fetch_add(1, std::memory_order_relaxed);
    mutex.lock();
    waiting.fetch_sub(1, std::memory_order_relaxed);
  }
}

void NameRegistry::Shard::step_aside() const {
  // A mutex hands over to nobody: without a pause the visitor would take it again and again before
  // a woken waiter gets to run.
  if (waiting.load(std::memory_order_relaxed) > 0) {
    pause_ns(20'000);
  }
}

NameRegistry::Entry* NameRegistry::Shard::find(std::string_view name, uint32_t tag) const {
  if (bucket_count == 0) {
    return nullptr;
  }
  Entry* entry = buckets[tag & (bucket_count - 1)];
  while (entry && (entry->tag != tag || entry->name() != name)) {
    entry = entry->chain;
  }
  return entry;
}

NameRegistry::Entry* NameRegistry::Shard::add(std::string_view name, uint32_t tag) {
  // At most half full: looking at another name's entry costs more than the room for a pointer.
  if (entry_count * 2 >= bucket_count) {
    resize(bucket_count == 0 ? 4 : bucket_count * 2);
  }
  void* memory = ::operator new(sizeof(Entry) + name.size());
  Entry*& bucket = buckets[tag & (bucket_count - 1)];
  Entry* entry =
      new (memory) Entry{bucket, nullptr, nullptr, tag, static_cast<uint32_t>(name.size())};
  std::memcpy(static_cast<char*>(memory) + sizeof(Entry), name.data(), name.size());
  bucket = entry;
  entry_count++;
  return entry;
}

void NameRegistry::Shard::resize(size_t buckets_wanted) {
  auto larger = std::make_unique<Entry*[]>(buckets_wanted);
  for (size_t i = 0; i < bucket_count; i++) {
    while (Entry* entry = buckets[i]) {
      buckets[i] = entry->chain;
      Entry*& bucket = larger[entry->tag & (buckets_wanted - 1)];
      entry->chain = bucket;
      bucket = entry;
    }
  }
  buckets = std::move(larger);
  bucket_count = buckets_wanted;
}

NameRegistry::Entry* NameRegistry::Shard::unlink(NamedNode* node) {
  Entry* entry = node->entry_;
  visitors.leaves(node, node->next_);
  (node->previous_ ? node->previous_->next_ : entry->head) = node->next_;
  (node->next_ ? node->next_->previous_ : entry->tail) = node->previous_;
  node->entry_ = nullptr;
  if (entry->head) {
    return nullptr;
  }
  Entry** link = &buckets[entry->tag & (bucket_count - 1)];
  while (*link != entry) {
    link = &(*link)->chain;
  }
  *link = entry->chain;
  entry_count--;
  return entry;
}

bool NameRegistry::link(NamedNode* node, std::string_view name, bool if_new, bool* only) {
  const Place place = place_of(name);
  Shard& shard = shards_[place.shard];
  shard.lock();
  Entry* entry = shard.find(name, place.tag);
  if (entry && if_new) {
    shard.unlock();
    return false;
  }
  if (!entry) {
    try {
      entry = shard.add(name, place.tag);
    } catch (...) {
      shard.unlock();
      throw;
    }
  }
  node->entry_ = entry;
  node->number_ = shard.next_number++ * kShards + place.shard;
  node->next_ = nullptr;
  node->previous_ = entry->tail;
  (entry->tail ? entry->tail->next_ : entry->head) = node;
  entry->tail = node;
  *only = !node->previous_;
  shard.unlock();
  return true;
}

bool NameRegistry::link(NamedNode* node, std::string_view name) {
  bool only = false;
  link(node, name, false, &only);
  return only;
}

bool NameRegistry::link_if_new(NamedNode* node, std::string_view name) {
  bool only = false;
  return link(node, name, true, &only);
}

bool NameRegistry::unlink(NamedNode* node) {
  return unlink_if(node, [] { return true; });
}

std::vector<std::pair<std::string, size_t>> NameRegistry::names() const {
  std::vector<std::pair<std::string, size_t>> result;
  for (const Shard& shard : shards_) {
    shard.lock();
    for (size_t i = 0; i < shard.bucket_count; i++) {
      for (Entry* entry = shard.buckets[i]; entry; entry = entry->chain) {
        size_t nodes = 0;
        for (NamedNode* node = entry->head; node; node = node->next_) {
          nodes++;
        }
        result.emplace_back(std::string(entry->name()), nodes);
      }
    }
    shard.unlock();
  }
  return result;
}

size_t NameRegistry::count(std::string_view name) const {
  const Place place = place_of(name);
  const Shard& shard = shards_[place.shard];
  size_t nodes = 0;
  shard.lock();
  if (Entry* entry = shard.find(name, place.tag)) {
    for (NamedNode* node = entry->head; node; node = node->next_) {
      nodes++;
    }
  }
  shard.unlock();
  return nodes;
}

bool NameRegistry::empty() const {
  for (const Shard& shard : shards_) {
    shard.lock();
    const size_t entries = shard.entry_count;
    shard.unlock();
    if (entries > 0) {
      return false;
    }
  }
  return true;
}

}  // namespace workflow
