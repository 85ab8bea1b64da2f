#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "store/RedisUrl.h"

namespace workflow {

// What the URL of a store in a Redis says: the server, and which of the stores that it may keep.
// Plain data.
//
//   redis://user:password@host:6379/0?namespace=app&shards=16
//   rediss://host   redis+unix:///path?db=0&namespace=app
struct RedisStorePlace {
  static constexpr size_t kMaxShards = 1024;
  static constexpr size_t kDefaultShards = 16;

  RedisUrl server;
  std::string server_url;  // the URL without what is about the store
  std::string name_space = "timers";
  size_t shards = 0;  // 0: what the store has, or else kDefaultShards

  // Returns 0 or an errno value, and then a message of one line.
  static int parse(const std::string& url, RedisStorePlace* place, std::string* message);

  // The name of a key, whose hash tag is that of the shard.
  std::string key(size_t shard, std::string_view key) const;
  // The channel on which stores tell each other news.
  std::string channel() const { return name_space + ":news"; }
};

// The shard of a timer of that name. It must never change, since the timers of existing stores
// would not be found any more.
size_t redis_store_shard(std::string_view name, size_t shards);

}  // namespace workflow
