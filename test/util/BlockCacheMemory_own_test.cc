// A thread may use its cache of blocks for the first time when there is no memory. It keeps no
// blocks then, and the process goes on.

#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <thread>

#include "util/BlockCache.h"
#include "util/Pages.h"
#include "util/Sanitizers.h"

namespace {

constinit thread_local bool no_memory = false;
constinit thread_local int refused = 0;

}  // namespace

#if !defined(WORKFLOW_ADDRESS_SANITIZER)
extern "C" {
void* __libc_calloc(size_t count, size_t size);
// glibc takes the memory for what a thread does at its end from here.
void* calloc(size_t count, size_t size) {
  if (no_memory) {
    refused++;
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_calloc(count, size);
}
}
#endif

namespace {

using namespace workflow;

constexpr size_t kSize = 56;

// The values of the first keys of a process need no memory.
void take_first_keys() {
  constexpr int kWithoutMemory = 32;
  for (int i = 0; i < kWithoutMemory; i++) {
    pthread_key_t key = 0;
    ASSERT_EQ(::pthread_key_create(&key, nullptr), 0);
  }
}

size_t free_blocks_of_a_slab(Slabs& slabs) {
  int count = 0;
  slabs.give(slabs.take(1'000'000, &count));
  return static_cast<size_t>(count);
}

TEST(BlockCacheMemory, AThreadWithoutMemoryKeepsNothing) {
  if (Pages::plain()) {
    GTEST_SKIP() << "all blocks are malloc's";
  }
  take_first_keys();
  Slabs& slabs = BlockCache::slabs(BlockCache::kind_of(kSize));
  std::thread([&slabs] {
    no_memory = true;
    void* block = BlockCache::take(kSize);
    BlockCache::give(block, kSize);
    no_memory = false;
    EXPECT_GT(refused, 0);
    // Every block is in the slab, which is empty.
    EXPECT_EQ(free_blocks_of_a_slab(slabs), (Pages::kSize - 64) / kSize);
    // Now there is memory, and the thread keeps blocks.
    block = BlockCache::take(kSize);
    EXPECT_LT(free_blocks_of_a_slab(slabs), (Pages::kSize - 64) / kSize);
    BlockCache::give(block, kSize);
  }).join();
  EXPECT_EQ(free_blocks_of_a_slab(slabs), (Pages::kSize - 64) / kSize);
}

}  // namespace
