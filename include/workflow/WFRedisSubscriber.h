#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workflow/RedisMessage.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/detail/RedisProtocol.h"

// Receives what others publish on channels of Redis. Part of the library workflow::store.

namespace workflow {
class RedisSubscription;
}

// A subscription: a connection of its own, on which messages arrive until it ends.
//
// `extract` is called once for each reply of the server, in order, and get_resp()->get_result() is
// that reply: an array such as ["message", channel, text], ["pmessage", pattern, channel, text],
// ["subscribe", channel, number of channels] or ["pong", text], or an error. At the end the
// callback is called once. The states are those of WFClientTask:
//   SUCCESS     the server has confirmed quit()
//   SYS_ERROR   ECONNRESET: the server has gone. ETIMEDOUT: a time limit has passed
// What arrived completely before a failure is passed to `extract` before the callback. When the
// library stops, the task ends ABORTED, and what was not passed on is dropped.
//
// Threads: `extract` and the callback run on threads of the library, one at a time. While `extract`
// runs nothing more is read and the time limits are suspended. The calls that send something
// (subscribe() to quit()) may come from any thread and at any time between the creation of the task
// and release(), also before the start: then they are sent after the first command.
//
// Ownership: the task is freed when it has ended, or was dropped by its series, and release() was
// called: exactly once, on any thread, at any time. Only a task that is freed by its own dismiss()
// must not be released.
//
// Time limits: set_watch_timeout() limits the wait for each reply but the first, in ms. By default
// it is unlimited, because a channel may be silent for long. To notice a server that has died
// silently, set it, and call ping() at shorter intervals. The endpoint's response_timeout limits
// the wait for the first reply, and the pauses inside a reply.
class WFRedisSubscribeTask final
    : public WFClientTask<protocol::RedisRequest, protocol::RedisResponse> {
 public:
  using extract_t = std::function<void(WFRedisSubscribeTask *)>;
  using callback_t = std::function<void(WFRedisSubscribeTask *)>;

  // Return 0, or -1 with errno: ENOTCONN if the task has ended. The replies by which the server
  // confirms these calls are passed to `extract`. unsubscribe() and punsubscribe() without names
  // end all subscriptions of their kind; the task goes on until quit().
  int subscribe(const std::vector<std::string> &channels);
  int unsubscribe(const std::vector<std::string> &channels);
  int unsubscribe();
  int psubscribe(const std::vector<std::string> &patterns);
  int punsubscribe(const std::vector<std::string> &patterns);
  int punsubscribe();
  int ping(const std::string &message);
  int ping();
  // Ends the subscription: the server answers and closes.
  int quit();

  // May be called before the start or inside `extract`. A new `extract` is used from the next call
  // on.
  void set_extract(extract_t extract) { next_extract_ = std::move(extract); }
  void set_callback(callback_t callback);

  // The last use of the task by the user. See above.
  void release();

  // Frees a task that was not started.
  void dismiss();

  // See WFRedisSubscriber.
  WFRedisSubscribeTask(const workflow::ClientTarget &target, const std::string &command,
                       const std::vector<std::string> &names, extract_t extract,
                       callback_t callback);

 protected:
  SubTask *done() override;
  void drop_unstarted() override;
  protocol::ProtocolMessage *next_response() override;
  workflow::ClientTimes times() const override;
  bool leaves_connection_usable() override { return false; }
  bool is_repeatable() override { return true; }
  workflow::Runnable *delivery() override;
  void take_more_to_send(std::string *bytes) override;
  workflow::Runnable *ended(int end_state, int end_error, int timeout_reason) override;

 private:
  friend class workflow::RedisSubscription;

  ~WFRedisSubscribeTask() override;

  int send(const std::string &command, const std::vector<std::string> &params);
  // Calls extract for what has arrived.
  void deliver();
  // One of the two users of the task, the series and the holder of the pointer, has finished with
  // it. The second to do so frees it.
  void let_go();

  const std::unique_ptr<workflow::RedisSubscription> subscription_;
  std::optional<extract_t> next_extract_;  // replaces extract_ before the next call
  extract_t extract_;
  bool delivering_ = false;
  std::atomic<bool> one_has_let_go_{false};  // acq_rel: the second user sees what the first did
};

// Creates subscriptions to one server. Tasks do not need the subscriber once they are created. Not
// thread-safe while init() or deinit() runs.
class WFRedisSubscriber {
 public:
  // Takes a URL as create_redis_task() does, except for those of Sentinels. Returns 0, or -1 with
  // errno EINVAL. `ssl_ctx`: for rediss, used instead of the one of the process; the caller keeps
  // it while tasks run.
  int init(const std::string &url);
  int init(const std::string &url, SSL_CTX *ssl_ctx);
  void deinit() { target_.reset(); }

  // Create a task that subscribes to channels, or to patterns of channels. Both functions may be
  // null. Without a successful init() the task ends with SYS_ERROR/EINVAL.
  WFRedisSubscribeTask *create_subscribe_task(const std::vector<std::string> &channels,
                                              WFRedisSubscribeTask::extract_t extract,
                                              WFRedisSubscribeTask::callback_t callback) const;
  WFRedisSubscribeTask *create_psubscribe_task(const std::vector<std::string> &patterns,
                                               WFRedisSubscribeTask::extract_t extract,
                                               WFRedisSubscribeTask::callback_t callback) const;

 private:
  WFRedisSubscribeTask *create(const char *command, const std::vector<std::string> &names,
                               WFRedisSubscribeTask::extract_t &&extract,
                               WFRedisSubscribeTask::callback_t &&callback) const;

  std::optional<workflow::ClientTarget> target_;
};
