#include "kernel/TimerLeaves.h"

#include <cassert>
#include <new>
#include <utility>

namespace workflow {

TimerLeaves::~TimerLeaves() {
  while (spares_) {
    Pages::give(std::exchange(spares_, spares_->next));
  }
  for (Table* table : tables_) {
    Pages::give(table);
  }
}

uint32_t TimerLeaves::take_number() {
  if (free_number_ != kNone) return std::exchange(free_number_, entry(free_number_).next_free);
  const size_t table = number_count_ / kEntries;
  if (table == kTables) {
    throw std::bad_alloc();
  }
  if (!tables_[table]) {
    tables_[table] = static_cast<Table*>(Pages::take());  // written as it fills
  }
  return number_count_++;
}

TimerLeaf* TimerLeaves::take() {
  if (!spares_) {
    give_memory(Pages::take());
  }
  assert(spares_);  // Pages::take() returns memory or throws
  const uint32_t number = take_number();
  void* const memory = std::exchange(spares_, spares_->next);
  spare_count_--;
  return new (&entry(number).leaf) TimerLeaf(memory, number);
}

void TimerLeaves::give(TimerLeaf* leaf) {
  give_memory(leaf->memory());
  const uint32_t number = leaf->number();
  entry(number).next_free = std::exchange(free_number_, number);
}

void TimerLeaves::give_memory(void* pages) {
  if (!pages) return;
  spares_ = new (pages) Spare{spares_};
  spare_count_++;
}

TimerLeaves::Surplus TimerLeaves::take_surplus() {
  if (!has_surplus()) return nullptr;
  spare_count_--;
  return Surplus(std::exchange(spares_, spares_->next));
}

}  // namespace workflow
