#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "util/Pages.h"
#include "util/Time.h"

namespace workflow {

class TimerLeaf;

// The leaves of a TimerQueue in the order of their deadlines: a list of {earliest deadline, leaf},
// in Pages, which is searched by deadline.
//
// Pure data. It does not look into the leaves and owns none. Not thread-safe. Costs, with n leaves:
// find() O(log n); place_of() the same, and O(1) for each leaf that has only timers of that
// deadline. insert_after() and erase() move up to 32 KiB of the list.
//
// Invariants (check_invariants):
// 1. The first leaf begins at the least time that there is, and no leaf begins at an earlier time
//    than the leaf before it.
// 2. No page is empty.
class LeafOrder {
 public:
  // Where a leaf stands in the list. Valid until the next insert_after() or erase().
  struct Place {
    size_t page = 0;
    size_t index = 0;
    friend bool operator==(const Place&, const Place&) = default;
    friend bool operator<(const Place& a, const Place& b) {
      return a.page != b.page ? a.page < b.page : a.index < b.index;
    }
  };

  LeafOrder() = default;
  ~LeafOrder();
  LeafOrder(const LeafOrder&) = delete;
  LeafOrder& operator=(const LeafOrder&) = delete;

  // How many leaves the list has. The functions below, but insert_first(), are for a list that has
  // some.
  size_t size() const { return size_; }

  TimerLeaf* at(Place place) const { return ref(place).leaf; }
  TimerLeaf* first() const { return pages_[0]->refs[0].leaf; }
  Place last() const { return {page_count_ - 1, pages_[page_count_ - 1]->count - 1}; }
  // The time at which a leaf begins: none of its deadlines is earlier.
  int64_t begin_ns(Place place) const { return ref(place).begin_ns; }
  // The time at which the second leaf begins; kNever if there is none.
  int64_t second_begin_ns() const {
    Place place;
    return advance(&place) ? begin_ns(place) : kNever;
  }
  // Not for the first leaf. The new time must keep the order.
  void set_begin(Place place, int64_t begin_ns) { ref(place).begin_ns = begin_ns; }

  // Returns the last leaf that begins at this time or earlier.
  Place find(int64_t deadline_ns) const;
  // Returns the place of a leaf that has this deadline, or had it until now.
  Place place_of(const TimerLeaf* leaf, int64_t deadline_ns) const;
  // Go to the next leaf, or to the one before. Return false if there is none.
  bool advance(Place* place) const;
  bool retreat(Place* place) const;

  // Put a leaf into the empty list, or behind another leaf. When they throw std::bad_alloc, because
  // there is no memory or the list has all its pages, nothing has changed.
  void insert_first(TimerLeaf* leaf);
  void insert_after(Place place, int64_t begin_ns, TimerLeaf* leaf);
  // Removes a leaf. Returns a page that became empty, which the caller gives to Pages; otherwise
  // null.
  void* erase(Place place);

  // Aborts the process with a message when an invariant does not hold.
  void check_invariants() const;

 private:
  struct Ref {
    int64_t begin_ns;
    TimerLeaf* leaf;
  };
  static constexpr size_t kRefs = Pages::kSize / sizeof(Ref) - 1;
  struct Page {
    size_t count;
    Ref* end() { return refs + count; }
    Ref refs[kRefs];  // those from count on are not initialised
  };
  static_assert(sizeof(Page) <= Pages::kSize);
  // There is room for half a million leaves if all pages are full, and for half as many if they
  // came in no order. A page from which leaves were removed is not joined with others.
  static constexpr size_t kPages = 256;
  static constexpr int64_t kLeastTime = std::numeric_limits<int64_t>::min();

  Ref& ref(Place place) const { return pages_[place.page]->refs[place.index]; }
  // Puts an empty page behind this one.
  Page* add_page(size_t after);

  std::array<Page*, kPages> pages_{};
  size_t page_count_ = 0;
  size_t size_ = 0;
};

}  // namespace workflow
