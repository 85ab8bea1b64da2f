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
#include "store/StoreText.h"

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
  const RedisStoreLink& link(size_t i) const { return *links_[i]; }
  // All of them, as messages name them.
  std::string names() const {
    std::string names;
    for (const RedisUrl::Server& server : servers_) {
      names += (names.empty() ? "" : ", ") + RedisUrl::address_of(server);
    }
    return names;
  }
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

// Why those who were asked have not answered.
class Failures {
 public:
  void add(int error, const std::string& why) {
    error_ = error;
    // All of them may say the same of a server that is named twice.
    if (reasons_.find(why) == std::string::npos) {
      reasons_ += (reasons_.empty() ? "" : "; ") + why;
    }
  }
  int report(const char* what, std::string* message) const {
    *message = std::string(what) + (reasons_.empty() ? "" : ": ") + reasons_;
    return error_;
  }

 private:
  int error_ = EAGAIN;
  std::string reasons_;
};

int ask_sentinels(const RedisStorePlace& place, RedisStoreTopology* topology,
                  std::string* message) {
  Knowing sentinels(place, place.server.sentinels);
  const auto replies = sentinels.ask({{"SENTINEL", "MASTER", place.server.master_name}});
  Failures failures;
  bool any_answers = false;
  uint64_t latest = 0;
  for (size_t i = 0; i < replies.size(); i++) {
    const RedisStoreLink::Reply& reply = replies[i];
    std::string why;
    const int failure = redis_store_failure(sentinels.link(i), reply, &why);
    any_answers = any_answers || reply.error == 0;
    if (failure != 0) {
      failures.add(failure, why);
      continue;
    }
    RedisUrl::Server master;
    uint64_t epoch = 0;
    if (RedisStoreTopology::read_master(reply.value, &master, &epoch) &&
        (topology->masters.empty() || epoch > latest)) {
      topology->masters = {master};
      latest = epoch;
    }
  }
  if (!topology->masters.empty()) return 0;
  if (!any_answers) return failures.report("no Sentinel answers", message);
  *message = "no Sentinel knows the master " + StoreText::quoted(place.server.master_name) +
             ": asked were " + sentinels.names();
  return EAGAIN;
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
  Failures failures;
  std::string no_cluster;
  for (size_t i = 0; i < nodes.size(); i++) {
    const RedisStoreLink::Reply& info = replies[3 * i];
    const RedisStoreLink::Reply& slots = replies[3 * i + 1];
    const RedisStoreLink::Reply& epochs = replies[3 * i + 2];
    std::string why;
    int failure = redis_store_failure(nodes.link(i), info, &why);
    failure = failure != 0 ? failure : redis_store_failure(nodes.link(i), slots, &why);
    failure = failure != 0 ? failure : redis_store_failure(nodes.link(i), epochs, &why);
    if (failure != 0) {
      if (why.find("cluster support disabled") != std::string::npos) {
        no_cluster =
            nodes.link(i).name() + ": the server is not part of a Cluster: say redis:// in the URL";
      }
      failures.add(failure, why);
      continue;
    }
    RedisSlots its;
    if (!RedisSlots::parse(slots.value, nodes.server(i).host, &its)) {
      failures.add(EAGAIN, nodes.link(i).name() + ": a reply makes no sense");
      continue;
    }
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
  if (!found && !no_cluster.empty()) {
    *message = no_cluster;
    return ENOTSUP;
  }
  if (!found) return failures.report("no node of the Cluster answers", message);
  merged.write(topology);
  const auto missing = std::count(topology->owners.begin(), topology->owners.end(), -1);
  if (missing > 0) {
    *message = "the Cluster does not hold all slots: " + std::to_string(missing) + " of " +
               std::to_string(RedisSlots::kCount) + " have no master; asked were " + nodes.names();
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

bool RedisStoreTopology::read_master(const protocol::RedisValue& reply, RedisUrl::Server* master,
                                     uint64_t* epoch) {
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

bool RedisStoreTopology::has(const RedisUrl::Server& master) const {
  return std::find(masters.begin(), masters.end(), master) != masters.end();
}

}  // namespace workflow
