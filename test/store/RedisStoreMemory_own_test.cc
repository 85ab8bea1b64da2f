#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <new>
#include <string>
#include <vector>

#include "store/RedisStoreKit.h"
#include "store/RedisStoreLink.h"
#include "store/RedisUrl.h"
#include "store/RedisWire.h"
#include "store/StoreBackend.h"
#include "support/MemoryFaults.h"
#include "support/RedisServer.h"

// Stores in a Redis while memory runs out.

namespace {

using redis_test::RedisServer;
using store_test::ask;
using store_test::names;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::url_of;
using workflow::kNeverUs;

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

// The server is silent, and whoever wants to find out whether it was replaced finds that memory has
// run out, as does everything after that. Replies that come later find nothing of what waited.
TEST(RedisStoreMemory, ASilentServerIsGivenUpWithoutMemory) {
  RedisServer server;
  workflow::RedisUrl url;
  ASSERT_EQ(workflow::RedisUrl::parse(server.url(), &url), 0);
  workflow::RedisStoreLink link(url);
  std::string command;
  workflow::append_command(&command, {"PING"});
  ASSERT_EQ(link.ask(command).error, 0);
  const std::vector<workflow::RedisStoreLink::Question> questions(3, {&link, command});
  int asked = 0;
  const auto find_out = [&asked] {
    asked++;
    arm_here(1, LONG_MAX - 1);
    return !std::vector<char>(64).empty();
  };
  server.signal(SIGSTOP);
  bool has_thrown = false;
  std::vector<workflow::RedisStoreLink::Reply> replies;
  try {
    replies = workflow::RedisStoreLink::ask_each(questions, {.goes_on = find_out});
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  fault::disarm();
  server.signal(SIGCONT);
  EXPECT_FALSE(has_thrown);
  EXPECT_EQ(asked, 1);
  ASSERT_EQ(replies.size(), 3U);
  for (const workflow::RedisStoreLink::Reply& reply : replies) {
    EXPECT_EQ(reply.error, EAGAIN);  // ECANCELED would say that it was not done
    EXPECT_TRUE(reply.sent);
  }
}

}  // namespace
