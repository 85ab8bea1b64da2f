#include "store/RedisCommands.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace workflow {

namespace {

// Both lists are sorted.
constexpr std::string_view kStateful[] = {
    "ASKING",       "AUTH",       "DISCARD",     "EXEC",         "HELLO",      "MONITOR",
    "MULTI",        "PSUBSCRIBE", "PSYNC",       "PUNSUBSCRIBE", "QUIT",       "READONLY",
    "READWRITE",    "REPLCONF",   "RESET",       "SELECT",       "SSUBSCRIBE", "SUBSCRIBE",
    "SUNSUBSCRIBE", "SYNC",       "UNSUBSCRIBE", "UNWATCH",      "WATCH"};

constexpr std::string_view kReading[] = {"BITCOUNT",
                                         "BITFIELD_RO",
                                         "BITPOS",
                                         "DBSIZE",
                                         "DUMP",
                                         "ECHO",
                                         "EVALSHA_RO",
                                         "EVAL_RO",
                                         "EXISTS",
                                         "EXPIRETIME",
                                         "FCALL_RO",
                                         "GEODIST",
                                         "GEOHASH",
                                         "GEOPOS",
                                         "GEORADIUSBYMEMBER_RO",
                                         "GEORADIUS_RO",
                                         "GEOSEARCH",
                                         "GET",
                                         "GETBIT",
                                         "GETRANGE",
                                         "HEXISTS",
                                         "HGET",
                                         "HGETALL",
                                         "HKEYS",
                                         "HLEN",
                                         "HMGET",
                                         "HRANDFIELD",
                                         "HSCAN",
                                         "HSTRLEN",
                                         "HVALS",
                                         "INFO",
                                         "KEYS",
                                         "LASTSAVE",
                                         "LCS",
                                         "LINDEX",
                                         "LLEN",
                                         "LPOS",
                                         "LRANGE",
                                         "MGET",
                                         "PEXPIRETIME",
                                         "PFCOUNT",
                                         "PING",
                                         "PTTL",
                                         "RANDOMKEY",
                                         "ROLE",
                                         "SCAN",
                                         "SCARD",
                                         "SDIFF",
                                         "SINTER",
                                         "SINTERCARD",
                                         "SISMEMBER",
                                         "SMEMBERS",
                                         "SMISMEMBER",
                                         "SORT_RO",
                                         "SRANDMEMBER",
                                         "SSCAN",
                                         "STRLEN",
                                         "SUBSTR",
                                         "SUNION",
                                         "TIME",
                                         "TTL",
                                         "TYPE",
                                         "XINFO",
                                         "XLEN",
                                         "XPENDING",
                                         "XRANGE",
                                         "XREAD",
                                         "XREVRANGE",
                                         "ZCARD",
                                         "ZCOUNT",
                                         "ZDIFF",
                                         "ZINTER",
                                         "ZINTERCARD",
                                         "ZLEXCOUNT",
                                         "ZMSCORE",
                                         "ZRANDMEMBER",
                                         "ZRANGE",
                                         "ZRANGEBYLEX",
                                         "ZRANGEBYSCORE",
                                         "ZRANK",
                                         "ZREVRANGE",
                                         "ZREVRANGEBYLEX",
                                         "ZREVRANGEBYSCORE",
                                         "ZREVRANK",
                                         "ZSCAN",
                                         "ZSCORE",
                                         "ZUNION"};

// The subcommands of CLIENT that leave the connection as it is.
constexpr std::string_view kHarmlessForClient[] = {"GETNAME", "GETREDIR", "HELP",        "ID",
                                                   "INFO",    "KILL",     "LIST",        "PAUSE",
                                                   "UNBLOCK", "UNPAUSE",  "TRACKINGINFO"};

std::string upper(std::string_view text) {
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

template <size_t N>
bool is_in(const std::string_view (&list)[N], const std::string& name) {
  return std::binary_search(std::begin(list), std::end(list), std::string_view(name));
}

template <size_t N>
constexpr bool is_sorted(const std::string_view (&list)[N]) {
  return std::is_sorted(std::begin(list), std::end(list));
}

static_assert(is_sorted(kStateful) && is_sorted(kReading));

}  // namespace

bool changes_connection(std::string_view command, const std::vector<std::string>& params) {
  const std::string name = upper(command);
  if (is_in(kStateful, name)) return true;
  const std::string first = params.empty() ? "" : upper(params[0]);
  if (name == "CLIENT") {
    return std::find(std::begin(kHarmlessForClient), std::end(kHarmlessForClient), first) ==
           std::end(kHarmlessForClient);
  }
  return name == "SCRIPT" && first == "DEBUG";
}

bool only_reads(std::string_view command) {
  return is_in(kReading, upper(command));
}

}  // namespace workflow
