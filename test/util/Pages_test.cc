#include "util/Pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace workflow {
namespace {

bool is_aligned(const void* pages) {
  return reinterpret_cast<uintptr_t>(pages) % Pages::kSize == 0;
}

TEST(Pages, ArePiecesOfTheirOwnAlignedToTheirSize) {
  std::vector<void*> pieces;
  std::vector<void*> between;
  for (int i = 0; i < 50; i++) {
    pieces.push_back(Pages::take());
    EXPECT_TRUE(is_aligned(pieces.back()));
    std::memset(pieces.back(), i, Pages::kSize);
    // The place that the kernel offers next is not aligned.
    between.push_back(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(between.back(), MAP_FAILED);
  }
  EXPECT_EQ(std::set<void*>(pieces.begin(), pieces.end()).size(), pieces.size());
  for (size_t i = 0; i < pieces.size(); i++) {
    const auto* const bytes = static_cast<unsigned char*>(pieces[i]);
    EXPECT_EQ(bytes[0], i);
    EXPECT_EQ(bytes[Pages::kSize - 1], i);
    Pages::give(pieces[i]);
    ::munmap(between[i], 4096);
  }
}

bool is_mapped(void* pages) {
  return ::msync(pages, Pages::kSize, MS_ASYNC) == 0;
}

TEST(Pages, AreKeptUpToALimitAndReturnToTheKernelBeyondIt) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all memory is malloc's";
  }
  const size_t more = 10;
  std::vector<void*> pieces;
  for (size_t i = 0; i < Pages::kMostKept + more; i++) {
    pieces.push_back(Pages::take());
    std::memset(pieces.back(), 1, Pages::kSize);
  }
  EXPECT_EQ(Pages::kept_count(), 0u);
  for (size_t i = 0; i < pieces.size(); i++) {
    Pages::give(pieces[i]);
    // At once: later somebody else may have got the place.
    EXPECT_EQ(is_mapped(pieces[i]), i < Pages::kMostKept) << i;
  }
  EXPECT_EQ(Pages::kept_count(), Pages::kMostKept);
  // The one that was given back last comes first, and each comes once.
  for (size_t i = Pages::kMostKept; i-- > 0;) {
    ASSERT_EQ(Pages::take(), pieces[i]);
  }
  EXPECT_EQ(Pages::kept_count(), 0u);
  for (size_t i = 0; i < Pages::kMostKept; i++) {
    Pages::give(pieces[i]);
  }
}

TEST(Pages, OfManyThreadsAreEachOfOneThread) {
  std::atomic<bool> torn{false};
  std::vector<std::thread> threads;
  for (unsigned char id = 1; id <= 4; id++) {
    threads.emplace_back([id, &torn] {
      std::array<unsigned char*, 8> mine{};
      for (int round = 0; round < 500; round++) {
        for (unsigned char*& pages : mine) {
          pages = static_cast<unsigned char*>(Pages::take());
          pages[0] = pages[Pages::kSize - 1] = id;
        }
        for (unsigned char* pages : mine) {
          if (pages[0] != id || pages[Pages::kSize - 1] != id) {
            torn = true;
          }
          Pages::give(pages);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(torn);
}

TEST(Pages, GiveNothing) {
  Pages::give(nullptr);
}

}  // namespace
}  // namespace workflow
