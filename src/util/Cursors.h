#pragma once

#include <utility>

namespace workflow {

// The cursors of threads that go through a linked list step by step, while other threads may remove
// nodes between the steps. Guarded by the lock that guards the list. Each cursor lives on the stack
// of its thread.
template <class Node>
class Cursors {
 public:
  struct Cursor {
    Node* next = nullptr;  // the node of the next step; null: at the end

   private:
    friend class Cursors;
    Cursor* other_ = nullptr;
  };

  // Registers `cursor`, and sets it to the node `first`. Until end() it always refers to a node of
  // the list, or to its end.
  void begin(Cursor* cursor, Node* first) {
    cursor->next = first;
    cursor->other_ = std::exchange(first_, cursor);
  }
  void end(Cursor* cursor) {
    Cursor** link = &first_;
    while (*link != cursor) {
      link = &(*link)->other_;
    }
    *link = cursor->other_;
  }

  // To be called when `node` leaves the list. `next` is the node after it, or null.
  void leaves(const Node* node, Node* next) {
    for (Cursor* cursor = first_; cursor; cursor = cursor->other_) {
      if (cursor->next == node) {
        cursor->next = next;
      }
    }
  }

 private:
  Cursor* first_ = nullptr;
};

}  // namespace workflow
