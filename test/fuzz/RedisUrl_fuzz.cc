#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "Fuzzing.h"
#include "store/RedisSlots.h"
#include "store/RedisStorePlace.h"
#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"
#include "workflow/URIParser.h"
#include "workflow/WFTaskError.h"

// Whatever text is taken for the URL of a Redis, or of a store in one: it is refused with one line
// that tells nothing about a login, or its parts fit together, and put together again they are the
// same URL. What a connection says first is what the URL says, whichever bytes a password contains.

using fuzzing::require;
using protocol::RedisRequest;
using workflow::ClientTarget;
using workflow::RedisSlots;
using workflow::RedisStorePlace;
using workflow::RedisUrl;

namespace {

using Kind = RedisStorePlace::Kind;

constexpr size_t kMaxMessage = 500;
constexpr unsigned kMaxDb = 2147483647;
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

bool same(const RedisUrl& a, const RedisUrl& b) {
  return a.transport == b.transport && a.server == b.server && a.unix_path == b.unix_path &&
         a.sentinels == b.sentinels && a.master_name == b.master_name && a.logs_in == b.logs_in &&
         a.user == b.user && a.password == b.password && a.db == b.db;
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_plain(char c) {
  return is_letter_or_digit(c) || std::string_view("-._~").find(c) != std::string_view::npos;
}

// In a URL, for each of its parts.
std::string encoded(const std::string& text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    if (is_plain(c)) {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result.append(1, '%').append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
  }
  return result;
}

std::string join(const std::vector<RedisUrl::Server>& servers) {
  std::string text;
  for (const RedisUrl::Server& server : servers) {
    text += (text.empty() ? "" : ",") + encoded(server.host) + ":" + std::to_string(server.port);
  }
  return text;
}

std::string login_of(const RedisUrl& url) {
  return url.logs_in ? encoded(url.user) + ":" + encoded(url.password) + "@" : "";
}

// As the comments of RedisStorePlace say it.
std::string join(const RedisUrl& url) {
  const std::string scheme = url.transport == TT_TCP_SSL ? "rediss" : "redis";
  const std::string db = "?db=" + std::to_string(url.db);
  if (!url.unix_path.empty()) {
    return scheme + "+unix://" + login_of(url) + "/" + encoded(url.unix_path.substr(1)) + db;
  }
  if (!url.sentinels.empty()) {
    return scheme + "+sentinel://" + login_of(url) + join(url.sentinels) + "/" +
           encoded(url.master_name) + db;
  }
  return scheme + "://" + login_of(url) + join(std::vector{url.server}) + db;
}

void check_line(const std::string& message) {
  require(!message.empty() && message.size() < kMaxMessage);
  for (const char c : message)
    require(c >= ' ' && c <= '~');
}

// Where the authority begins; npos if the text does not begin with a scheme and "://".
size_t begin_of_authority(const std::string& text) {
  const size_t mark = text.find("://");
  if (mark == std::string::npos || mark == 0) return std::string::npos;
  for (size_t i = 0; i < mark; ++i) {
    if (!is_letter_or_digit(text[i]) && std::string_view("+-.").find(text[i]) == std::string::npos)
      return std::string::npos;
  }
  return mark + 3;
}

// The same text with other letters in that part: those that mean nothing in an escape, in an
// address of IPv6 or in an address of a later version.
std::string disguised(std::string text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    char& c = text[i];
    if (c >= 'g' && c <= 'u') {
      c = static_cast<char>(c == 'u' ? 'g' : c + 1);
    } else if (c >= 'G' && c <= 'U') {
      c = static_cast<char>(c == 'U' ? 'G' : c + 1);
    }
  }
  return text;
}

// Nothing of the authority is shown: with other letters there, the message is the same.
void check_refusal(const std::string& text, int error, const std::string& why) {
  require(error == WFT_ERR_URI_PARSE_FAILED || error == WFT_ERR_URI_SCHEME_INVALID ||
          error == WFT_ERR_URI_PORT_INVALID);
  check_line(why);
  const size_t begin = begin_of_authority(text);
  if (begin == std::string::npos) return;
  const size_t end = std::min(text.find_first_of("/?#", begin), text.size());
  RedisUrl url;
  std::string other_why;
  require(RedisUrl::parse(disguised(text, begin, end), &url, &other_why) == error);
  require(other_why == why);
}

void check_parts(const RedisUrl& url) {
  require(url.transport == TT_TCP || url.transport == TT_TCP_SSL);
  const bool is_server = !url.server.host.empty();
  const bool is_unix = !url.unix_path.empty();
  const bool has_sentinels = !url.sentinels.empty();
  require(int{is_server} + int{is_unix} + int{has_sentinels} == 1);
  require(is_server == (url.server.port != 0));
  require(url.unix_path.size() <= kMaxPath && url.unix_path.find('\0') == std::string::npos);
  require(!is_unix || url.transport == TT_TCP);
  for (const RedisUrl::Server& sentinel : url.sentinels)
    require(!sentinel.host.empty() && sentinel.port != 0);
  require(has_sentinels == !url.master_name.empty());
  // One that is encoded is refused as well, since a Sentinel knows no such name.
  require(url.master_name.find('/') == std::string::npos);
  require(url.logs_in == (!url.user.empty() || !url.password.empty()));
  require(url.db <= kMaxDb);
}

// The address is one that users can write into a URL.
void check_address(const RedisUrl& url) {
  const std::string address = url.address();
  require(address.empty() == !url.sentinels.empty());
  if (!url.unix_path.empty()) require(address == url.unix_path);
  if (url.server.host.empty()) return;
  const std::string& host = url.server.host;
  struct in6_addr ipv6;
  const bool is_ipv6 =
      host.find('\0') == std::string::npos && ::inet_pton(AF_INET6, host.c_str(), &ipv6) == 1;
  if (!is_ipv6 && !std::all_of(host.begin(), host.end(), is_plain)) return;
  RedisUrl again;
  require(RedisUrl::parse("redis://" + address, &again) == 0);
  require(again.server == url.server);
}

// The words of the commands that are said first.
std::vector<std::vector<std::string>> said_first(const ClientTarget& target) {
  std::vector<std::vector<std::string>> commands;
  std::string_view rest = target.greeting ? target.greeting->bytes() : std::string_view();
  while (!rest.empty()) {
    RedisRequest request;
    size_t size = rest.size();
    require(request.append(rest.data(), &size) == 1);
    rest.remove_prefix(size);
    std::vector<std::string>& words = commands.emplace_back(request.params());
    words.insert(words.begin(), request.command());
  }
  return commands;
}

void check_target(const ClientTarget& target, const RedisUrl& url, const RedisUrl::Server& server) {
  require(target.error == 0 && target.is_tls() == (url.transport == TT_TCP_SSL));
  require(target.host == server.host && target.port == server.port);
}

void check_targets(const RedisUrl& url) {
  std::vector<std::vector<std::string>> expected;
  if (url.logs_in) {
    expected.push_back({"AUTH", url.user, url.password});
    if (url.user.empty()) expected[0].erase(expected[0].begin() + 1);
  }
  if (url.db != 0) expected.push_back({"SELECT", std::to_string(url.db)});
  for (const RedisUrl::Server& sentinel : url.sentinels) {
    const ClientTarget asked = url.sentinel_target(sentinel);
    check_target(asked, url, sentinel);
    require(!asked.greeting);
  }
  if (!url.sentinels.empty()) expected.push_back({"ROLE"});
  const ClientTarget target = url.sentinels.empty() ? url.target() : url.target_of({"master", 1});
  require(said_first(target) == expected);
  require((target.greeting != nullptr) == !expected.empty());
  if (url.unix_path.empty()) {
    check_target(target, url, url.sentinels.empty() ? url.server : RedisUrl::Server{"master", 1});
    return;
  }
  struct sockaddr_un address;
  require(target.error == 0 && target.address_length == sizeof address);
  std::memcpy(&address, &target.address, sizeof address);
  require(address.sun_family == AF_UNIX && url.unix_path == address.sun_path);
}

void check_url(const std::string& text) {
  RedisUrl url;
  std::string why;
  const int error = RedisUrl::parse(text, &url, &why);
  RedisUrl again;
  require(RedisUrl::parse(text, &again) == error && same(again, url));
  if (text.find(',') == std::string::npos) {
    ParsedURI uri;
    URIParser::parse(text, uri);
    require(RedisUrl::parse(uri, &again) == error && same(again, url));
  }
  if (error != 0) {
    check_refusal(text, error, why);
    return;
  }
  require(why.empty());
  check_parts(url);
  check_address(url);
  check_targets(url);
  // A relative path cannot be joined.
  if (!url.unix_path.empty() && url.unix_path[0] != '/') return;
  require(RedisUrl::parse(join(url), &again) == 0);
  require(same(again, url));
}

// Nothing in front of an "@" is shown: it may be a password in which a "/" is not encoded.
void check_refused_place(const std::string& text, const std::string& message) {
  check_line(message);
  const size_t begin = begin_of_authority(text);
  const size_t end = text.rfind('@');
  if (!text.starts_with("redis") || begin == std::string::npos || end == std::string::npos) return;
  RedisStorePlace place;
  std::string other_message;
  if (RedisStorePlace::parse(disguised(text, begin, end), &place, &other_message) != 0)
    require(other_message == message);
}

std::string join(const RedisStorePlace& place) {
  std::string text = join(place.server);
  if (place.kind == Kind::kCluster) {
    const std::string scheme = place.server.transport == TT_TCP_SSL ? "rediss" : "redis";
    text = scheme + "+cluster://" + login_of(place.server) + join(place.nodes) + "?db=0";
  }
  text += "&namespace=" + place.name_space + "&replicas=" + std::to_string(place.replicas);
  return place.shards == 0 ? text : text + "&shards=" + std::to_string(place.shards);
}

void check_place(const RedisStorePlace& place) {
  check_parts(place.server);
  check_targets(place.server);
  require((place.kind == Kind::kSentinels) == !place.server.sentinels.empty());
  require((place.kind == Kind::kCluster) == !place.nodes.empty());
  for (const RedisUrl::Server& node : place.nodes) {
    require(!node.host.empty() && node.port != 0 && place.server.db == 0);
    require(place.at(node).server == node);
    check_target(place.at(node).target(), place.server, node);
  }
  require(!place.name_space.empty() && place.name_space.size() <= 64);
  for (const char c : place.name_space)
    require(is_letter_or_digit(c) || std::string_view("._-:").find(c) != std::string_view::npos);
  require(place.shards <= RedisStorePlace::kMaxShards);
  require(place.replicas >= 0 && place.replicas <= RedisStorePlace::kMaxReplicas);
  // A script may use all keys of a shard in a Cluster.
  const size_t shard = place.shards == 0 ? 0 : place.shards - 1;
  require(RedisSlots::of_key(place.key(shard, "a")) == RedisSlots::of_key(place.key(shard, "b}")));
  require(place.key(shard, "a") != place.key(shard + 1, "a"));
}

void check_store_url(const std::string& text) {
  RedisStorePlace place;
  std::string message;
  const int error = RedisStorePlace::parse(text, &place, &message);
  if (error != 0) {
    require(error == EINVAL);
    check_refused_place(text, message);
    return;
  }
  require(message.empty());
  check_place(place);
  // The nodes of a Cluster are part of the authority.
  require(place.kind != Kind::kCluster || begin_of_authority(text) != std::string::npos);
  if (!place.server.unix_path.empty() && place.server.unix_path[0] != '/') return;
  RedisStorePlace again;
  require(RedisStorePlace::parse(join(place), &again, &message) == 0);
  require(same(again.server, place.server) && again.nodes == place.nodes);
  require(again.kind == place.kind && again.name_space == place.name_space);
  require(again.shards == place.shards && again.replicas == place.replicas);
}

void check(const std::string& text) {
  check_url(text);
  check_store_url(text);
  for (const size_t shards : {size_t{1}, size_t{16}, RedisStorePlace::kMaxShards})
    require(workflow::redis_store_shard(text, shards) < shards);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check(text);
  for (size_t cut = 0; fuzzing::cut_everywhere && cut < size; ++cut)
    check(text.substr(0, cut));
  return 0;
}
