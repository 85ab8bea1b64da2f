#include "store/RedisStoreTopology.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <sstream>

#include "store/RedisStoreLink.h"
#include "store/RedisStoreServer.h"
#include "store/RedisWire.h"

namespace workflow {

namespace {

constexpr size_t kMaxAsked = 9;

// The Sentinels or nodes that may know the masters. Each is asked over a connection of its own,
// because one that is there already may hang.
class Knowing {
 public:
  Knowing(const RedisStorePlace& place, const std::vector<RedisUrl::Server>& servers)
      : servers_(servers) {
    for (const RedisUrl::Server& server : servers) {
      RedisUrl url = place.at(server);
      if (place.kind == RedisStorePlace::Kind::kSentinels) {
        // Nobody logs in to a Sentinel, and it is no master.
        RedisUrl plain;
        plain.transport = url.transport;
        plain.server = server;
        url = plain;
      }
      links_.push_back(std::make_unique<RedisStoreLink>(url));
    }
  }

  // Returns the replies to the command, those of one server after those of the other.
  std::vector<RedisStoreLink::Reply> ask(const std::vector<std::vector<std::string>>& commands) {
    std::vector<RedisStoreLink::Question> questions;
    for (const auto& link : links_) {
      for (const std::vector<std::string>& words : commands) {
        std::string wire;
        append_command(&wire, words[0], {words.begin() + 1, words.end()});
        questions.push_back({link.get(), std::move(wire)});
      }
    }
    RedisStoreLink::Patience patience;
    patience.enough = (links_.size() / 2 + 1) * commands.size();
    return RedisStoreLink::ask_each(questions, patience);
  }

  const RedisUrl::Server& server(size_t i) const { return servers_[i]; }
  size_t size() const { return servers_.size(); }

 private:
  const std::vector<RedisUrl::Server> servers_;
  std::vector<std::unique_ptr<RedisStoreLink>> links_;
};

template <class NUMBER>
bool read_whole_number(const std::string& text, NUMBER* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// Reads what a Sentinel says about a master: names and values in turn.
bool read_master(const protocol::RedisValue& reply, RedisUrl::Server* master, uint64_t* epoch) {
  for (size_t i = 0; i + 1 < reply.arr_size(); i += 2) {
    const std::string name = reply[i].string_value();
    const std::string value = reply[i + 1].string_value();
    if (name == "ip") {
      master->host = value;
    } else if ((name == "port" && !read_whole_number(value, &master->port)) ||
               (name == "config-epoch" && !read_whole_number(value, epoch))) {
      return false;
    }
  }
  return !master->host.empty() && master->port != 0;
}

int ask_sentinels(const RedisStorePlace& place, RedisStoreTopology* topology,
                  std::string* message) {
  Knowing sentinels(place, place.server.sentinels);
  *message = "no Sentinel knows the master \"" + place.server.master_name + "\"";
  int error = EAGAIN;
  uint64_t latest = 0;
  for (const RedisStoreLink::Reply& reply :
       sentinels.ask({{"SENTINEL", "MASTER", place.server.master_name}})) {
    std::string why;
    if (const int failure = redis_store_failure(reply, &why)) {
      if (reply.error != 0 && topology->masters.empty()) {
        error = failure;
        *message = "no Sentinel answers: " + why;
      }
      continue;
    }
    RedisUrl::Server master;
    uint64_t epoch = 0;
    if (read_master(reply.value, &master, &epoch) &&
        (topology->masters.empty() || epoch > latest)) {
      topology->masters = {master};
      latest = epoch;
    }
  }
  return topology->masters.empty() ? error : 0;
}

// `nodes`: some that may be asked.
std::vector<RedisUrl::Server> some_of(std::vector<RedisUrl::Server> nodes,
                                      const std::vector<RedisUrl::Server>& known) {
  for (const RedisUrl::Server& server : known) {
    if (std::find(nodes.begin(), nodes.end(), server) == nodes.end()) {
      nodes.push_back(server);
    }
  }
  nodes.resize(std::min(nodes.size(), kMaxAsked));
  return nodes;
}

// The config epochs of all nodes by their ids, as CLUSTER NODES says them: in each line the id is
// the first word, and the epoch the seventh.
std::map<std::string, uint64_t> read_epochs(const std::string& nodes) {
  std::map<std::string, uint64_t> epochs;
  std::istringstream lines(nodes);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> word(7);
    for (std::string& one : word) {
      words >> one;
    }
    uint64_t epoch = 0;
    if (read_whole_number(word[6], &epoch)) {
      epochs[word[0]] = epoch;
    }
  }
  return epochs;
}

// Merges the answers of the nodes of a Cluster. Each slot belongs to the claimed master with the
// latest config epoch, which is how the nodes themselves decide. No single answer is enough: a node
// that knows the latest change may not know all earlier ones yet.
class MergedSlots {
 public:
  MergedSlots() : epochs_(RedisSlots::kCount), owners_(RedisSlots::kCount, -1) {}

  void add(const RedisSlots& slots, const std::map<std::string, uint64_t>& epochs) {
    for (size_t slot = 0; slot < RedisSlots::kCount; slot++) {
      if (slots.owners[slot] < 0) continue;
      const auto its = static_cast<size_t>(slots.owners[slot]);
      const auto found = epochs.find(slots.ids[its]);
      const uint64_t epoch = found == epochs.end() ? 0 : found->second;
      if (owners_[slot] < 0 || epoch > epochs_[slot]) {
        owners_[slot] = place_of(slots.masters[its]);
        epochs_[slot] = epoch;
      }
    }
  }

  // Only those that have slots are masters of the store.
  void write(RedisStoreTopology* topology) const {
    std::vector<int> places(masters_.size(), -1);
    for (const int owner : owners_) {
      if (owner >= 0 && places[static_cast<size_t>(owner)] < 0) {
        places[static_cast<size_t>(owner)] = static_cast<int>(topology->masters.size());
        topology->masters.push_back(masters_[static_cast<size_t>(owner)]);
      }
      topology->owners.push_back(owner < 0 ? -1 : places[static_cast<size_t>(owner)]);
    }
  }

 private:
  int place_of(const RedisUrl::Server& master) {
    const auto found = std::find(masters_.begin(), masters_.end(), master);
    const auto place = found - masters_.begin();
    if (found == masters_.end()) {
      masters_.push_back(master);
    }
    return static_cast<int>(place);
  }

  std::vector<RedisUrl::Server> masters_;
  std::vector<uint64_t> epochs_;
  std::vector<int> owners_;
};

int ask_cluster(const RedisStorePlace& place, const std::vector<RedisUrl::Server>& known,
                RedisStoreTopology* topology, std::string* message) {
  Knowing nodes(place, some_of(place.nodes, known));
  const auto replies = nodes.ask({{"CLUSTER", "INFO"}, {"CLUSTER", "SLOTS"}, {"CLUSTER", "NODES"}});
  bool found = false;
  bool any_is_ok = false;
  MergedSlots merged;
  int error = EAGAIN;
  *message = "no node of the Cluster answers";
  for (size_t i = 0; i < nodes.size(); i++) {
    const RedisStoreLink::Reply& info = replies[3 * i];
    const RedisStoreLink::Reply& slots = replies[3 * i + 1];
    const RedisStoreLink::Reply& epochs = replies[3 * i + 2];
    std::string why;
    int failure = redis_store_failure(info, &why);
    failure = failure != 0 ? failure : redis_store_failure(slots, &why);
    failure = failure != 0 ? failure : redis_store_failure(epochs, &why);
    if (failure != 0) {
      const bool is_no_cluster = why.find("cluster support disabled") != std::string::npos;
      error = is_no_cluster ? ENOTSUP : failure;
      *message = is_no_cluster ? "the server is not part of a Cluster: say redis:// in the URL"
                               : "no node of the Cluster answers: " + why;
      continue;
    }
    RedisSlots its;
    if (!RedisSlots::parse(slots.value, nodes.server(i).host, &its)) continue;
    // One that does not see most masters, or not all slots, may be cut off. It counts only if all
    // say so.
    const bool is_ok = redis_info_field(info.value.string_value(), "cluster_state") == "ok";
    if (is_ok && !any_is_ok) {
      merged = MergedSlots();
      any_is_ok = true;
    }
    if (is_ok == any_is_ok) {
      merged.add(its, read_epochs(epochs.value.string_value()));
      found = true;
    }
  }
  if (!found) return error;
  merged.write(topology);
  const auto missing = std::count(topology->owners.begin(), topology->owners.end(), -1);
  if (missing > 0) {
    *message = "the Cluster does not hold all slots: " + std::to_string(missing) + " of " +
               std::to_string(RedisSlots::kCount) + " have no master";
    return EINVAL;
  }
  return 0;
}

}  // namespace

int RedisStoreTopology::find(const RedisStorePlace& place,
                             const std::vector<RedisUrl::Server>& known,
                             RedisStoreTopology* topology, std::string* message) {
  *topology = RedisStoreTopology();
  switch (place.kind) {
    case RedisStorePlace::Kind::kSentinels:
      return ask_sentinels(place, topology, message);
    case RedisStorePlace::Kind::kCluster:
      return ask_cluster(place, known, topology, message);
    case RedisStorePlace::Kind::kServer:
      break;
  }
  topology->masters = {place.server.server};
  return 0;
}

bool RedisStoreTopology::has(const RedisUrl::Server& master) const {
  return std::find(masters.begin(), masters.end(), master) != masters.end();
}

}  // namespace workflow
