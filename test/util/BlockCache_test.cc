#include "util/BlockCache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "kernel/Simulation.h"

namespace workflow {
namespace {

template <size_t SIZE>
std::vector<void*> take(size_t n) {
  std::vector<void*> blocks;
  for (size_t i = 0; i < n; i++) {
    blocks.push_back(BlockCache<SIZE>::take());
    std::memset(blocks.back(), static_cast<int>(i), SIZE);
  }
  return blocks;
}

template <size_t SIZE>
void give(const std::vector<void*>& blocks) {
  for (void* block : blocks) {
    BlockCache<SIZE>::give(block);
  }
}

TEST(BlockCache, BlocksInUseAreDistinctAndWhole) {
  constexpr size_t kSize = 40;
  for (int round = 0; round < 5; round++) {
    const std::vector<void*> blocks = take<kSize>(1000);
    EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); i++) {
      for (size_t byte = 0; byte < kSize; byte++) {
        ASSERT_EQ(static_cast<unsigned char*>(blocks[i])[byte], static_cast<unsigned char>(i));
      }
    }
    give<kSize>(blocks);
  }
}

// Sizes of their own: what one case leaves is not another's.
TEST(BlockCache, BlocksTravelFromWhoFreesToWhoAllocates) {
  constexpr size_t kSize = 48;
  const size_t n = static_cast<size_t>(BlockCache<kSize>::kBatch) * 10;
  const std::vector<void*> blocks = take<kSize>(n);
  const std::set<void*> known(blocks.begin(), blocks.end());
  std::thread freer([&blocks] { give<kSize>(blocks); });
  freer.join();
  const std::vector<void*> again = take<kSize>(n);
  size_t recycled = 0;
  for (void* block : again) {
    recycled += known.count(block);
  }
  if (BlockCache<kSize>::kRecycles) {
    EXPECT_GE(recycled, n - static_cast<size_t>(BlockCache<kSize>::kBatch) * 2);
  } else {
    EXPECT_EQ(again.size(), n);
  }
  give<kSize>(again);
}

TEST(BlockCache, ManyThreadsExchangeBlocks) {
  constexpr size_t kSize = 56;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++) {
    threads.emplace_back([] {
      for (int round = 0; round < 100; round++) {
        const std::vector<void*> blocks = take<kSize>(200);
        std::thread freer([&blocks] { give<kSize>(blocks); });
        give<kSize>(take<kSize>(100));
        freer.join();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(BlockCache, SimulationsGetAndGivePlainMemory) {
  constexpr size_t kSize = 64;
  give<kSize>(take<kSize>(100));
  Simulation simulation(1, {});
  const uint64_t before = simulation.steps();
  const std::vector<void*> blocks = take<kSize>(200);
  for (void* block : blocks) {
    ::operator delete(block);
  }
  give<kSize>(take<kSize>(200));
  EXPECT_EQ(simulation.steps(), before) << "no lock was taken";
}

}  // namespace
}  // namespace workflow
