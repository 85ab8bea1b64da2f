#pragma once

#include <utility>

namespace workflow {

// Those who go through a linked list step by step, while others may take nodes out between their
// steps. Guarded by what guards the list; cursors live on the stacks of those who go.
template <class Node>
class Cursors {
 public:
  struct Cursor {
    Node* next = nullptr;  // where it goes on; null: at the end

   private:
    friend class Cursors;
    Cursor* other_ = nullptr;
  };

  // Until end(): `cursor` stays on nodes of the list, which it enters at `first`.
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

  // `node` leaves the list, in which `next`, or null, comes after it.
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
