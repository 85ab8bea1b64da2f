#include "kernel/LeafOrder.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace workflow {

namespace {

// Returns the last of `count` positions whose time is not later than `deadline_ns`, or 0. The times
// ascend. The loop has no branch that depends on them.
template <class BeginAt>
size_t last_not_later(size_t count, int64_t deadline_ns, BeginAt begin_at) {
  size_t found = 0;
  while (count > 1) {
    const size_t half = count / 2;
    found = begin_at(found + half) <= deadline_ns ? found + half : found;
    count -= half;
  }
  return found;
}

}  // namespace

LeafOrder::~LeafOrder() {
  for (Page* page : pages_) {
    Pages::give(page);
  }
}

LeafOrder::Place LeafOrder::find(int64_t deadline_ns) const {
  const size_t page = last_not_later(page_count_, deadline_ns,
                                     [this](size_t i) { return pages_[i]->refs[0].begin_ns; });
  const Ref* const refs = pages_[page]->refs;
  const size_t index = last_not_later(pages_[page]->count, deadline_ns,
                                      [refs](size_t i) { return refs[i].begin_ns; });
  return {page, index};
}

LeafOrder::Place LeafOrder::place_of(const TimerLeaf* leaf, int64_t deadline_ns) const {
  if (leaf == first()) return {};
  Place place = find(deadline_ns);
  // The leaves between the one that was found and `leaf` have only timers of this deadline.
  while (at(place) != leaf) {
    const bool has_more = retreat(&place);
    assert(has_more);
    (void)has_more;
  }
  return place;
}

bool LeafOrder::advance(Place* place) const {
  if (place->index + 1 < pages_[place->page]->count) {
    place->index++;
    return true;
  }
  if (place->page + 1 == page_count_) return false;
  *place = {place->page + 1, 0};
  return true;
}

bool LeafOrder::retreat(Place* place) const {
  if (place->index > 0) {
    place->index--;
    return true;
  }
  if (place->page == 0) return false;
  *place = {place->page - 1, pages_[place->page - 1]->count - 1};
  return true;
}

LeafOrder::Page* LeafOrder::add_page(size_t after) {
  if (page_count_ == kPages) {
    throw std::bad_alloc();
  }
  Page* const page = new (Pages::take()) Page;
  page->count = 0;
  Page** const place = pages_.data() + after;
  std::move_backward(place, pages_.data() + page_count_, pages_.data() + page_count_ + 1);
  *place = page;
  page_count_++;
  return page;
}

void LeafOrder::insert_first(TimerLeaf* leaf) {
  Page* const page = add_page(0);
  page->refs[page->count++] = {kLeastTime, leaf};
  size_++;
}

void LeafOrder::insert_after(Place place, int64_t begin_ns, TimerLeaf* leaf) {
  Page* page = pages_[place.page];
  size_t index = place.index + 1;
  if (page->count == kRefs) {
    // Behind the last leaf of all, as with timers that are each due later than those before, the
    // full page stays full.
    const bool is_last = index == kRefs && place.page + 1 == page_count_;
    const size_t kept = is_last ? kRefs : kRefs / 2;
    Page* const added = add_page(place.page + 1);
    std::copy(page->refs + kept, page->end(), added->refs);
    added->count = kRefs - kept;
    page->count = kept;
    if (index > kept || is_last) {
      page = added;
      index -= kept;
    }
  }
  std::move_backward(page->refs + index, page->end(), page->end() + 1);
  page->refs[index] = {begin_ns, leaf};
  page->count++;
  size_++;
}

void* LeafOrder::erase(Place place) {
  Page* const page = pages_[place.page];
  std::move(page->refs + place.index + 1, page->end(), page->refs + place.index);
  page->count--;
  size_--;
  const bool is_empty = page->count == 0;
  if (is_empty) {
    std::move(pages_.data() + place.page + 1, pages_.data() + page_count_,
              pages_.data() + place.page);
    pages_[--page_count_] = nullptr;
  }
  if (size_ > 0) {
    ref({}).begin_ns = kLeastTime;
  }
  return is_empty ? page : nullptr;
}

void LeafOrder::check_invariants() const {
  const auto require = [this](bool holds, const char* what) {
    if (!holds) {
      std::fprintf(stderr, "LeafOrder of %zu leaves: %s\n", size_, what);
      std::abort();
    }
  };
  require(size_ == 0 || ref({}).begin_ns == kLeastTime, "the first leaf begins too late");
  size_t count = 0;
  int64_t before_ns = kLeastTime;
  for (size_t i = 0; i < page_count_; i++) {
    require(pages_[i]->count > 0, "a page is empty");
    for (size_t j = 0; j < pages_[i]->count; j++) {
      require(before_ns <= begin_ns({i, j}), "a leaf begins earlier than the one before it");
      before_ns = begin_ns({i, j});
      count++;
    }
  }
  require(count == size_, "the count is wrong");
}

}  // namespace workflow
