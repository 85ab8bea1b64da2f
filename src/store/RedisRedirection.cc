#include "store/RedisRedirection.h"

#include <charconv>
#include <string_view>
#include <system_error>

namespace workflow {

std::optional<RedisRedirection> RedisRedirection::parse(const std::string& error,
                                                        const std::string& from) {
  std::string_view text = error;
  RedisRedirection redirection;
  redirection.asks = text.starts_with("ASK ");
  if (!redirection.asks && !text.starts_with("MOVED ")) return std::nullopt;
  text.remove_prefix(text.find(' ') + 1);
  const size_t space = text.find(' ');
  const size_t colon = text.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) {
    return std::nullopt;
  }
  RedisUrl::Server& server = redirection.server;
  server.host = text.substr(space + 1, colon - space - 1);
  if (server.host.empty()) {
    server.host = from;  // the server does not know its own name
  }
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, server.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || server.port == 0 || server.host.empty() ||
      server.host == "?") {
    return std::nullopt;
  }
  return redirection;
}

}  // namespace workflow
