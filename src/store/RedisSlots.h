#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// The slots of a Redis Cluster, and which master has which of them. Plain data.
struct RedisSlots {
  static constexpr size_t kCount = 16384;

  // The slot of a key: that of its hash tag, if it has one.
  static size_t of_key(std::string_view key);

  // Reads the reply to CLUSTER SLOTS. `from`: the host that has replied, which is meant where none
  // is named. Returns false if the reply makes no sense.
  static bool parse(const protocol::RedisValue& reply, const std::string& from, RedisSlots* slots);

  std::vector<RedisUrl::Server> masters;
  std::vector<std::string> ids;  // of the masters, as the Cluster names them; or empty
  // For each slot the place of its master in `masters`, or -1.
  std::vector<int> owners;
};

}  // namespace workflow
