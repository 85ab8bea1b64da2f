#include "kernel/LeafOrder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/TimerLeaves.h"
#include "support/TestSeed.h"
#include "util/Pages.h"

using test_support::TestRandom;
using workflow::LeafOrder;
using workflow::Pages;
using workflow::TimerLeaf;

namespace {

// An order beside a vector of the same leaves.
class Model {
 public:
  explicit Model(size_t leaves) {
    for (size_t i = 0; i < leaves; i++) {
      leaves_.emplace_back(nullptr, static_cast<uint32_t>(i));
    }
  }

  size_t size() const { return expected_.size(); }

  // Puts a leaf behind the one that the order finds.
  void insert(int64_t begin_ns) {
    TimerLeaf* const leaf = &leaves_[expected_.size() + removed_];
    if (expected_.empty()) {
      order_.insert_first(leaf);
      expected_.push_back({INT64_MIN, leaf});
      return;
    }
    const size_t i = index_of(begin_ns);
    const LeafOrder::Place place = order_.find(begin_ns);
    ASSERT_EQ(order_.at(place), expected_[i].leaf);
    order_.insert_after(place, begin_ns, leaf);
    expected_.insert(expected_.begin() + static_cast<ptrdiff_t>(i) + 1, {begin_ns, leaf});
  }

  void erase(size_t i) {
    const Expected gone = expected_[i];
    const LeafOrder::Place place = order_.place_of(gone.leaf, gone.begin_ns);
    ASSERT_EQ(order_.at(place), gone.leaf);
    Pages::give(order_.erase(place));
    expected_.erase(expected_.begin() + static_cast<ptrdiff_t>(i));
    removed_++;
    if (i == 0 && size() > 0) {
      expected_[0].begin_ns = INT64_MIN;
    }
  }

  void compare() const {
    order_.check_invariants();
    ASSERT_EQ(order_.size(), expected_.size());
    if (expected_.empty()) return;
    ASSERT_EQ(order_.first(), expected_[0].leaf);
    LeafOrder::Place place;
    for (size_t i = 0; i < expected_.size(); i++) {
      ASSERT_EQ(order_.at(place), expected_[i].leaf);
      ASSERT_EQ(order_.begin_ns(place), expected_[i].begin_ns);
      ASSERT_EQ(order_.advance(&place), i + 1 < expected_.size());
    }
    for (size_t i = expected_.size(); i-- > 0;) {
      ASSERT_EQ(order_.at(place), expected_[i].leaf);
      ASSERT_EQ(order_.retreat(&place), i > 0);
    }
  }

 private:
  struct Expected {
    int64_t begin_ns;
    TimerLeaf* leaf;
  };

  size_t index_of(int64_t deadline_ns) const {
    const auto after =
        std::upper_bound(expected_.begin(), expected_.end(), deadline_ns,
                         [](int64_t ns, const Expected& leaf) { return ns < leaf.begin_ns; });
    return after == expected_.begin() ? 0 : static_cast<size_t>(after - expected_.begin()) - 1;
  }

  LeafOrder order_;
  std::vector<TimerLeaf> leaves_;  // in the order in which they are used
  std::vector<Expected> expected_;
  size_t removed_ = 0;
};

constexpr size_t kLeaves = 10'000;  // at least five pages

}  // namespace

TEST(LeafOrder, BehavesLikeAVector) {
  TestRandom random(test_support::test_seed());
  for (const int64_t times : {10, 1'000, 1'000'000'000}) {
    const auto any_time = [&random, times] { return random.between(0, times); };
    Model model(4 * kLeaves);
    for (size_t i = 0; i < kLeaves && !HasFatalFailure(); i++) {
      model.insert(any_time());
    }
    model.compare();
    for (size_t i = 0; i < 2 * kLeaves && !HasFatalFailure(); i++) {
      if (random.one_in(2)) {
        model.insert(any_time());
      } else {
        model.erase(random.one_in(3) ? 0 : random.below(model.size()));
      }
    }
    model.compare();
    while (model.size() > 0 && !HasFatalFailure()) {
      model.erase(random.below(model.size()));
      if (model.size() % 1024 == 0) {
        model.compare();
      }
    }
  }
}

TEST(LeafOrder, LeavesInOrderFillTheirPages) {
  const size_t before = Pages::count();
  Model model(kLeaves);
  for (size_t i = 0; i < kLeaves && !HasFatalFailure(); i++) {
    model.insert(static_cast<int64_t>(i));
  }
  EXPECT_EQ(Pages::count(), before + kLeaves / 2047 + 1);
  model.compare();
  while (model.size() > 1 && !HasFatalFailure()) {
    model.erase(0);
  }
  EXPECT_EQ(Pages::count(), before + 1);
  model.compare();
}

// Behind the last leaf of a full page, which is not the last page.
TEST(LeafOrder, LeavesBehindAFullPageShareAPage) {
  constexpr int64_t kPage = 2047;
  const size_t before = Pages::count();
  Model model(kLeaves);
  for (int64_t i = 0; i < 2 * kPage && !HasFatalFailure(); i++) {
    model.insert(i < kPage ? i : 1'000'000 + i);
  }
  ASSERT_EQ(Pages::count(), before + 2);
  for (int64_t i = 0; i < kPage && !HasFatalFailure(); i++) {
    model.insert(1'000'000 - i);
  }
  EXPECT_LE(Pages::count(), before + 5);
  model.compare();
}
