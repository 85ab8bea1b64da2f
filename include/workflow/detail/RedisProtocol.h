#pragma once

#include "workflow/RedisMessage.h"
#include "workflow/WFClientTask.h"

// What Redis adds to its client tasks. WFTaskFactory::create_redis_task() says what users see of
// it.
template <>
struct WFClientProtocol<protocol::RedisRequest, protocol::RedisResponse> {
  static constexpr int kKeepAlive = 60 * 1000;

  static bool prepare(const workflow::ClientTarget &, protocol::RedisRequest *,
                      protocol::RedisResponse *, bool /*keep_alive*/) {
    return true;
  }
  static bool leaves_connection_usable(const protocol::RedisRequest *,
                                       const protocol::RedisResponse *) {
    return true;
  }
  // True for commands that only read; docs/redis.md lists them.
  static bool is_repeatable(const protocol::RedisRequest *request);
};
