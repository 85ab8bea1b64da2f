#include "store/RedisStorePlace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>

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
               : refuse_place(EINVAL,
                              "the namespace in the URL is not 1 to 64 letters, digits "
                              "and characters of . _ - :",
                              message);
  }
  if (name == "shards") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), place->shards);
    const bool is_number = error == std::errc() && end == value.data() + value.size();
    const bool fits = place->shards >= 1 && place->shards <= RedisStorePlace::kMaxShards;
    return is_number && fits
               ? 0
               : refuse_place(EINVAL, "the number of shards in the URL is not 1 to 1024", message);
  }
  if (name == "db") {
    *rest = "?" + std::string(text);
    return 0;
  }
  return refuse_place(EINVAL, "unknown parameter in the URL: " + std::string(name), message);
}

}  // namespace

int RedisStorePlace::parse(const std::string& url, RedisStorePlace* place, std::string* message) {
  *place = RedisStorePlace();
  const std::string_view scheme = std::string_view(url).substr(0, url.find("://"));
  if (scheme.ends_with("+sentinel") || scheme.ends_with("+cluster")) {
    return refuse_place(
        ENOTSUP,
        "stores are kept by single servers only: neither Sentinels nor clusters are "
        "supported",
        message);
  }
  const size_t mark = url.find('?');
  std::string rest;
  size_t begin = mark == std::string::npos ? url.size() : mark + 1;
  while (begin < url.size()) {
    const size_t end = std::min(url.find('&', begin), url.size());
    const std::string_view parameter = std::string_view(url).substr(begin, end - begin);
    if (const int error = set_parameter(parameter, place, &rest, message)) {
      return error;
    }
    begin = end + 1;
  }
  place->server_url = url.substr(0, mark) + rest;
  if (RedisUrl::parse(place->server_url, &place->server) != 0) {
    return refuse_place(EINVAL, "the URL does not name a Redis: see docs/store.md", message);
  }
  return 0;
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
