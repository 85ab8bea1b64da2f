#include "factory/NameTable.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "util/BlockCache.h"

namespace workflow {

size_t NameEntry::size_for(std::string_view name) {
  return std::max(sizeof(NameEntry), offsetof(NameEntry, name_begin) + name.size());
}

std::string_view NameEntry::name() const {
  return {reinterpret_cast<const char*>(this) + offsetof(NameEntry, name_begin), length};
}

NameEntry* NameTable::find(std::string_view name, uint32_t tag) const {
  const Bucket& bucket = bucket_of(tag);
  if (!bucket.may_have(tag)) return nullptr;
  NameEntry* entry = bucket.first();
  while (entry && (entry->tag != tag || entry->name() != name)) {
    entry = entry->chain;
  }
  return entry;
}

NameEntry* NameTable::add(std::string_view name, uint32_t tag) {
  if (size_ * 2 + 2 > bucket_count()) {
    grow();
  }
  void* const memory = BlockCache::take(NameEntry::size_for(name));
  Bucket& bucket = bucket_of(tag);
  const auto length = static_cast<uint32_t>(name.size());
  auto* const entry = new (memory) NameEntry{bucket.first(), nullptr, nullptr, tag, length, 0, {}};
  std::memcpy(static_cast<char*>(memory) + offsetof(NameEntry, name_begin), name.data(),
              name.size());
  bucket.set_first(entry);
  size_++;
  return entry;
}

void NameTable::remove(NameEntry* entry) {
  Bucket& bucket = bucket_of(entry->tag);
  NameEntry* first = bucket.first();
  if (first == entry) {
    first = entry->chain;
  } else {
    NameEntry* before = first;
    while (before->chain != entry) {
      before = before->chain;
    }
    before->chain = entry->chain;
  }
  bucket.set_first(first);
  size_--;
}

void NameTable::free(NameEntry* entry) {
  if (entry) {
    BlockCache::give(entry, NameEntry::size_for(entry->name()));
  }
}

NameTable::~NameTable() {
  for (const std::atomic<Bucket*>& piece : pieces_) {
    Pages::give(piece.load(std::memory_order_relaxed));
  }
}

void NameTable::split() {
  const size_t number = bucket_count();
  std::atomic<Bucket*>& piece = pieces_[number / kBucketsPerPiece];
  if (number >= kFirstBuckets && !piece.load(std::memory_order_relaxed)) {
    piece.store(static_cast<Bucket*>(Pages::take()), std::memory_order_relaxed);
  }
  const size_t bit = std::bit_floor(number);
  Bucket& old = bucket_at(number - bit);
  Bucket& added = *new (&bucket_at(number)) Bucket;
  NameEntry* staying = nullptr;
  NameEntry* moving = nullptr;
  for (NameEntry* entry = old.first(); entry;) {
    NameEntry*& chain = entry->tag & bit ? moving : staying;
    NameEntry* const next = std::exchange(entry->chain, chain);
    chain = std::exchange(entry, next);
  }
  old.set_first(staying);
  added.set_first(moving);
  bucket_count_.store(number + 1, std::memory_order_relaxed);
}

void NameTable::grow() {
  const size_t end = std::min(bucket_count() + kSplits, kPieces * kBucketsPerPiece);
  // Without this each split would have to wait for a cache miss of its own.
  for (size_t number = bucket_count(); number < end; number++) {
    __builtin_prefetch(bucket_of(static_cast<uint32_t>(number)).first(), 1);
  }
  while (bucket_count() < end) {
    split();
  }
}

bool NameTable::advance(Position* position) const {
  const size_t count = bucket_count();
  const size_t lower_half = (std::bit_ceil(count) - 1) >> 1;
  // Whether the bucket at this position was split already, so that the highest bit of a number
  // tells two buckets apart.
  const bool is_split = (*position & lower_half) + lower_half + 1 < count;
  // Adds one to the number of the bucket, from its highest bit down.
  const size_t mask = is_split ? 2 * lower_half + 1 : lower_half;
  size_t number = *position & mask;
  size_t bit = (mask + 1) >> 1;
  while (bit && number & bit) {
    number &= ~bit;
    bit >>= 1;
  }
  *position = static_cast<Position>(number | bit);
  return bit != 0;
}

void NameTable::prefetch(uint32_t tag) const {
  // Computes with an integer, because the piece may not exist yet.
  const size_t number = number_of(tag);
  if (number < kFirstBuckets) {
    __builtin_prefetch(&first_[number], 1);
    return;
  }
  const auto piece = reinterpret_cast<uintptr_t>(
      pieces_[number / kBucketsPerPiece].load(std::memory_order_relaxed));
  __builtin_prefetch(
      reinterpret_cast<const void*>(piece + number % kBucketsPerPiece * sizeof(Bucket)), 1);
}

}  // namespace workflow
