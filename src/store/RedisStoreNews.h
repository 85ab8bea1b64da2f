#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "store/RedisUrl.h"

namespace workflow {

// Receives the news that stores on the same data publish, on a connection of its own, and passes
// them on. Its own store's are left out. When the connection is lost, keep() makes another one.
//
// Used by one thread at a time.
class RedisStoreNews {
 public:
  // `sender`: what its own store publishes. `changed` may be null. It is called on any thread.
  RedisStoreNews(std::string channel, std::string sender, std::function<void()> changed);
  ~RedisStoreNews();
  RedisStoreNews(const RedisStoreNews&) = delete;
  RedisStoreNews& operator=(const RedisStoreNews&) = delete;

  // Subscribes at that server if there is no subscription there, at most once a second. Does not
  // wait for it.
  void keep(const RedisUrl& server);
  // When this has returned, no call of `changed` is in progress or to come. Not to be called inside
  // one.
  void close();

 private:
  struct State;

  const std::string channel_;
  const std::shared_ptr<State> state_;
  int64_t next_try_ns_ = 0;
  RedisUrl::Server server_;  // of the last subscription
};

}  // namespace workflow
