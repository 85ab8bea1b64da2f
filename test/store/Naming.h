#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/FakeRedis.h"
#include "support/RedisServer.h"

// What tests of stores have in common whose master Sentinels name.

namespace store_test {

// A Sentinel that names whatever master the test has set.
struct Naming {
  Naming()
      : server(redis_test::answering([this](const std::vector<std::string>& words, int) {
          if (words[0] == "PING") return std::string("+PONG\r\n");
          EXPECT_EQ(words[0] + " " + words[1] + " " + words[2], "SENTINEL MASTER main");
          asked++;
          const int port = named_port;
          return port == 0 ? std::string("-ERR No such master with that name\r\n")
                           : "*6\r\n" + redis_test::bulk("ip") + redis_test::bulk("127.0.0.1") +
                                 redis_test::bulk("port") + redis_test::bulk(std::to_string(port)) +
                                 redis_test::bulk("config-epoch") +
                                 redis_test::bulk(std::to_string(epoch));
        })) {}

  std::string address() const { return "127.0.0.1:" + std::to_string(server.port()); }
  void name(const redis_test::RedisServer& master) { named_port = master.port(); }

  std::atomic<int> named_port{0};
  std::atomic<int> epoch{0};
  std::atomic<int> asked{0};
  redis_test::RawServer server;
};

inline std::string url_of_sentinels(const std::string& addresses, const std::string& more = "") {
  return "redis+sentinel://" + addresses + "/main?namespace=app&shards=1" + more;
}

}  // namespace store_test
