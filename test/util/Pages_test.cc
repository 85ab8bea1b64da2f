#include "util/Pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <set>
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

TEST(Pages, ReturnToTheKernelAtOnce) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all memory is malloc's";
  }
  void* const pages = Pages::take();
  EXPECT_EQ(::msync(pages, Pages::kSize, MS_ASYNC), 0);
  Pages::give(pages);
  EXPECT_EQ(::msync(pages, Pages::kSize, MS_ASYNC), -1) << "it is mapped still";
}

TEST(Pages, GiveNothing) {
  Pages::give(nullptr);
}

}  // namespace
}  // namespace workflow
