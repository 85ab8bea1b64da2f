#include "store/RedisStoreNodes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "kernel/BlockingScope.h"
#include "store/RedisSlots.h"
#include "store/RedisStoreTopology.h"
#include "store/RedisWire.h"
#include "util/Clock.h"

namespace workflow {

namespace {

constexpr int64_t kFirstPauseUs = 2'000;
constexpr int64_t kMaxPauseUs = 50'000;
constexpr int64_t kLookUs = 1'000'000;

int64_t steady_us() {
  return system_clock().now_ns() / 1000;
}

void pause_for(int64_t us) {
  BlockingScope blocking;
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

bool begins_with(const std::string& text, std::string_view code) {
  return text.starts_with(code) && (text.size() == code.size() || text[code.size()] == ' ');
}

}  // namespace

void RedisStoreNodes::close() {
  owners_.clear();
  nodes_.clear();
  refused_ = 0;
  why_refused_.clear();
}

int RedisStoreNodes::connect(std::string* message) {
  std::vector<RedisUrl::Server> known;
  for (const auto& node : nodes_) {
    known.push_back(node->url.server);
  }
  close();
  int error = 0;
  if (place_.kind == RedisStorePlace::Kind::kServer) {
    add_node(place_.server, &error, message);
    return error;
  }
  RedisStoreTopology topology;
  error = RedisStoreTopology::find(place_, known, &topology, message);
  std::vector<RedisStoreNode*> masters;
  for (const RedisUrl::Server& master : topology.masters) {
    if (error == 0) {
      masters.push_back(add_node(place_.at(master), &error, message));
    }
  }
  if (error != 0) {
    close();
    return error;
  }
  owners_.reserve(topology.owners.size());
  for (const int owner : topology.owners) {
    owners_.push_back(masters[static_cast<size_t>(owner)]);
  }
  return 0;
}

RedisStoreNode* RedisStoreNodes::add_node(const RedisUrl& url, int* error, std::string* message) {
  auto node = std::make_unique<RedisStoreNode>(url);
  *error = node->about.read(node->link, place_.kind, message);
  if (*error != 0) return nullptr;
  node->read_us = steady_us();
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

size_t RedisStoreNodes::slot_of(size_t shard) const {
  return RedisSlots::of_key(place_.key(shard, ""));
}

RedisStoreNode& RedisStoreNodes::of_shard(size_t shard) {
  return owners_.empty() ? *nodes_.front() : *owners_[slot_of(shard)];
}

void RedisStoreNodes::set_shards(size_t shards) {
  shards_ = shards;
  for (const auto& node : nodes_) {
    node->has_shards = false;
  }
  for (size_t shard = 0; shard < shards; shard++) {
    of_shard(shard).has_shards = true;
  }
}

RedisStoreNode* RedisStoreNodes::node_at(const RedisUrl::Server& server) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&server](const auto& node) {
    return node->url.server == server;
  });
  return found == nodes_.end() ? nullptr : found->get();
}

void RedisStoreNodes::ask(std::span<Question> questions) {
  std::vector<Attempt> attempts;
  for (Question& question : questions) {
    attempts.push_back({&question, &of_shard(question.shard), false, 0});
  }
  std::vector<Unreachable> unreachable;
  const int64_t end_us = steady_us() + kPatienceUs;
  int64_t pause_us = kFirstPauseUs;
  while (!attempts.empty()) {
    ask_once(attempts);
    bool pauses = false;
    const bool may_again = steady_us() < end_us;
    std::erase_if(attempts, [&](Attempt& attempt) {
      return !may_again || !must_retry(attempt, &unreachable, &pauses);
    });
    if (pauses) {
      pause_for(pause_us);
      pause_us = std::min(2 * pause_us, kMaxPauseUs);
    }
  }
}

void RedisStoreNodes::ask_once(std::span<Attempt> attempts) {
  std::string asking;
  append_command(&asking, {"ASKING"});
  std::vector<RedisStoreLink::Question> commands;
  std::vector<size_t> places;
  for (Attempt& attempt : attempts) {
    if (attempt.asking) {
      commands.push_back({&attempt.node->link, asking});
    }
    places.push_back(commands.size());
    commands.push_back({&attempt.node->link, attempt.question->command(*attempt.node)});
    attempt.node->was_used = true;
  }
  const std::vector<Look> looks = add_looks(attempts, &commands);
  std::vector<RedisStoreLink::Reply> replies = RedisStoreLink::ask_each(commands, patience());
  for (const Look& look : looks) {
    take_look(*look.node, std::span(replies).subspan(look.first, look.count));
  }
  for (size_t i = 0; i < attempts.size(); i++) {
    Attempt& attempt = attempts[i];
    attempt.question->reply = std::move(replies[places[i]]);
    attempt.question->node = attempt.node;
  }
}

RedisStoreLink::Patience RedisStoreNodes::patience() {
  RedisStoreLink::Patience patience;
  if (place_.kind != RedisStorePlace::Kind::kServer) {
    patience.goes_on = [this] { return are_still_masters(); };
  }
  return patience;
}

RedisStoreNode* RedisStoreNodes::follow(const RedisUrl::Server& server,
                                        std::vector<Unreachable>* unreachable,
                                        RedisStoreLink::Reply* reply) {
  if (RedisStoreNode* const known = node_at(server)) return known;
  auto failure =
      std::find_if(unreachable->begin(), unreachable->end(),
                   [&server](const Unreachable& other) { return other.server == server; });
  if (failure == unreachable->end()) {
    int error = 0;
    std::string message;
    RedisStoreNode* const node = add_node(place_.at(server), &error, &message);
    if (node) return node;
    failure = unreachable->insert(failure, {server, error, std::move(message)});
  }
  reply->error = failure->error;
  reply->sent = false;
  reply->reason = failure->message;
  return nullptr;
}

bool RedisStoreNodes::must_retry(Attempt& attempt, std::vector<Unreachable>* unreachable,
                                 bool* pauses) {
  RedisStoreLink::Reply& reply = attempt.question->reply;
  if (reply.error != 0 || !reply.value.is_error()) return false;
  const std::string text = reply.value.string_value();
  if (begins_with(text, "TRYAGAIN") || begins_with(text, "CLUSTERDOWN")) {
    attempt.node = &of_shard(attempt.question->shard);
    attempt.asking = false;
    *pauses = true;
    return true;
  }
  if (owners_.empty()) return false;
  const auto redirection = RedisRedirection::parse(text, attempt.node->url.server.host);
  if (!redirection) return false;
  RedisStoreNode* const node = follow(redirection->server, unreachable, &reply);
  if (node == nullptr) return false;
  if (!redirection->asks) {
    owners_[slot_of(attempt.question->shard)] = node;
    set_shards(shards_);
  }
  attempt.node = node;
  attempt.asking = redirection->asks;
  // Servers that have not heard of each other's news may send it to and fro for a moment.
  *pauses = *pauses || attempt.hops++ > 1;
  return true;
}

void RedisStoreNodes::begin() {
  for (const auto& node : nodes_) {
    node->was_used = false;
  }
}

bool RedisStoreNodes::was_silent() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return node->was_used && node->link.was_silent(); });
}

std::string RedisStoreNodes::why_not_right() const {
  const auto silent = std::find_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->was_used && node->link.was_silent();
  });
  return (silent == nodes_.end() ? "Redis" : (*silent)->link.name()) +
         ": another server may have become the master";
}

bool RedisStoreNodes::is_still_right() {
  if (place_.kind == RedisStorePlace::Kind::kServer) return true;
  // A server may be silent again while it is asked. Then that is no answer.
  for (int i = 0; was_silent() && i < kMaxChecks; i++) {
    if (!check_once()) return false;
  }
  return !was_silent();
}

bool RedisStoreNodes::check_once() {
  const int64_t began_us = steady_us();
  const auto is_the_same = [this](const auto& node) {
    RedisStoreServer present;
    std::string message;
    return !node->was_used || (present.read(node->link, place_.kind, &message) == 0 &&
                               present.identity == node->about.identity);
  };
  if (!are_still_masters() || !std::all_of(nodes_.begin(), nodes_.end(), is_the_same)) return false;
  for (const auto& node : nodes_) {
    if (node->was_used) {
      node->link.was_checked(began_us);
    }
  }
  return true;
}

bool RedisStoreNodes::are_still_masters() {
  std::vector<RedisUrl::Server> known;
  for (const auto& node : nodes_) {
    known.push_back(node->url.server);
  }
  RedisStoreTopology topology;
  std::string message;
  if (RedisStoreTopology::find(place_, known, &topology, &message) != 0) return false;
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return !node->was_used || topology.has(node->url.server);
  });
}

std::vector<RedisStoreNodes::Look> RedisStoreNodes::add_looks(
    std::span<const Attempt> attempts, std::vector<RedisStoreLink::Question>* questions) {
  std::vector<Look> looks;
  const int64_t now_us = steady_us();
  for (const Attempt& attempt : attempts) {
    RedisStoreNode& node = *attempt.node;
    if (now_us < node.read_us + kLookUs) continue;
    node.read_us = now_us;
    Look look{&node, questions->size(), 0};
    for (std::string& question : node.about.questions()) {
      questions->push_back({&node.link, std::move(question)});
      look.count++;
    }
    looks.push_back(look);
  }
  return looks;
}

void RedisStoreNodes::take_look(RedisStoreNode& node,
                                std::span<const RedisStoreLink::Reply> replies) {
  std::string message;
  int error = ENOMEM;
  try {
    error = node.about.learn(node.link, replies, place_.kind, &message);
  } catch (const std::bad_alloc&) {
    node.about.receipt = {};  // what the scripts have said counts all the same
  }
  if (error == 0) return;
  node.read_us = 0;
  // A Cluster says where the master is now. The connection outlasts a want of memory.
  const bool moves = error == EROFS && place_.kind == RedisStorePlace::Kind::kCluster;
  if (moves || error == ENOMEM || error == ENOBUFS) return;
  refused_ = error;
  why_refused_ = std::move(message);
}

int RedisStoreNodes::refusal(std::string* message) const {
  *message = why_refused_;
  return refused_;
}

WFStoreReceipt RedisStoreNodes::receipt(bool waits) {
  std::optional<WFStoreReceipt::Level> level;
  for (const auto& node : nodes_) {
    if (node->has_shards || node->was_used) {
      const WFStoreReceipt::Level its = node->about.receipt.level;
      level = std::min(level.value_or(its), its);
    }
  }
  const WFStoreReceipt least{level.value_or(WFStoreReceipt::kUnknown), 0};
  std::vector<RedisStoreNode*> waiting;
  std::vector<RedisStoreLink::Question> questions;
  for (const auto& node : nodes_) {
    if (waits && place_.replicas > 0 && node->was_used) {
      std::string command;
      append_command(&command,
                     {"WAIT", std::to_string(place_.replicas),
                      std::to_string(node->has_replicas ? kReplicasMs : kAbsentReplicasMs)});
      waiting.push_back(node.get());
      questions.push_back({&node->link, std::move(command)});
    }
  }
  // The server waits for all that it knew when it had read the command before this one, from
  // whichever client.
  const auto replies = RedisStoreLink::ask_each(questions, patience());
  bool confirmed = !questions.empty();
  for (size_t i = 0; i < replies.size(); i++) {
    const RedisStoreLink::Reply& reply = replies[i];
    waiting[i]->has_replicas =
        reply.error == 0 && reply.value.is_int() && reply.value.int_value() >= place_.replicas;
    confirmed = confirmed && waiting[i]->has_replicas;
  }
  return confirmed ? WFStoreReceipt{WFStoreReceipt::kReplicas, place_.replicas} : least;
}

}  // namespace workflow
