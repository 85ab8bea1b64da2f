#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/RedisSlots.h"
#include "store/RedisStorePlace.h"
#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// The servers that are the masters of a store. The Sentinels decide this, or the nodes of a
// Cluster. Plain data.
//
// A Sentinel or node that was stopped, or cut off from the others, may answer what is no longer
// true. So find() asks several at the same time, and uses the answer that knows of the latest
// failover. Each failover has a number, the epoch, which is larger than that of every earlier one.
//
// In a Cluster, find() decides this for each slot, by the config epoch of the slot's master. It
// ignores nodes that report a failed Cluster while other nodes report that it works.
//
// find() asks all Sentinels, or up to nine nodes, and waits until more than half of these have
// answered. If fewer can answer, it uses the answers that it has.
struct RedisStoreTopology {
  std::vector<RedisUrl::Server> masters;
  // In a Cluster, the place of each slot's master in `masters`, or -1. Otherwise empty.
  std::vector<int> owners;

  // `known`: nodes of the Cluster that may be asked besides those of the URL. Returns 0, or an
  // errno value and a message of one line. Blocks.
  static int find(const RedisStorePlace& place, const std::vector<RedisUrl::Server>& known,
                  RedisStoreTopology* topology, std::string* message);

  // Reads what a Sentinel says about a master: names and values in turn. Returns false if it does
  // not say where that is. `epoch` stays the same if it says none.
  static bool read_master(const protocol::RedisValue& reply, RedisUrl::Server* master,
                          uint64_t* epoch);

  bool has(const RedisUrl::Server& master) const;
};

}  // namespace workflow
