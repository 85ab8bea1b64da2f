#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/RedisPipeline.h"
#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// One connection of a store to its server, which is never replaced: what was learnt about the
// server when it began holds until it ends, because neither a restart nor a failover leaves it
// standing.
//
// Used by one thread at a time. Blocks.
class RedisStoreLink {
 public:
  struct Reply {
    int error = 0;        // an errno value; 0: `value` is the reply, which may be an error
    bool sent = true;     // false: the server has not executed the command
    std::string reason;   // why there is no reply, in one line
    int64_t sent_us = 0;  // monotonic times
    int64_t received_us = 0;
    protocol::RedisValue value;
  };

  explicit RedisStoreLink(const RedisUrl& url);

  // Sends encoded commands, all at once, and waits for what becomes of them: a reply or an error
  // within about 10 s of silence. After an error the connection has ended.
  std::vector<Reply> ask(const std::vector<std::string>& commands);
  Reply ask(const std::string& command);

 private:
  static RedisPipeline::Options options();

  RedisPipeline pipeline_;
};

}  // namespace workflow
