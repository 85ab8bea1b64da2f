#include "workflow/detail/SeriesQueue.h"

#include <cassert>

#include "util/Mutex.h"
#include "util/VirtualScheduler.h"
#include "workflow/SubTask.h"

namespace workflow {

bool SeriesQueue::push_alone(SubTask* task, uintptr_t ahead) {
  schedule_point();
  uintptr_t nothing = 0;
  return word_.compare_exchange_strong(nothing, word_of(task) | ahead, std::memory_order_release,
                                       std::memory_order_relaxed);
}

void SeriesQueue::use_list() {
  uintptr_t word = word_.load(std::memory_order_relaxed);
  while (!(word & kList)) {
    schedule_point();
    // A pop() may take the task meanwhile, and another push may put one there.
    if (word_.compare_exchange_weak(word, (word & kAhead) | kList, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      if (word != 0) {
        list_.push_back(task_of(word));
        ahead_ = word & kAhead ? 1 : 0;
      }
      return;
    }
  }
}

void SeriesQueue::push_back(SubTask* task) {
  if (push_alone(task, 0)) return;
  NativeLock lock(mutex_);
  use_list();
  list_.push_back(task);
}

void SeriesQueue::push_front(SubTask* task) {
  if (push_alone(task, kAhead)) return;
  NativeLock lock(mutex_);
  use_list();
  list_.push_front(task);
  ahead_++;
  word_.store(kList | kAhead, std::memory_order_relaxed);
}

void SeriesQueue::put_back(SubTask* task) {
  schedule_point();
  if (word_.load(std::memory_order_relaxed) & kAhead) {
    push_front(task);
  } else {
    ready_.push(task);
  }
}

SubTask* SeriesQueue::pop() {
  schedule_point();
  uintptr_t word = word_.load(std::memory_order_relaxed);
  if (!(word & kAhead) && !ready_.empty()) return pop_ready();
  if (word == 0) return nullptr;
  if (!(word & kList)) {
    schedule_point();
    if (word_.compare_exchange_strong(word, 0, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return task_of(word);
    }
  }
  assert(word & kList);  // it cannot be anything else, because nobody else pops
  return pop_from_list();
}

SubTask* SeriesQueue::pop_ready() {
  return static_cast<SubTask*>(ready_.pop());
}

SubTask* SeriesQueue::pop_from_list() {
  NativeLock lock(mutex_);
  if (ready_.empty()) {
    ready_.take(list_);
    ahead_ = 0;
    word_.store(0, std::memory_order_relaxed);
    return pop_ready();
  }
  auto* const task = static_cast<SubTask*>(list_.pop_front());
  ahead_--;  // there was one, or ready_ would have come first
  word_.store(list_.empty() ? 0 : ahead_ == 0 ? kList : kList | kAhead, std::memory_order_relaxed);
  return task;
}

}  // namespace workflow
