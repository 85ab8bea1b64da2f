#include "store/RedisStoreServer.h"

#include <cerrno>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

#include "store/RedisStoreScripts.h"
#include "store/RedisWire.h"

namespace workflow {

namespace {

constexpr int kOldestMajor = 7;

int refuse_server(int error, const std::string& why, std::string* message) {
  *message = why;
  return error;
}

// Why a store of that kind cannot be on a server of that mode; null if it can.
const char* refusal_of(const std::string& mode, RedisStorePlace::Kind kind) {
  const bool is_cluster = kind == RedisStorePlace::Kind::kCluster;
  if (mode == (is_cluster ? "cluster" : "standalone")) return nullptr;
  if (mode == "cluster") {
    return "the server is part of a Cluster: say redis+cluster:// or rediss+cluster:// in the URL";
  }
  return mode == "sentinel" ? "the server is a Sentinel: say redis+sentinel:// in the URL"
                            : "the server is not part of a Cluster: say redis:// in the URL";
}

std::string command_of(std::initializer_list<std::string_view> parts) {
  std::string wire;
  append_command(&wire, parts);
  return wire;
}

// The value of a setting in what CONFIG GET has said; empty if it does not say.
std::string setting(const protocol::RedisValue& settings, std::string_view name) {
  if (!settings.is_array()) return {};
  for (size_t i = 0; i + 1 < settings.arr_size(); i += 2) {
    if (settings[i].string_value() == name) return settings[i + 1].string_value();
  }
  return {};
}

}  // namespace

std::string redis_info_field(const std::string& info, const std::string& name) {
  const std::string label = name + ":";
  size_t begin = 0;
  while (info.compare(begin, label.size(), label) != 0) {
    begin = info.find('\n', begin);
    if (begin == std::string::npos) return {};
    begin++;
  }
  begin += label.size();
  return info.substr(begin, std::min(info.find_first_of("\r\n", begin), info.size()) - begin);
}

int redis_store_failure(const RedisStoreLink& link, const RedisStoreLink::Reply& reply,
                        std::string* message) {
  if (reply.error != 0) return refuse_server(reply.error, reply.reason, message);
  if (reply.value.is_error()) {
    const std::string text = reply.value.string_value();
    const int error = RedisStoreError::of(text).error;
    const char* const hint = error == EOVERFLOW ? ": make another store, in another namespace" : "";
    return refuse_server(error, link.name() + ": " + text + hint, message);
  }
  return 0;
}

int64_t redis_store_number(const protocol::RedisValue& array, size_t element) {
  if (element >= array.arr_size()) return 0;
  const std::string digits = array[element].string_value();
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

RedisStoreError RedisStoreError::of(const std::string& text) {
  static constexpr struct {
    std::string_view code;
    int error;
  } kRefusals[] = {
      {"NOSTORE", EILSEQ},  {"OOM", ENOSPC},         {"LOADING", EAGAIN},    {"BUSY", EAGAIN},
      {"READONLY", EROFS},  {"MISCONF", EIO},        {"MASTERDOWN", EAGAIN}, {"NOREPLICAS", EAGAIN},
      {"NOAUTH", EACCES},   {"NOSCRIPT", EAGAIN},    {"MOVED", EAGAIN},      {"ASK", EAGAIN},
      {"TRYAGAIN", EAGAIN}, {"CLUSTERDOWN", EAGAIN}, {"NEWSERVER", EAGAIN},  {"USEDUP", EOVERFLOW},
      {"NOPERM", EACCES},
  };
  const std::string_view code = std::string_view(text).substr(0, text.find(' '));
  for (const auto& refusal : kRefusals) {
    if (code == refusal.code) return {refusal.error, false};
  }
  if (text.starts_with("ERR unknown command")) return {EACCES, false};  // it was renamed
  // A script that has stopped in the middle has found something that no script has written.
  return {EILSEQ, true};
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

void RedisStoreServer::read_receipt(const Said& said) {
  // A server may refuse to say how it syncs.
  const std::string fsync = setting(said.settings, "appendfsync");
  const bool logs = redis_info_field(said.info, "aof_enabled") != "0" && fsync != "no";
  // Nothing is synced while a child process writes a snapshot or a new log, however long that
  // takes.
  const bool pauses = setting(said.settings, "no-appendfsync-on-rewrite") == "yes";
  const bool is_rewriting = redis_info_field(said.info, "aof_rewrite_in_progress") == "1" ||
                            redis_info_field(said.info, "aof_rewrite_scheduled") == "1";
  const std::string changes = redis_info_field(said.commands, "cmdstat_config|set") + "/" +
                              redis_info_field(said.commands, "cmdstat_config|resetstat");
  const bool is_whole =
      !is_rewriting || (receipt.level > WFStoreReceipt::kMemory && changes == changes_);
  changes_ = changes;
  receipt = {};
  if (!logs || pauses) {
    receipt.level = WFStoreReceipt::kMemory;
  } else if (fsync == "everysec" || fsync == "always") {
    const auto level = fsync == "always" ? WFStoreReceipt::kFsync : WFStoreReceipt::kEverySecond;
    receipt.level = is_whole ? level : WFStoreReceipt::kMemory;
  }
}

int RedisStoreServer::learn_from(const Said& said, RedisStorePlace::Kind kind,
                                 std::string* message) {
  const std::string& info = said.info;
  const std::string version = redis_info_field(info, "redis_version");
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  if (major < kOldestMajor) {
    return refuse_server(ENOTSUP, "version " + version + " is too old: a store needs 7.0 or later",
                         message);
  }
  // Valkey has another name for it, unless it is told to be like Redis.
  std::string mode = redis_info_field(info, "redis_mode");
  if (mode.empty()) {
    mode = redis_info_field(info, "server_mode");
  }
  if (const char* const refusal = refusal_of(mode, kind)) {
    return refuse_server(ENOTSUP, refusal, message);
  }
  if (redis_info_field(info, "loading") == "1") {
    return refuse_server(EAGAIN, "the server is loading its data", message);
  }
  if (redis_info_field(info, "role") != "master") {
    return refuse_server(EROFS, "the server is a replica: a store needs its master", message);
  }
  const std::string policy = redis_info_field(info, "maxmemory_policy");
  if (policy != "noeviction") {
    return refuse_server(EINVAL,
                         "the maxmemory-policy of the server is " + policy +
                             ", which would drop timers: a store needs noeviction",
                         message);
  }
  std::string present =
      redis_info_field(info, "run_id") + "/" + redis_info_field(info, "master_replid");
  if (identity != present) {
    receipt = {};  // it may have another log
    identity = std::move(present);
  }
  read_receipt(said);
  return 0;
}

std::vector<std::string> RedisStoreServer::questions() const {
  // A server may do something else between two of them. What is changed after it was counted is
  // counted when this is read again.
  std::vector<std::string> all = {command_of({"INFO", "commandstats"}), command_of({"INFO"})};
  if (!hides_settings_) {
    all.push_back(command_of({"CONFIG", "GET", "appendfsync", "no-appendfsync-on-rewrite"}));
  }
  return all;
}

int RedisStoreServer::learn(const RedisStoreLink& link,
                            std::span<const RedisStoreLink::Reply> replies,
                            RedisStorePlace::Kind kind, std::string* message) {
  Said said;
  std::string why;
  int error = 0;
  for (const RedisStoreLink::Reply& reply : replies.first(2)) {
    error = error != 0 ? error : redis_store_failure(link, reply, message);
  }
  if (error == 0 && replies.size() > 2) {
    // A store needs no right to CONFIG. One that lacks it does not ask again.
    error = redis_store_failure(link, replies[2], message);
    hides_settings_ = replies[2].error == 0 && error != 0 && error != EAGAIN;
    error = hides_settings_ ? 0 : error;
    said.settings = replies[2].value;
  }
  if (error == 0) {
    said.commands = replies[0].value.string_value();
    said.info = replies[1].value.string_value();
    error = learn_from(said, kind, &why);
  }
  if (error != 0) {
    receipt = {};
  }
  return why.empty() ? error : refuse_server(error, link.name() + ": " + why, message);
}

int RedisStoreServer::read(RedisStoreLink& link, RedisStorePlace::Kind kind, std::string* message) {
  return learn(link, link.ask(questions()), kind, message);
}

}  // namespace workflow
