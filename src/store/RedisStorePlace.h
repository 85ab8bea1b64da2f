#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "store/RedisUrl.h"

namespace workflow {

// What the URL of a store in a Redis says: where the servers are, and which of the stores that they
// may keep. Plain data.
//
//   redis://user:password@host:6379/0?namespace=app&shards=16&replicas=1
//   rediss://host   redis+unix:///path?db=0&namespace=app
//   redis+sentinel://host:26379,host:26379/name?db=0   rediss+sentinel://host/name
//   redis+cluster://host:6379,host:6379/               rediss+cluster://host
struct RedisStorePlace {
  enum class Kind {
    kServer,     // one server
    kSentinels,  // the master that Sentinels name
    kCluster     // the masters of a Redis Cluster
  };
  static constexpr size_t kMaxShards = 1024;
  static constexpr size_t kDefaultShards = 16;
  static constexpr int kMaxReplicas = 100;

  Kind kind = Kind::kServer;
  // The server. For Sentinels and a Cluster, only the login and the transport; at() adds the
  // address.
  RedisUrl server;
  std::vector<RedisUrl::Server> nodes;  // of a Cluster: those to begin with
  std::string name_space = "timers";
  size_t shards = 0;  // 0: what the store has, or else kDefaultShards
  int replicas = 0;   // how many of them a receipt waits for

  // Returns 0 or an errno value, and then a message of one line, which shows no part of a password.
  static int parse(const std::string& url, RedisStorePlace* place, std::string* message);

  RedisUrl at(const RedisUrl::Server& where) const;

  // The name of a key, whose hash tag is that of the shard.
  std::string key(size_t shard, std::string_view key) const;
  // The channel on which stores tell each other news.
  std::string channel() const { return name_space + ":news"; }
};

// The shard of a timer of that name. It must never change, since the timers of existing stores
// would not be found any more.
size_t redis_store_shard(std::string_view name, size_t shards);

}  // namespace workflow
