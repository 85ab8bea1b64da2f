#include "workflow/detail/SeriesQueue.h"

#include <cassert>

#include "util/Mutex.h"
#include "util/VirtualScheduler.h"
#include "workflow/SubTask.h"

namespace workflow {

bool SeriesQueue::push_alone(SubTask* task) {
  schedule_point();
  uintptr_t nothing = 0;
  return word_.compare_exchange_strong(nothing, word_of(task), std::memory_order_release,
                                       std::memory_order_relaxed);
}

void SeriesQueue::use_list() {
  uintptr_t word = word_.load(std::memory_order_relaxed);
  while (word != kList) {
    schedule_point();
    // A pop() may take the task meanwhile, and another push may put one there.
    if (word_.compare_exchange_weak(word, kList, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      if (word != 0) list_.push_back(task_of(word));
      return;
    }
  }
}

void SeriesQueue::push_back(SubTask* task) {
  if (push_alone(task)) return;
  NativeLock lock(mutex_);
  use_list();
  list_.push_back(task);
}

void SeriesQueue::push_front(SubTask* task) {
  if (push_alone(task)) return;
  NativeLock lock(mutex_);
  use_list();
  list_.push_front(task);
}

void SeriesQueue::push_front(SubTask* first, SubTask* second) {
  NativeLock lock(mutex_);
  use_list();
  list_.push_front(second);
  list_.push_front(first);
}

SubTask* SeriesQueue::pop() {
  schedule_point();
  uintptr_t word = word_.load(std::memory_order_relaxed);
  if (word == 0) return nullptr;
  if (word != kList) {
    schedule_point();
    if (word_.compare_exchange_strong(word, 0, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return task_of(word);
    }
  }
  assert(word == kList);  // it cannot be anything else, because nobody else pops
  NativeLock lock(mutex_);
  SubTask* const task = static_cast<SubTask*>(list_.pop_front());
  if (list_.empty()) {
    word_.store(0, std::memory_order_relaxed);
  }
  return task;
}

}  // namespace workflow
