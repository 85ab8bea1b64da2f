#include "factory/NameTable.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace workflow {

size_t NameEntry::size_for(std::string_view name) {
  return std::max(sizeof(NameEntry), offsetof(NameEntry, name_begin) + name.size());
}

std::string_view NameEntry::name() const {
  return {reinterpret_cast<const char*>(this) + offsetof(NameEntry, name_begin), length};
}

NameEntry* NameTable::find(std::string_view name, uint32_t tag) const {
  if (size_ == 0 || !bucket_of(tag).may_have(tag)) {
    return nullptr;
  }
  NameEntry* entry = bucket_of(tag).first();
  while (entry && (entry->tag != tag || entry->name() != name)) {
    entry = entry->chain;
  }
  return entry;
}

NameEntry* NameTable::add(std::string_view name, uint32_t tag) {
  if (size_ * 2 >= bucket_count()) {
    grow();
  }
  void* const memory = ::operator new(NameEntry::size_for(name));
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

void NameTable::grow() {
  const size_t count = bucket_count();
  const size_t wanted = count == 0 ? 4 : count * 2;
  Bucket* const old = buckets();
  buckets_.store(new Bucket[wanted], std::memory_order_relaxed);
  bucket_count_.store(wanted, std::memory_order_relaxed);
  for (size_t i = 0; i < count; i++) {
    for (NameEntry* entry = old[i].first(); entry;) {
      NameEntry* const next = entry->chain;
      Bucket& bucket = bucket_of(entry->tag);
      entry->chain = bucket.first();
      bucket.set_first(entry);
      entry = next;
    }
  }
  delete[] old;
}

void NameTable::prefetch(uint32_t tag) const {
  // As a number: the one may be of another table than the other, or be freed.
  const auto begin = reinterpret_cast<uintptr_t>(buckets());
  const size_t place = tag & (bucket_count() - 1);
  __builtin_prefetch(reinterpret_cast<const void*>(begin + place * sizeof(Bucket)), 1);
}

}  // namespace workflow
