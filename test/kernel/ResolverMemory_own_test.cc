#include <ares.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"
#include "kernel/ThreadContext.h"

using test_support::Asker;

// Allocations that fail, one at a time: ours, and those of c-ares.

namespace {

// How many allocations from now the one is that fails; the count goes on to below zero.
std::atomic<long> fails_in{-1};
thread_local bool asks = false;

// On pollers' threads, and where the test says so: the test and its server need their memory.
bool allocation_fails() {
  const bool concerned = asks || workflow::ThreadContext::current().poller;
  return concerned && fails_in.load() >= 0 && fails_in.fetch_sub(1) == 0;
}

void* allocate(size_t size) {
  return allocation_fails() ? nullptr : std::malloc(size);
}
void* reallocate(void* memory, size_t size) {
  return allocation_fails() ? nullptr : std::realloc(memory, size);
}

}  // namespace

// Inlined, the pair of these looks mismatched to g++ 12.
[[gnu::noinline]] void* operator new(size_t size) {
  void* const memory = allocate(size);
  if (!memory) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

class ResolverMemoryTest : public test_support::ResolverTest {
 protected:
  ResolverMemoryTest() {
    // The first to initialise c-ares decides where its memory comes from.
    EXPECT_EQ(::ares_library_init_mem(ARES_LIB_INIT_ALL, allocate, std::free, reallocate),
              ARES_SUCCESS);
    be_impatient();
  }

  // The error of a look-up whose n-th allocation fails; and whether there were as many.
  int look_up_failing(const std::string& host, int family, long n, bool& failed) {
    Asker asker;
    fails_in = n;
    asks = true;
    resolver().resolve(host, family, &asker);
    asks = false;
    // Where c-ares drops a message for want of memory, the time limit has it asked again.
    pass_until_told(asker);
    failed = fails_in.exchange(-1) < 0;
    EXPECT_EQ(asker.times_told(), 1U);
    EXPECT_EQ(asker.error() == 0, asker.addresses() != nullptr);
    return asker.error();
  }
};

}  // namespace

TEST_F(ResolverMemoryTest, EachAllocationMayFail) {
  options_.cache.stale_ns = 0;
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}, .ttl_s = 0});
  EXPECT_EQ(look_up("www.test", AF_UNSPEC).error, 0);
  std::set<int> errors;
  bool failed = true;
  long n = 0;
  for (; failed && n < 1000; n++) {
    errors.insert(look_up_failing("www.test", AF_UNSPEC, n, failed));
    ASSERT_EQ(look_up("www.test", AF_UNSPEC).error, 0) << n;
  }
  EXPECT_FALSE(failed);
  EXPECT_GT(n, 30);
  EXPECT_TRUE(errors.contains(EAI_MEMORY));
  errors.erase(EAI_MEMORY);
  errors.erase(EAI_AGAIN);
  EXPECT_EQ(errors, std::set<int>{0});
}

TEST_F(ResolverMemoryTest, OldAddressesServeWithoutMemory) {
  options_.cache.stale_retry_ns = 0;
  server_.set("www.test", {.v4 = {"192.0.2.1"}, .ttl_s = 0});
  EXPECT_EQ(look_up("www.test").error, 0);
  bool failed = true;
  bool any_served = false;
  for (long n = 5; failed; n += 3) {
    any_served |= look_up_failing("www.test", AF_INET, n, failed) == 0;
  }
  EXPECT_TRUE(any_served);
}
