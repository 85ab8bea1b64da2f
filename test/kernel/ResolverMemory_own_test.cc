#include <set>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"
#include "support/MemoryFaults.h"

using test_support::Asker;

// Allocations that fail, one at a time: ours, and those of c-ares.

namespace {

class ResolverMemoryTest : public test_support::ResolverTest {
 protected:
  ResolverMemoryTest() { be_impatient(); }

  // The error of a look-up whose n-th allocation fails; and whether there were as many.
  int look_up_failing(const std::string& host, int family, long n, bool& failed) {
    Asker asker;
    fault::arm(n);
    fault::counts_here = true;
    resolver().resolve(host, family, &asker);
    fault::counts_here = false;
    // Where c-ares drops a message for want of memory, the time limit has it asked again.
    pass_until_told(asker);
    failed = fault::disarm() > 0;
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
  long n = 1;
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
  for (long n = 6; failed; n += 3) {
    any_served |= look_up_failing("www.test", AF_INET, n, failed) == 0;
  }
  EXPECT_TRUE(any_served);
}
