#pragma once

#include <cstddef>

namespace workflow {

// An object that can be posted to a thread of the library. It is itself the node of the queue in
// which it waits, so posting it never allocates. It is in at most one queue at a time.
class Runnable {
 public:
  // Called once for each time it is posted, on a thread of the library, with no lock held. May
  // delete this.
  virtual void run_queued() = 0;

 protected:
  virtual ~Runnable() = default;

 private:
  friend class Intake;
  friend class RunnableList;
  friend class RunnableStack;
  Runnable *next_ = nullptr;
};

// A FIFO of Runnables, linked through the objects themselves. It owns nothing and is not
// thread-safe.
class RunnableList {
 public:
  RunnableList() = default;
  RunnableList(RunnableList &&other) noexcept { append(other); }
  RunnableList(const RunnableList &) = delete;
  RunnableList &operator=(const RunnableList &) = delete;

  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

  void push_back(Runnable *item) {
    item->next_ = nullptr;
    if (tail_)
      tail_->next_ = item;
    else
      head_ = item;
    tail_ = item;
    size_++;
  }

  void push_front(Runnable *item) {
    item->next_ = head_;
    if (!head_) tail_ = item;
    head_ = item;
    size_++;
  }

  // Returns the newest item, or null.
  Runnable *back() const { return tail_; }

  // Removes and returns the oldest item, or null.
  Runnable *pop_front() {
    Runnable *item = head_;
    if (item) {
      head_ = item->next_;
      if (!head_) tail_ = nullptr;
      size_--;
    }
    return item;
  }

  // Moves all items of `other` behind those of this list. O(1).
  void append(RunnableList &other) {
    if (other.empty()) return;
    if (tail_)
      tail_->next_ = other.head_;
    else
      head_ = other.head_;
    tail_ = other.tail_;
    size_ += other.size_;
    other.head_ = other.tail_ = nullptr;
    other.size_ = 0;
  }

 private:
  friend class Intake;
  friend class RunnableStack;
  Runnable *head_ = nullptr;
  Runnable *tail_ = nullptr;
  size_t size_ = 0;
};

// Runnables of which the newest comes first, linked like those of a RunnableList, in one pointer.
class RunnableStack {
 public:
  RunnableStack() = default;
  RunnableStack(const RunnableStack &) = delete;
  RunnableStack &operator=(const RunnableStack &) = delete;

  bool empty() const { return head_ == nullptr; }

  void push(Runnable *item) {
    item->next_ = head_;
    head_ = item;
  }

  // Removes and returns the first item. There is one.
  Runnable *pop() {
    Runnable *const item = head_;
    head_ = item->next_;
    return item;
  }

  // Moves all items of `list` here, in its order. The stack was empty.
  void take(RunnableList &list) {
    head_ = list.head_;
    list.head_ = list.tail_ = nullptr;
    list.size_ = 0;
  }

 private:
  Runnable *head_ = nullptr;
};

}  // namespace workflow
