#include "store/RedisCommands.h"

#include <gtest/gtest.h>

#include <string>

#include "support/RedisCommands.h"
#include "support/RedisServer.h"

using workflow::changes_connection;
using workflow::only_reads;

namespace redis_test {
namespace {

TEST(RedisCommands, WhatChangesTheConnectionIsKnown) {
  for (const char* command :
       {"AUTH",       "auth",       "Select",      "HELLO",        "RESET",        "QUIT",
        "MULTI",      "EXEC",       "DISCARD",     "WATCH",        "UNWATCH",      "SUBSCRIBE",
        "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "MONITOR",
        "SYNC",       "PSYNC",      "REPLCONF",    "ASKING",       "READONLY",     "READWRITE"}) {
    EXPECT_TRUE(changes_connection(command, {})) << command;
    EXPECT_FALSE(only_reads(command)) << command;
  }
  for (const char* command : {"GET", "SET", "PUBLISH", "EVAL", "BLPOP", "WAIT", "", "AUTHX"}) {
    EXPECT_FALSE(changes_connection(command, {"AUTH"})) << command;
  }
}

TEST(RedisCommands, SomePartsOfCommandsChangeTheConnection) {
  EXPECT_TRUE(changes_connection("CLIENT", {"reply", "OFF"}));
  EXPECT_TRUE(changes_connection("CLIENT", {"TRACKING", "on"}));
  EXPECT_TRUE(changes_connection("CLIENT", {"SETNAME", "x"}));
  EXPECT_TRUE(changes_connection("client", {}));
  EXPECT_FALSE(changes_connection("CLIENT", {"list"}));
  EXPECT_FALSE(changes_connection("CLIENT", {"ID"}));
  EXPECT_TRUE(changes_connection("SCRIPT", {"Debug", "YES"}));
  EXPECT_FALSE(changes_connection("SCRIPT", {"LOAD", "return 1"}));
}

TEST(RedisCommands, WhatIsRepeatedIsReadOnlyForTheServer) {
  RedisServer server;
  const Reply all = run(server.url(), {"COMMAND"});
  ASSERT_EQ(all.state, WFT_STATE_SUCCESS);
  size_t known = 0;
  for (size_t i = 0; i < all.value.arr_size(); i++) {
    const std::string name = all.value[i][0].string_value();
    if (!only_reads(name)) continue;
    known++;
    bool writes = false;
    for (size_t flag = 0; flag < all.value[i][2].arr_size(); flag++) {
      const std::string text = all.value[i][2][flag].string_value();
      writes = writes || text == "write" || text == "may_replicate";
    }
    EXPECT_TRUE(!writes || name == "pfcount") << name;
  }
  EXPECT_GT(known, 80u);
}

}  // namespace
}  // namespace redis_test
