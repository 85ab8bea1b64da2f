#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace workflow {

// What the library has to know about the commands of Redis. docs/redis.md lists the same commands.

// Whether the command would change the state of the connection on which it is sent, which other
// tasks use afterwards, or would be answered with anything but one reply.
bool changes_connection(std::string_view command, const std::vector<std::string>& params);

// Whether the command changes nothing on the server, so that it may be sent twice. False for a
// command that is not known.
bool only_reads(std::string_view command);

}  // namespace workflow
