#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/Eventually.h"
#include "support/RedisClusterBus.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

namespace redis_test {

// A Redis Cluster of a test's own. Its masters share the slots evenly at first. Nothing in it fails
// over by itself: a test says when.
class RedisCluster {
 public:
  static constexpr size_t kSlots = 16384;

  struct Options {
    size_t masters = 3;
    size_t replicas = 0;  // the first of them is one of the first master, and so on
    std::vector<std::string> arguments = {};
    bool all_slots = true;  // false: the last one is nobody's
    std::vector<std::string> environment_of_first = {};
    std::vector<std::string> environment_of_others = {};
    RedisServer::Tls tls = {};
  };

  RedisCluster() : RedisCluster(Options{}) {}
  explicit RedisCluster(const Options& options) : masters_(options.masters) {
    for (size_t i = 0; i < options.masters + options.replicas; i++) {
      nodes_.emplace_back(RedisServer::Options{
          .on = RedisServer::On::kCluster,
          .arguments = options.arguments,
          .environment = i == 0 ? options.environment_of_first : options.environment_of_others,
          .tls = options.tls});
      ids_.push_back(run(nodes_[i].url(), {"CLUSTER", "MYID"}).value.string_value());
    }
    for (size_t i = 0; i < nodes_.size(); i++) {
      tell(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    }
    for (size_t i = 0; i < options.masters; i++) {
      const size_t past = kSlots * (i + 1) / masters_;
      const size_t last = past == kSlots && !options.all_slots ? past - 2 : past - 1;
      tell(i, {"CLUSTER", "ADDSLOTSRANGE", std::to_string(kSlots * i / masters_),
               std::to_string(last)});
    }
    // The nodes would hear of each other anyway, but later.
    for (size_t i = 0; i < nodes_.size(); i++) {
      for (size_t j = i + 1; j < nodes_.size(); j++) {
        tell(i, {"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[j].port()),
                 std::to_string(nodes_[j].bus_port())});
      }
    }
    EXPECT_TRUE(every_node_says("cluster_known_nodes:" + std::to_string(nodes_.size())));
    for (size_t i = 0; i < options.replicas; i++) {
      const std::string replica = nodes_[masters_ + i].url();
      EXPECT_TRUE(test_support::eventually([&] {
        return run(replica, {"CLUSTER", "REPLICATE", ids_[i]}).text == "OK";
      }));
      EXPECT_TRUE(is_in_sync(masters_ + i));
    }
    EXPECT_TRUE(
        every_node_says(options.all_slots ? "cluster_state:ok" : "cluster_slots_assigned:16383"));
    EXPECT_TRUE(may_be_killed());
  }

  RedisServer& node(size_t i) { return nodes_[i]; }
  size_t masters() const { return masters_; }
  const std::string& id(size_t i) const { return ids_[i]; }

  // `more` has further parameters, such as "namespace=...".
  std::string store_url(const std::string& more) const {
    const std::string first = nodes_.front().url();
    std::string url = first.substr(0, first.find(':')) + "+cluster://";
    for (const RedisServer& node : nodes_) {
      url += (&node == &nodes_.front() ? "" : ",") + node.address();
    }
    return url + "/?" + more;
  }

  size_t slot_of(const std::string& key) {
    return static_cast<size_t>(run(nodes_[0].url(), {"CLUSTER", "KEYSLOT", key}).value.int_value());
  }
  // The place of the master that has the slot, as move() has left it.
  size_t owner_of(size_t slot) {
    const std::lock_guard lock(mutex_);
    const auto moved = moved_.find(slot);
    if (moved != moved_.end()) return moved->second;
    size_t node = masters_ - 1;
    while (slot < kSlots * node / masters_) {
      node--;
    }
    return node;
  }

  // Moves a slot with its keys to another master, as redis-cli does. One thread at a time.
  void move(size_t slot, size_t to) {
    const size_t from = owner_of(slot);
    if (from == to) return;
    const std::string number = std::to_string(slot);
    tell_until_ok(to, {"CLUSTER", "SETSLOT", number, "IMPORTING", ids_[from]});
    tell_until_ok(from, {"CLUSTER", "SETSLOT", number, "MIGRATING", ids_[to]});
    std::string answer;
    EXPECT_TRUE(test_support::eventually([&] {
      // One at a time, so that there is something in between to be met.
      const auto keys = run(nodes_[from].url(), {"CLUSTER", "GETKEYSINSLOT", number, "1"}).value;
      if (!keys.is_array()) return false;  // a busy node, which may still hold keys
      if (keys.arr_size() == 0) return true;
      // REPLACE: an attempt without an answer may have stored the key.
      answer = run(nodes_[from].url(), {"MIGRATE", "127.0.0.1", std::to_string(nodes_[to].port()),
                                        keys[0].string_value(), "0", "5000", "REPLACE"})
                   .text;
      return false;
    })) << answer;
    // The new owner first: it gets the highest epoch, by which all nodes know who is right.
    tell_until_ok(to, {"CLUSTER", "SETSLOT", number, "NODE", ids_[to]});
    for (size_t i = 0; i < masters_; i++) {
      tell_until_ok(i, {"CLUSTER", "SETSLOT", number, "NODE", ids_[to]});
    }
    // Messages that were sent before may still be on their way. A node may read in one that the new
    // owner does not claim the slot, and in another one that the former owner does. It believes
    // that until it hears from the new owner again. If the former owner has got a higher epoch
    // meanwhile, by the next move, the node tells the new owner that it has lost the slot, and that
    // one deletes its keys. So this ends when what was on its way, and what the nodes may have said
    // to that, was read, and all agree.
    int rounds = 0;
    EXPECT_TRUE(test_support::eventually([&] {
      rounds = bus().flush() && every_node_agrees(slot, to) ? rounds + 1 : 0;
      return rounds == 2;
    }));
    const std::lock_guard lock(mutex_);
    moved_[slot] = to;
  }

  // Makes a replica the master, even without the agreement of its master.
  void promote(size_t replica) {
    tell(replica, {"CLUSTER", "FAILOVER", "TAKEOVER"});
    EXPECT_TRUE(
        test_support::eventually([&] { return says_of_replication(replica, "role:master"); }));
  }
  // Waits until a replica has what its master knew when this was called.
  bool is_in_sync(size_t replica) {
    return test_support::eventually(
        [&] { return says_of_replication(replica, "master_link_status:up"); });
  }
  // Waits until each node could be killed and would start again with all that it has said. Valkey
  // refuses its own file, "corrupted cluster config file" (valkey-io/valkey#2171), if it was killed
  // before it had heard and written that a replica is in the shard of its master. Redis 7.0 knows
  // no such shards.
  bool may_be_killed() {
    return test_support::eventually([&] {
      return std::all_of(nodes_.begin(), nodes_.end(), [](const RedisServer& node) {
        return has_written_its_log(node.url()) &&
               replicas_are_with_their_masters(node.folder() + "/nodes.conf");
      });
    });
  }

 private:
  // Each line is "id address,...,shard-id=... flags master ...".
  static bool replicas_are_with_their_masters(const std::string& file) {
    std::map<std::string, std::string> shards;
    std::map<std::string, std::string> masters;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string id, address, flags, master;
      words >> id >> address >> flags >> master;
      const size_t shard = address.find(",shard-id=");
      if (shard == std::string::npos) continue;
      shards[id] = address.substr(shard, address.find(',', shard + 1) - shard);
      if (master != "-") {
        masters[id] = master;
      }
    }
    return std::all_of(masters.begin(), masters.end(), [&shards](const auto& replica) {
      return shards[replica.first] == shards[replica.second];
    });
  }
  bool says_of_replication(size_t node, const std::string& line) {
    return info(nodes_[node].url(), "replication").find(line) != std::string::npos;
  }
  void tell(size_t node, const std::vector<std::string>& words) {
    const Reply reply = run(nodes_[node].url(), words);
    EXPECT_EQ(reply.text, "OK") << words[0] << " " << words[1] << ", state " << reply.state
                                << ", error " << reply.error;
  }
  // On a busy machine a node may answer too late, or get the command before it has heard of the
  // last change.
  void tell_until_ok(size_t node, const std::vector<std::string>& words) {
    Reply last;
    EXPECT_TRUE(test_support::eventually([&] {
      last = run(nodes_[node].url(), words);
      return last.text == "OK";
    })) << words[1]
        << " " << words[3] << ", node " << node << ": '" << last.text << "', state " << last.state
        << ", error " << last.error << " " << last.value.debug_string();
  }
  // The id of the master that has the slot, as the node says.
  std::string owner_by(size_t node, size_t slot) {
    const auto ranges = run(nodes_[node].url(), {"CLUSTER", "SLOTS"}).value;
    for (size_t i = 0; i < ranges.arr_size(); i++) {
      const auto& range = ranges[i];
      if (range.arr_size() >= 3 && static_cast<size_t>(range[0].int_value()) <= slot &&
          slot <= static_cast<size_t>(range[1].int_value()) && range[2].arr_size() >= 3) {
        return range[2][2].string_value();
      }
    }
    return "";
  }
  // Whether all say who has the slot, and know the epoch of that one.
  bool every_node_agrees(size_t slot, size_t owner) {
    const std::string epoch = epoch_by(owner, owner);
    for (size_t i = 0; i < nodes_.size(); i++) {
      if (epoch.empty() || epoch_by(i, owner) != epoch || owner_by(i, slot) != ids_[owner]) {
        return false;
      }
    }
    return true;
  }
  RedisClusterBus& bus() {
    if (!bus_) {
      std::vector<std::string> urls;
      for (const RedisServer& node : nodes_) {
        urls.push_back(node.url());
      }
      bus_.emplace(std::move(urls));
    }
    return *bus_;
  }
  // The epoch of the other node, as the node says. Each line of its answer is "id address flags
  // master ping pong epoch ...".
  std::string epoch_by(size_t node, size_t other) {
    std::istringstream lines(run(nodes_[node].url(), {"CLUSTER", "NODES"}).value.string_value());
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string id, address, flags, master, ping, pong, epoch;
      words >> id >> address >> flags >> master >> ping >> pong >> epoch;
      if (id == ids_[other]) return epoch;
    }
    return "";
  }
  std::string cluster_info(size_t node) {
    return run(nodes_[node].url(), {"CLUSTER", "INFO"}).value.string_value();
  }
  bool every_node_says_now(const std::string& line) {
    for (size_t i = 0; i < nodes_.size(); i++) {
      if (cluster_info(i).find(line + "\r") == std::string::npos) return false;
    }
    return true;
  }
  bool every_node_says(const std::string& line) {
    return test_support::eventually([&] { return every_node_says_now(line); });
  }

  const size_t masters_;
  std::deque<RedisServer> nodes_;
  std::vector<std::string> ids_;
  std::mutex mutex_;
  std::map<size_t, size_t> moved_;
  std::optional<RedisClusterBus> bus_;  // since the first move
};

}  // namespace redis_test
