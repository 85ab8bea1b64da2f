#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "fault/MemoryFaults.h"
#include "redis/FakeRedis.h"
#include "redis/RedisServer.h"
#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "support/Eventually.h"

// Stores in a Redis while memory runs out.

namespace {

using redis_test::answering;
using redis_test::bulk;
using redis_test::RawServer;
using redis_test::RedisServer;
using store_test::ask;
using store_test::carry_out;
using store_test::names;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::url_of;
using test_support::eventually;
using workflow::kNeverUs;
using workflow::ScheduleRequest;
using workflow::StoreFailure;

// Until disarm() the n-th allocation of this thread fails and `more` after it.
void arm_here(long n, long more = 0) {
  fault::counts_here = true;
  fault::arm(n, more);
}

TEST(RedisStoreMemory, AReopeningThatFailsForWantOfMemoryCanBeRepeated) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, "&namespace=app&shards=1"));
  ask(*backend, timer("a", kNeverUs));
  long failures = 0;
  for (long n = 1; n == 1 || failures > 0; n++) {
    std::string message;
    arm_here(n);
    try {
      backend->reopen(&message);
    } catch (const std::bad_alloc&) {
      // The next one has memory.
    }
    failures = fault::disarm();
    ASSERT_TRUE(reopens(*backend)) << n;
  }
  EXPECT_EQ(names(*backend), std::vector<std::string>{"a"});
}

TEST(RedisStoreMemory, ClosingNeedsNone) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  arm_here(1, LONG_MAX - 1);
  bool has_thrown = false;
  try {
    backend->close();
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  fault::disarm();
  EXPECT_FALSE(has_thrown);
}

// Without memory to ask whether the master was replaced, the store gives up. Replies that come
// later find nothing of it.
TEST(RedisStoreMemory, ASilentMasterIsGivenUpWithoutMemory) {
  RedisServer master({.on = RedisServer::On::kTcp});
  std::atomic<int> asked{0};
  RawServer sentinel(answering([&](const std::vector<std::string>& words, int) {
    if (words[0] == "PING") {
      return std::string("+PONG\r\n");
    }
    asked++;
    return "*6\r\n" + bulk("ip") + bulk("127.0.0.1") + bulk("port") +
           bulk(std::to_string(master.port())) + bulk("config-epoch") + bulk("0");
  }));
  const auto backend =
      open_backend("redis+sentinel://127.0.0.1:" + std::to_string(sentinel.port()) +
                   "/main?namespace=app&shards=1");
  const int before = asked;
  master.signal(SIGSTOP);
  std::thread client([&] {
    fault::counts_here = true;
    ScheduleRequest request = timer("a", kNeverUs);
    StoreFailure failure;
    try {
      EXPECT_FALSE(carry_out(*backend, request, &failure, 1));
    } catch (const std::bad_alloc&) {
      // There is none for the failure, either.
    }
  });
  EXPECT_TRUE(eventually([&] { return asked > before; }));
  fault::arm(1, LONG_MAX - 1);
  client.join();
  fault::disarm();
  master.signal(SIGCONT);
  ASSERT_TRUE(reopens(*backend));
}

}  // namespace
