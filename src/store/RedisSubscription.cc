#include "store/RedisSubscription.h"

#include <cerrno>
#include <utility>

#include "store/RedisWire.h"

namespace workflow {

using protocol::RedisValue;

int RedisSubscription::append(const void* buffer, size_t* size) {
  connected();
  if (const int error = parser_.feed(buffer, *size)) {
    errno = error;
    return -1;
  }
  for (;;) {
    RedisValue reply;
    switch (parser_.next(size_limit, &reply)) {
      case RedisParser::Result::kMore:
        return 0;
      case RedisParser::Result::kRefused:
        errno = parser_.error();
        return -1;
      case RedisParser::Result::kValue:
        break;
    }
    // Nothing else is answered by a status while there are subscriptions.
    const bool is_ok = reply.get_type() == REDIS_REPLY_TYPE_STATUS && *reply.string_view() == "OK";
    bool quits = false;
    {
      MutexLock lock(mutex_);
      quits = quits_;
    }
    if (is_ok && quits) {
      *size -= parser_.unparsed_bytes();
      return 1;
    }
    arrived_.push_back(std::move(reply));
    renew();
  }
}

bool RedisSubscription::next(RedisValue* reply) {
  if (arrived_.empty()) return false;
  *reply = std::move(arrived_.front());
  arrived_.pop_front();
  return true;
}

void RedisSubscription::connected() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(connected_, true) || unsent_.empty()) return;
  }
  task_->ask_to_send();
}

int RedisSubscription::send(const std::string& command, const std::vector<std::string>& params) {
  {
    MutexLock lock(mutex_);
    if (over_) return ENOTCONN;
    append_command(&unsent_, command, params);
    quits_ = quits_ || command == "QUIT";
    if (!connected_) return 0;
  }
  // If the exchange ends meanwhile, this does nothing: the caller keeps the task.
  task_->ask_to_send();
  return 0;
}

void RedisSubscription::take_unsent(std::string* bytes) {
  MutexLock lock(mutex_);
  bytes->swap(unsent_);
}

void RedisSubscription::over() {
  MutexLock lock(mutex_);
  over_ = true;
}

}  // namespace workflow
