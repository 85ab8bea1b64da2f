#include "store/RedisStorePlace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>

#include "store/StoreText.h"

namespace workflow {

namespace {

constexpr size_t kMaxNamespace = 64;

bool is_namespace(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-:").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMaxNamespace &&
         std::all_of(text.begin(), text.end(), allowed);
}

int refuse_place(int error, const std::string& why, std::string* message) {
  *message = why;
  return error;
}

template <class NUMBER>
bool read_number(std::string_view text, NUMBER* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

int refuse_value(std::string_view name, std::string_view value, const std::string& allowed,
                 std::string* message) {
  return refuse_place(
      EINVAL,
      std::string(name) + " in the URL is " + StoreText::quoted(value) + ": allowed are " + allowed,
      message);
}

// Sets what one parameter says. Adds to `*rest` what is about the server.
int set_parameter(std::string_view text, RedisStorePlace* place, std::string* rest,
                  std::string* message) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  if (name == "namespace") {
    place->name_space = value;
    return is_namespace(value)
               ? 0
               : refuse_value(name, value,
                              "1 to 64 letters, digits and characters of . _ - :", message);
  }
  if (name == "shards") {
    return read_number(value, &place->shards) && place->shards >= 1 &&
                   place->shards <= RedisStorePlace::kMaxShards
               ? 0
               : refuse_value(name, value, "1 to 1024", message);
  }
  if (name == "replicas") {
    return read_number(value, &place->replicas) && place->replicas >= 0 &&
                   place->replicas <= RedisStorePlace::kMaxReplicas
               ? 0
               : refuse_value(name, value, "0 to 100", message);
  }
  if (name == "db") {
    *rest = "?" + std::string(text);
    return 0;
  }
  return refuse_place(EINVAL,
                      "unknown parameter in the URL: " + StoreText::quoted(name) +
                          "; there are namespace, shards, replicas and db",
                      message);
}

int parse_server(const std::string& url, RedisUrl* server, std::string* message) {
  const int error = RedisUrl::parse(url, server, message);
  if (error == ENOMEM) return refuse_place(ENOMEM, "there is no memory for the URL", message);
  return error == 0 ? 0 : EINVAL;
}

// `url`: without what is about the store. Each node is read as if it were the only server.
int parse_cluster(const std::string& url, RedisStorePlace* place, std::string* message) {
  const size_t authority = url.find("://") + 3;
  const std::string scheme = url.starts_with("rediss") ? "rediss://" : "redis://";
  const size_t end = std::min(url.find_first_of("/?#", authority), url.size());
  const size_t at = url.rfind('@', end);
  size_t begin = at == std::string::npos || at < authority ? authority : at + 1;
  const std::string login = url.substr(authority, begin - authority);
  while (begin <= end) {
    const size_t comma = std::min(url.find(',', begin), end);
    RedisUrl node;
    std::string node_url = scheme + login;
    node_url.append(url, begin, comma - begin).append(url, end);
    if (const int error = parse_server(node_url, &node, message)) return error;
    place->nodes.push_back(node.server);
    place->server = std::move(node);
    begin = comma + 1;
  }
  if (place->server.db == 0) return 0;
  return refuse_place(EINVAL,
                      "the database in the URL is " + std::to_string(place->server.db) +
                          ", but a Cluster has only 0",
                      message);
}

int parse_url(const std::string& url, RedisStorePlace* place, std::string* message) {
  const size_t mark = url.find('?');
  std::string rest;
  size_t begin = mark == std::string::npos ? url.size() : mark + 1;
  while (begin < url.size()) {
    const size_t end = std::min(url.find('&', begin), url.size());
    const std::string_view parameter = std::string_view(url).substr(begin, end - begin);
    if (const int error = set_parameter(parameter, place, &rest, message)) return error;
    begin = end + 1;
  }
  const std::string server_url = url.substr(0, mark) + rest;
  if (url.starts_with("redis+cluster://") || url.starts_with("rediss+cluster://")) {
    place->kind = RedisStorePlace::Kind::kCluster;
    return parse_cluster(server_url, place, message);
  }
  const int error = parse_server(server_url, &place->server, message);
  place->kind = place->server.sentinels.empty() ? RedisStorePlace::Kind::kServer
                                                : RedisStorePlace::Kind::kSentinels;
  return error;
}

// Whether what stands before an "@" may be the rest of a password in which a "/", a "?" or a "#"
// is not encoded. The path of a unix socket may contain an "@".
bool has_at_behind_host(const std::string& url) {
  const size_t authority = std::min(url.find("://"), url.size());
  const char* const ends = url.starts_with("redis+unix:") ? "?#" : "/?#";
  const size_t end = url.find_first_of(ends, std::min(authority + 3, url.size()));
  return end != std::string::npos && url.find('@', end) != std::string::npos;
}

}  // namespace

int RedisStorePlace::parse(const std::string& url, RedisStorePlace* place, std::string* message) {
  *place = RedisStorePlace();
  const int error = parse_url(url, place, message);
  if (error == 0 || !has_at_behind_host(url)) return error;
  return refuse_place(error,
                      "the URL has an @ behind its host: in a user or a password write %2F for /, "
                      "%3F for ? and %23 for #",
                      message);
}

RedisUrl RedisStorePlace::at(const RedisUrl::Server& where) const {
  RedisUrl url = server;
  url.server = where;
  return url;
}

std::string RedisStorePlace::key(size_t shard, std::string_view key) const {
  return "{" + name_space + ":" + std::to_string(shard) + "}:" + std::string(key);
}

size_t redis_store_shard(std::string_view name, size_t shards) {
  // FNV-1a of 64 bits, folded.
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return static_cast<size_t>((hash ^ hash >> 32) & 0xffffffffU) % shards;
}

}  // namespace workflow
