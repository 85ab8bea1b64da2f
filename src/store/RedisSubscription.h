#pragma once

#include <deque>
#include <string>
#include <vector>

#include "store/RedisParser.h"
#include "util/Mutex.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFRedisSubscriber.h"

namespace workflow {

// What a subscription receives and what it still has to send. It is the response of its task: a
// message that is whole only when the server has confirmed QUIT.
//
// Belongs to its task. Threads: append() and next() are called by the thread that has the exchange,
// the poller's or the one that delivers, never both at once. The other functions are for any
// thread.
class RedisSubscription final : public protocol::ProtocolMessage {
 public:
  explicit RedisSubscription(WFRedisSubscribeTask* task) : task_(task) {}

  int append(const void* buffer, size_t* size) override;
  using ProtocolMessage::append;

  bool has_arrived() const { return !arrived_.empty(); }
  // Takes the oldest reply that has arrived. False if there is none.
  bool next(protocol::RedisValue* reply);

  // Returns 0, or ENOTCONN if the exchange is over.
  int send(const std::string& command, const std::vector<std::string>& params);
  void take_unsent(std::string* bytes);
  void over();

 private:
  // The server has answered, so the connection is the last one: what is to be sent can be sent.
  void connected();

  WFRedisSubscribeTask* const task_;
  RedisParser parser_;
  std::deque<protocol::RedisValue> arrived_;

  Mutex mutex_;
  std::string unsent_ WF_GUARDED_BY(mutex_);
  bool connected_ WF_GUARDED_BY(mutex_) = false;
  bool quits_ WF_GUARDED_BY(mutex_) = false;
  bool over_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
