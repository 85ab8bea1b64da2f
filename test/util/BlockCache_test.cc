#include "util/BlockCache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "kernel/Simulation.h"
#include "support/TestSeed.h"

namespace workflow {
namespace {

std::vector<void*> take(size_t size, size_t n) {
  std::vector<void*> blocks;
  for (size_t i = 0; i < n; i++) {
    blocks.push_back(BlockCache::take(size));
    std::memset(blocks.back(), static_cast<int>(i), size);
  }
  return blocks;
}

void give(size_t size, const std::vector<void*>& blocks) {
  for (void* block : blocks) {
    BlockCache::give(block, size);
  }
}

// Each case uses sizes of its own, so that it does not get what another case left.
TEST(BlockCache, BlocksInUseAreDistinctAndWhole) {
  for (const size_t size : {size_t{1}, size_t{40}, size_t{121}, BlockCache::kLargest,
                            BlockCache::kLargest + 1, size_t{1'000}}) {
    for (int round = 0; round < 3; round++) {
      const std::vector<void*> blocks = take(size, 300);
      EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
      for (size_t i = 0; i < blocks.size(); i++) {
        for (size_t byte = 0; byte < size; byte++) {
          ASSERT_EQ(static_cast<unsigned char*>(blocks[i])[byte], static_cast<unsigned char>(i));
        }
      }
      give(size, blocks);
    }
  }
}

TEST(BlockCache, BlocksTravelFromWhoFreesToWhoAllocates) {
  constexpr size_t kSize = 48;
  const size_t n = static_cast<size_t>(BlockCache::kBatch) * 10;
  const std::vector<void*> blocks = take(kSize, n);
  const std::set<void*> known(blocks.begin(), blocks.end());
  std::thread freer([&blocks] { give(kSize, blocks); });
  freer.join();
  const std::vector<void*> again = take(kSize, n);
  size_t recycled = 0;
  for (void* block : again) {
    recycled += known.count(block);
  }
  if (!Pages::plain()) {
    EXPECT_GE(recycled, n - static_cast<size_t>(BlockCache::kBatch) * 2);
  }
  give(kSize, again);
}

TEST(BlockCache, WholeBatchesAreKeptUntilMoreComeBackThanAreWanted) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all blocks are malloc's";
  }
  constexpr size_t kSize = 72;
  static Slabs slabs(kSize);  // never destroyed
  const auto take_batch = [] {
    int count = 0;
    Slabs::Block* const batch = slabs.take(Slabs::kBatch, &count);
    EXPECT_EQ(count, Slabs::kBatch);
    return batch;
  };
  // What is kept comes back as it is, the newest first.
  std::vector<Slabs::Block*> batches;
  for (int i = 0; i < Slabs::kMostKept; i++) {
    batches.push_back(take_batch());
  }
  for (Slabs::Block* batch : batches) {
    slabs.give_whole(batch);
  }
  for (size_t i = batches.size(); i > 0; i--) {
    EXPECT_EQ(take_batch(), batches[i - 1]);
  }
  // One more comes back, and all of them go to their slabs.
  batches.push_back(take_batch());
  for (Slabs::Block* batch : batches) {
    slabs.give_whole(batch);
  }
  ASSERT_EQ(slabs.slab_count(), 1u);
  int count = 0;
  slabs.give(slabs.take(1'000'000, &count));
  EXPECT_EQ(static_cast<size_t>(count), (Pages::kSize - 64) / kSize);
}

TEST(BlockCache, ManyThreadsExchangeBlocks) {
  constexpr size_t kSize = 56;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; thread++) {
    threads.emplace_back([] {
      for (int round = 0; round < 100; round++) {
        const std::vector<void*> blocks = take(kSize, 200);
        std::thread freer([&blocks] { give(kSize, blocks); });
        give(kSize, take(kSize, 100));
        freer.join();
      }
    });
  }
  threads.clear();  // joins them
}

// All memory but that of a few slabs returns, in whatever order the blocks are freed and by
// whichever threads.
TEST(BlockCache, MemoryReturnsToTheSystem) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all blocks are malloc's";
  }
  constexpr size_t kSize = 88;
  Slabs& slabs = BlockCache::slabs(BlockCache::kind_of(kSize));
  std::vector<void*> blocks = take(kSize, 100'000);
  EXPECT_GE(slabs.slab_count(), 100'000 * kSize / Pages::kSize);
  test_support::TestRandom random(test_support::test_seed());
  for (size_t i = blocks.size(); i > 1; i--) {
    std::swap(blocks[i - 1], blocks[random.below(i)]);
  }
  std::thread freer([&blocks] { give(kSize, blocks); });
  freer.join();
  EXPECT_LE(slabs.slab_count(), 5u);  // of them one for what this thread has taken in advance
}

// What the destructor of a thread-local object frees or takes may come after the cache's own end.
TEST(BlockCache, AThreadThatEndsKeepsNothing) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all blocks are malloc's";
  }
  constexpr size_t kSize = 104;
  struct Late {
    ~Late() {
      give(kSize, take(kSize, 3));
      BlockCache::give(block, kSize);
    }
    void* block = nullptr;
  };
  Slabs& slabs = BlockCache::slabs(BlockCache::kind_of(kSize));
  constexpr size_t n = 32 * 1024 / kSize * 3;  // blocks of several slabs
  std::thread([] {
    static thread_local Late late;  // constructed first, so destroyed last
    late.block = BlockCache::take(kSize);
    give(kSize, take(kSize, n));
  }).join();
  // Had the thread kept a block, its slab would not be among those that are empty.
  int count = 0;
  std::vector<Slabs::Block*> batches;
  const size_t before = slabs.slab_count();
  while (slabs.slab_count() == before) {
    batches.push_back(slabs.take(1, &count));
  }
  const size_t per_slab = (Pages::kSize - 64) / kSize;
  EXPECT_EQ(static_cast<size_t>(count), before * per_slab + 1);
  for (Slabs::Block* batch : batches) {
    slabs.give(batch);
  }
}

TEST(BlockCache, SimulationsAreNotScheduledByIt) {
  constexpr size_t kSize = 64;
  give(kSize, take(kSize, 100));
  Simulation simulation(1, {});
  const uint64_t before = simulation.steps();
  give(kSize, take(kSize, 200));
  EXPECT_EQ(simulation.steps(), before);
}

}  // namespace
}  // namespace workflow
