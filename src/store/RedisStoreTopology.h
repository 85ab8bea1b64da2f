#pragma once

#include <string>
#include <vector>

#include "store/RedisSlots.h"
#include "store/RedisStorePlace.h"
#include "store/RedisUrl.h"

namespace workflow {

// Which servers are the masters of a store, as those say who decide it: the Sentinels, or the nodes
// of a Cluster. Plain data.
//
// Somebody who was stopped or cut off may say what was true once. So several are asked at the same
// time, and the answer counts that knows of the latest change: each failover has a number, the
// epoch, that is larger than that of all earlier ones. In a Cluster that is decided for each slot,
// by the config epoch of its master, and nodes that find that the Cluster has failed are not
// believed while others find that it works. More than half of those that are asked are waited for,
// as far as they answer.
struct RedisStoreTopology {
  std::vector<RedisUrl::Server> masters;
  // Of a Cluster: for each slot the place of its master in `masters`, or -1. Otherwise empty.
  std::vector<int> owners;

  // `known`: nodes of the Cluster that may be asked besides those of the URL. Returns 0 or an errno
  // value, and then a message of one line. Blocks.
  static int find(const RedisStorePlace& place, const std::vector<RedisUrl::Server>& known,
                  RedisStoreTopology* topology, std::string* message);

  bool has(const RedisUrl::Server& master) const;
};

}  // namespace workflow
