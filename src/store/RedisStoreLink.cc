#include "store/RedisStoreLink.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/BlockingScope.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/WFTaskError.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

constexpr int kTimeoutMs = 10'000;

int64_t mono_us() {
  return system_clock().now_ns() / 1000;
}

// Others refer to the reply meanwhile, so nothing may be thrown. Without memory there is no reason.
template <class REASON>
void set_reason(RedisStoreLink::Reply* reply, const REASON& reason) {
  try {
    reply->reason = "Redis: " + reason();
  } catch (const std::bad_alloc&) {
    reply->reason.clear();
  }
}

void set_failure(const RedisPipeline::Outcome& outcome, RedisStoreLink::Reply* reply) {
  reply->sent = outcome.sent;
  reply->error = outcome.state == WFT_STATE_SYS_ERROR && outcome.error > 0 ? outcome.error : EIO;
  if (outcome.state == WFT_STATE_TASK_ERROR && outcome.error == WFT_ERR_REDIS_ACCESS_DENIED) {
    reply->error = EACCES;
  }
  if (outcome.state == WFT_STATE_SYS_ERROR) {
    set_reason(reply, [&] { return std::string(std::strerror(outcome.error)); });
  } else if (reply->error == EACCES) {
    set_reason(reply, [] { return std::string("the login was refused"); });
  } else {
    set_reason(reply, [&] {
      return "state " + std::to_string(outcome.state) + ", error " + std::to_string(outcome.error);
    });
  }
}

// What is awaited. Shared by the caller and the callbacks.
struct Awaited {
  Mutex mutex;
  CondVar changed;
  size_t left WF_GUARDED_BY(mutex) = 0;
};

}  // namespace

RedisPipeline::Options RedisStoreLink::options() {
  RedisPipeline::Options options;
  options.reply_timeout_ms = kTimeoutMs;
  options.reconnects = false;
  return options;
}

RedisStoreLink::RedisStoreLink(const RedisUrl& url) : pipeline_(url, options()) {}

std::vector<RedisStoreLink::Reply> RedisStoreLink::ask(const std::vector<std::string>& commands) {
  std::vector<Reply> replies(commands.size());
  Awaited awaited;
  {
    MutexLock lock(awaited.mutex);
    awaited.left = commands.size();
  }
  for (size_t i = 0; i < commands.size(); i++) {
    Reply& reply = replies[i];
    reply.sent_us = mono_us();
    const auto callback = [&reply, &awaited](RedisPipeline::Outcome&& outcome) {
      reply.received_us = mono_us();
      if (outcome.state == WFT_STATE_SUCCESS) {
        reply.value = std::move(outcome.value);
      } else {
        set_failure(outcome, &reply);
      }
      MutexLock lock(awaited.mutex);
      awaited.left--;
      awaited.changed.notify_all();
    };
    if (const int error = pipeline_.post(commands[i], callback)) {
      reply.error = error == ECANCELED ? ENOTCONN : error;
      reply.sent = false;
      set_reason(&reply, [&reply] { return std::string(std::strerror(reply.error)); });
      MutexLock lock(awaited.mutex);
      awaited.left--;
    }
  }
  BlockingScope blocking;
  MutexLock lock(awaited.mutex);
  while (awaited.left > 0) {
    awaited.changed.wait(awaited.mutex);
  }
  return replies;
}

RedisStoreLink::Reply RedisStoreLink::ask(const std::string& command) {
  return std::move(ask(std::vector<std::string>{command})[0]);
}

}  // namespace workflow
