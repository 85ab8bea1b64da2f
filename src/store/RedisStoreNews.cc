#include "store/RedisStoreNews.h"

#include <new>
#include <utility>

#include "kernel/BlockingScope.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/WFRedisSubscriber.h"

namespace workflow {

namespace {

constexpr int64_t kTryPauseNs = 1'000'000'000;
// A connection that is silent for so long is made again: its server may have vanished.
constexpr int kSilenceMs = 60'000;

}  // namespace

// Shared with the subscription, which may end later.
struct RedisStoreNews::State {
  State(std::string its_sender, std::function<void()> its_changed)
      : sender(std::move(its_sender)), changed(std::move(its_changed)) {}

  // Something may have been published while nobody listened, so the beginning counts as news.
  bool is_news(const protocol::RedisValue& reply) const {
    if (reply.arr_size() != 3) return false;
    const std::string what = reply[0].string_value();
    return what == "subscribe" || (what == "message" && reply[2].string_value() != sender);
  }

  void received(protocol::RedisResponse& response) {
    try {
      protocol::RedisValue reply;
      if (!response.get_result(reply) || !is_news(reply)) return;
    } catch (const std::bad_alloc&) {
      // It may be news.
    }
    {
      MutexLock lock(mutex);
      if (closed) return;
      calls++;
    }
    if (changed) {
      changed();
    }
    MutexLock lock(mutex);
    calls--;
    called.notify_all();
  }

  // Ends the subscription, if there is one.
  void drop() WF_REQUIRES(mutex) {
    if (WFRedisSubscribeTask* const old = std::exchange(task, nullptr)) {
      try {
        old->quit();
      } catch (const std::bad_alloc&) {
        // It ends with the connection, or after a silence, and nobody is called.
      }
      old->release();
    }
  }

  const std::string sender;
  const std::function<void()> changed;

  Mutex mutex;
  CondVar called;
  int calls WF_GUARDED_BY(mutex) = 0;  // of `changed` that are in progress
  bool closed WF_GUARDED_BY(mutex) = false;
  // Null if there is none. The thread that sets it to null releases it, under the mutex.
  WFRedisSubscribeTask* task WF_GUARDED_BY(mutex) = nullptr;
};

RedisStoreNews::RedisStoreNews(std::string channel, std::string sender,
                               std::function<void()> changed)
    : channel_(std::move(channel)),
      state_(std::make_shared<State>(std::move(sender), std::move(changed))) {}

RedisStoreNews::~RedisStoreNews() {
  close();
}

void RedisStoreNews::keep(const RedisUrl& server) {
  {
    MutexLock lock(state_->mutex);
    const bool is_there = state_->task != nullptr && server_ == server.server;
    if (is_there || state_->closed || system_clock().now_ns() < next_try_ns_) return;
    state_->drop();
  }
  next_try_ns_ = system_clock().now_ns() + kTryPauseNs;
  server_ = server.server;
  const auto extract = [state = state_](WFRedisSubscribeTask* task) {
    state->received(*task->get_resp());
  };
  const auto ended = [state = state_](WFRedisSubscribeTask* task) {
    MutexLock lock(state->mutex);
    if (state->task == task) {
      state->task = nullptr;
      task->release();
    }
  };
  WFRedisSubscribeTask* const task =
      new WFRedisSubscribeTask(server.target(), "SUBSCRIBE", {channel_}, extract, ended);
  task->set_watch_timeout(kSilenceMs);
  {
    MutexLock lock(state_->mutex);
    state_->task = task;
  }
  task->start();
}

void RedisStoreNews::close() {
  BlockingScope blocking;
  MutexLock lock(state_->mutex);
  state_->closed = true;
  state_->drop();
  while (state_->calls > 0) {
    state_->called.wait(state_->mutex);
  }
}

}  // namespace workflow
