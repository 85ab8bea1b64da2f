#include "store/RedisStoreServer.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "store/RedisStoreScripts.h"
#include "store/RedisWire.h"
#include "util/Clock.h"

namespace workflow {

namespace {

constexpr int kOldestMajor = 7;

// The value of a line "name:value"; empty if there is none.
std::string info_field(const std::string& info, const std::string& name) {
  const std::string line = "\n" + name + ":";
  size_t begin = ("\n" + info).find(line);
  if (begin == std::string::npos) {
    return {};
  }
  begin += line.size() - 1;
  return info.substr(begin, std::min(info.find_first_of("\r\n", begin), info.size()) - begin);
}

std::string new_id() {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return {};
  }
  std::string id;
  for (const unsigned char byte : random) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

int refuse_server(int error, const std::string& why, std::string* message) {
  *message = why;
  return error;
}

// Why there is no usable reply; 0 if there is one.
int failure_of(const RedisStoreLink::Reply& reply, std::string* message) {
  if (reply.error != 0) {
    return refuse_server(reply.error, reply.reason, message);
  }
  if (reply.value.is_error()) {
    const std::string text = reply.value.string_value();
    return refuse_server(RedisStoreError::of(text).error, "Redis: " + text, message);
  }
  return 0;
}

std::string command_of(std::initializer_list<std::string_view> parts) {
  std::string wire;
  append_command(&wire, parts);
  return wire;
}

}  // namespace

RedisStoreError RedisStoreError::of(const std::string& text) {
  static constexpr struct {
    std::string_view code;
    int error;
  } kRefusals[] = {
      {"NOSTORE", EILSEQ}, {"OOM", ENOSPC},      {"LOADING", EAGAIN},    {"BUSY", EAGAIN},
      {"READONLY", EROFS}, {"MISCONF", EIO},     {"MASTERDOWN", EAGAIN}, {"NOREPLICAS", EAGAIN},
      {"NOAUTH", EACCES},  {"NOSCRIPT", EAGAIN},
  };
  const std::string_view code = std::string_view(text).substr(0, text.find(' '));
  for (const auto& refusal : kRefusals) {
    if (code == refusal.code) {
      return {refusal.error, false};
    }
  }
  // A script that has stopped in the middle has found something that no script has written.
  return {code == "NOPERM" ? EACCES : EILSEQ, true};
}

std::string redis_store_command(const std::string& how, const std::string& script,
                                const RedisStorePlace& place, size_t shard,
                                const std::vector<std::string>& arguments) {
  constexpr size_t kKeys = std::size(kRedisStoreKeys);
  std::vector<std::string> parameters = {script, std::to_string(kKeys)};
  parameters.reserve(2 + kKeys + arguments.size());
  for (const char* key : kRedisStoreKeys) {
    parameters.push_back(place.key(shard, key));
  }
  parameters.insert(parameters.end(), arguments.begin(), arguments.end());
  std::string wire;
  append_command(&wire, how, parameters);
  return wire;
}

int RedisStoreServer::open(RedisStoreLink& link, const RedisStorePlace& place,
                           const std::string& known_id, bool create, const std::string& time,
                           std::string* message) {
  const int error = read_configuration(link, message);
  return error != 0 ? error : open_shards(link, place, known_id, create, time, message);
}

int RedisStoreServer::read_configuration(RedisStoreLink& link, std::string* message) {
  const std::vector<RedisStoreLink::Reply> replies = link.ask(
      std::vector<std::string>{command_of({"INFO"}), command_of({"CONFIG", "GET", "appendfsync"})});
  if (const int error = failure_of(replies[0], message)) {
    return error;
  }
  if (replies[1].error != 0) {
    return failure_of(replies[1], message);
  }
  const std::string info = replies[0].value.string_value();
  const std::string version = info_field(info, "redis_version");
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  if (major < kOldestMajor) {
    return refuse_server(ENOTSUP, "Redis " + version + " is too old: a store needs 7.0 or later",
                         message);
  }
  if (info_field(info, "redis_mode") != "standalone") {
    return refuse_server(
        ENOTSUP, "the server is part of a cluster or a Sentinel: stores are kept by single servers",
        message);
  }
  if (info_field(info, "loading") == "1") {
    return refuse_server(EAGAIN, "Redis is loading its data", message);
  }
  if (info_field(info, "role") != "master") {
    return refuse_server(EROFS, "the server is a replica: a store needs its master", message);
  }
  const std::string policy = info_field(info, "maxmemory_policy");
  if (policy != "noeviction") {
    return refuse_server(EINVAL,
                         "the maxmemory-policy of the server is " + policy +
                             ", which would drop timers: a store needs noeviction",
                         message);
  }
  identity_ = info_field(info, "run_id") + "/" + info_field(info, "master_replid");

  // A server may refuse to say how it syncs.
  const protocol::RedisValue& sync = replies[1].value;
  const std::string fsync = sync.arr_size() == 2 ? sync[1].string_value() : "";
  receipt = {};
  if (info_field(info, "aof_enabled") == "0" || fsync == "no") {
    receipt.level = WFStoreReceipt::kMemory;
  } else if (fsync == "everysec") {
    receipt.level = WFStoreReceipt::kEverySecond;
  } else if (fsync == "always") {
    receipt.level = WFStoreReceipt::kFsync;
  }
  return 0;
}

int RedisStoreServer::open_shards(RedisStoreLink& link, const RedisStorePlace& place,
                                  const std::string& known_id, bool create, const std::string& time,
                                  std::string* message) {
  const std::string name = "the store \"" + place.name_space + "\"";
  const auto opening = [&](size_t shard, const std::string& count, bool may_make,
                           const char* done) {
    return redis_store_command(
        "EVAL", redis_store_opening(), place, shard,
        {id, count, std::to_string(shard), may_make ? "make" : "find", identity_, time, done});
  };
  const auto read = [&](const RedisStoreLink::Reply& reply, std::string* word,
                        std::string* detail) {
    const int error = failure_of(reply, message);
    if (error == 0) {
      *word = reply.value.arr_size() > 0 ? reply.value[0].string_value() : "other";
      *detail = reply.value.arr_size() > 1 ? reply.value[1].string_value() : "";
    }
    return error;
  };

  id = new_id();
  if (id.empty()) {
    return refuse_server(EAGAIN, "no random numbers are to be had", message);
  }
  const bool may_make = create && known_id.empty();
  // What a new store gets. One that is there says how many it has.
  std::string count = place.shards == 0 ? "" : std::to_string(place.shards);
  RedisStoreLink::Reply first = link.ask(opening(0, count, false, ""));
  std::string word;
  std::string detail;
  if (const int error = read(first, &word, &detail)) {
    return error;
  }
  if (word == "none" && may_make) {
    if (count.empty()) {
      count = std::to_string(RedisStorePlace::kDefaultShards);
    }
    first = link.ask(opening(0, count, true, ""));
    if (const int error = read(first, &word, &detail)) {
      return error;
    }
  }
  if (word == "none") {
    return known_id.empty()
               ? refuse_server(ENOENT, "there is no " + name.substr(4) + " on the server", message)
               : refuse_server(EILSEQ, name + " was removed from the server", message);
  }
  if (word == "shards") {
    return refuse_server(EINVAL,
                         name + " has " + detail + " shards, but the URL says " + count +
                             ": their number cannot change",
                         message);
  }
  if (word == "layout") {
    return refuse_server(
        EILSEQ, name + " has the layout " + detail + ", which this version does not know", message);
  }
  if (word != "ok" || first.value.arr_size() != 4) {
    return refuse_server(EILSEQ, "the keys of " + name + " hold something else", message);
  }
  if (!known_id.empty() && detail != known_id) {
    return refuse_server(EILSEQ, name + " was removed from the server, and another one was made",
                         message);
  }
  id = detail;
  count = first.value[2].string_value();
  std::from_chars(count.data(), count.data() + count.size(), shards);
  if (shards < 1 || shards > RedisStorePlace::kMaxShards) {
    return refuse_server(EILSEQ, "the keys of " + name + " hold something else", message);
  }
  const bool complete = first.value[3].string_value() == "1";
  std::vector<std::string> commands;
  for (size_t shard = 1; shard < shards; shard++) {
    commands.push_back(opening(shard, count, !complete, ""));
  }
  for (const RedisStoreLink::Reply& reply : link.ask(commands)) {
    if (const int error = read(reply, &word, &detail)) {
      return error;
    }
    if (word != "ok" || detail != id) {
      return refuse_server(EILSEQ, name + " is damaged: keys of it were removed or replaced",
                           message);
    }
  }
  if (!complete) {
    return read(link.ask(opening(0, count, false, "done")), &word, &detail);
  }
  return 0;
}

}  // namespace workflow
