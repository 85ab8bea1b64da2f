#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernel/Poller.h"
#include "support/TestSeed.h"
#include "workflow/detail/Runnable.h"

namespace test_support {

// An account of what threads post to a poller, while others ask whether it is settled, and perhaps
// one stops it:
//
// 1. What was taken runs once, in the order of the posts of each thread. Nothing else runs.
// 2. Once a post was refused, those that follow are, too.
// 3. When the poller says that it is settled, or has made a round, everything has run that had been
//    posted before somebody asked.
class PostLedger {
 public:
  // Takes a random time.
  using Pause = std::function<void(TestRandom&)>;

  PostLedger(workflow::Poller& poller, size_t posters, uint64_t seed, Pause pause)
      : poller_(poller), seed_(seed), pause_(std::move(pause)), next_(2 * posters, 0) {
    for (size_t list = 0; list < 2 * posters; list++) {
      items_.push_back(std::vector<Item>(kItems));
      for (size_t i = 0; i < kItems; i++) {
        items_[list][i].place(*this, list, i);
      }
    }
  }

  // Posts all items. Once one is refused, those after it must be. To be called by one thread for
  // each `poster`. The items post others as they run.
  void post(size_t poster) {
    TestRandom random(seed_, poster);
    bool refused = false;
    for (Item& item : items_[2 * poster]) {
      if (random.one_in(4)) {
        pause_(random);
      }
      const bool taken = post(item);
      EXPECT_FALSE(taken && refused) << "taken after one that was refused";
      refused = !taken;
    }
  }

  // Asks whether the poller is settled, and then for a round. Any number of threads.
  void look() {
    size_t posted = posted_;
    if (poller_.settled()) {
      EXPECT_GE(ran_, posted) << "settled";
    }
    posted = posted_;
    if (const uint64_t round = poller_.ask_for_round()) {
      poller_.wait_for_round(round);
      EXPECT_GE(ran_, posted) << "after a round";
    }
  }

  // The number of items that were taken, and of those that have run.
  size_t posted() const { return posted_; }
  size_t ran() const { return ran_; }
  static size_t most(size_t posters) { return 2 * posters * kItems; }

  // To be called when the poller has stopped and the threads have ended.
  void close() {
    EXPECT_EQ(ran_, posted_);
    EXPECT_TRUE(poller_.settled());
    Item late;
    EXPECT_FALSE(poller_.post(&late));
  }

 private:
  static constexpr size_t kItems = 20;

  class Item final : public workflow::Runnable {
   public:
    ~Item() override = default;
    void place(PostLedger& ledger, size_t list, size_t number) {
      ledger_ = &ledger;
      list_ = list;
      number_ = number;
    }
    void run_queued() override { ledger_->run(list_, number_); }

   private:
    PostLedger* ledger_ = nullptr;
    size_t list_ = 0;  // 2 * poster, or that + 1 for the items that its items post
    size_t number_ = 0;
  };

  bool post(Item& item) {
    if (!poller_.post(&item)) return false;
    posted_++;
    return true;
  }

  // On the poller's thread.
  void run(size_t list, size_t number) {
    EXPECT_EQ(number, next_[list]++);
    TestRandom random(seed_, list * kItems + number + 1000);
    if (random.one_in(8)) {
      pause_(random);
    }
    if (list % 2 == 0 && !refused_) {
      refused_ = !post(items_[list + 1][number]);
    }
    ran_++;
  }

  workflow::Poller& poller_;
  const uint64_t seed_;
  const Pause pause_;
  std::vector<std::vector<Item>> items_;
  std::atomic<size_t> posted_{0};
  std::atomic<size_t> ran_{0};
  // Poller's thread only.
  std::vector<size_t> next_;  // for each list, how many of its items have run
  bool refused_ = false;
};

}  // namespace test_support
