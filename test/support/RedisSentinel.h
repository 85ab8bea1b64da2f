#pragma once

#include <string>

#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// A master with a replica, and a Sentinel that knows the master as "main". All of them use TLS if
// the master does.

namespace redis_test {

inline RedisServer::Options replica_of(const RedisServer& master) {
  return {.on = RedisServer::On::kTcp,
          .arguments = {"--replicaof", "127.0.0.1", std::to_string(master.port())},
          .tls = master.tls()};
}

// Decides alone, and half a second after the master was heard of last.
inline RedisServer::Options sentinel_of(const RedisServer& master) {
  return {.on = RedisServer::On::kSentinel,
          .tls = master.tls(),
          .configuration = "sentinel monitor main 127.0.0.1 " + std::to_string(master.port()) +
                           " 1\nsentinel down-after-milliseconds main 500\n"
                           "sentinel failover-timeout main 2000\n"};
}

// Waits until a replica has what its master knew when this was called.
inline bool is_in_sync(const RedisServer& replica) {
  return test_support::eventually([&] {
    return run(replica.url(), {"INFO", "replication"})
               .value.string_value()
               .find("master_link_status:up") != std::string::npos;
  });
}

// Waits until a Sentinel could replace the master: it has to know of a replica.
inline bool knows_a_replica(const RedisServer& sentinel) {
  return test_support::eventually([&] {
    return run(sentinel.url(), {"SENTINEL", "REPLICAS", "main"}).value.arr_size() > 0;
  });
}

}  // namespace redis_test
