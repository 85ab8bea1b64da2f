#pragma once

#include <optional>
#include <string>

#include "store/RedisUrl.h"

namespace workflow {

// An error reply by which a node of a Cluster says that another node has the keys of a command. The
// command was not executed. Plain data.
struct RedisRedirection {
  RedisUrl::Server server;
  bool asks = false;  // only this command goes there, behind ASKING, because the slot is moving

  // Reads "MOVED 3999 127.0.0.1:6381" or "ASK 3999 127.0.0.1:6381". `from`: the host that has
  // replied, which is meant if none is named. Empty if it is neither, or makes no sense.
  static std::optional<RedisRedirection> parse(const std::string& error, const std::string& from);
};

}  // namespace workflow
