#pragma once

#include <memory>
#include <string>

#include "workflow/detail/ClientExchange.h"

namespace workflow {

struct RedisUrl;

// What is sent first on each connection to a Redis: the login, the choice of the database, and, for
// a master that a Sentinel has named, the question for its role. The next command goes out only
// after the login and the choice have succeeded, and unless the server has said that it is not a
// master. Otherwise the command could be executed as another user, in another database or on a
// replica. A server that refuses to tell its role is accepted.
//
// The answer fails with WFT_ERR_REDIS_ACCESS_DENIED if the login or the choice is refused, with
// WFT_ERR_UPSTREAM_UNAVAILABLE if the server is not a master, with ECONNREFUSED if it has too many
// clients, and with EAGAIN if it is busy or is loading its data.
class RedisGreeting final : public ClientGreeting {
 public:
  // Returns null if the URL needs none.
  static std::shared_ptr<const RedisGreeting> of(const RedisUrl& url);

  explicit RedisGreeting(const RedisUrl& url);

  const std::string& bytes() const override { return bytes_; }
  std::unique_ptr<protocol::ProtocolMessage> new_answer() const override;

 private:
  std::string bytes_;
  int logins_ = 0;  // how many replies must be OK
  bool asks_role_ = false;
};

}  // namespace workflow
