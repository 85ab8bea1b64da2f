#include "workflow/WFRedisSubscriber.h"

#include <cassert>
#include <cerrno>
#include <utility>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "store/RedisSubscription.h"
#include "store/RedisUrl.h"

using protocol::RedisValue;

WFRedisSubscribeTask::WFRedisSubscribeTask(const workflow::ClientTarget& target,
                                           const std::string& command,
                                           const std::vector<std::string>& names, extract_t extract,
                                           callback_t callback)
    : WFClientTask(target, 0, nullptr),
      subscription_(std::make_unique<workflow::RedisSubscription>(this)),
      extract_(std::move(extract)) {
  req_.set_request(command, names);
  set_callback(std::move(callback));
}

WFRedisSubscribeTask::~WFRedisSubscribeTask() = default;

void WFRedisSubscribeTask::set_callback(callback_t callback) {
  if (!callback) {
    callback_ = nullptr;
    return;
  }
  callback_ = [callback = std::move(callback)](Task* task) {
    callback(static_cast<WFRedisSubscribeTask*>(task));
  };
}

int WFRedisSubscribeTask::send(const std::string& command, const std::vector<std::string>& params) {
  const int failure = subscription_->send(command, params);
  if (failure != 0) {
    errno = failure;
    return -1;
  }
  return 0;
}

int WFRedisSubscribeTask::subscribe(const std::vector<std::string>& channels) {
  return send("SUBSCRIBE", channels);
}

int WFRedisSubscribeTask::unsubscribe(const std::vector<std::string>& channels) {
  return send("UNSUBSCRIBE", channels);
}

int WFRedisSubscribeTask::unsubscribe() {
  return send("UNSUBSCRIBE", {});
}

int WFRedisSubscribeTask::psubscribe(const std::vector<std::string>& patterns) {
  return send("PSUBSCRIBE", patterns);
}

int WFRedisSubscribeTask::punsubscribe(const std::vector<std::string>& patterns) {
  return send("PUNSUBSCRIBE", patterns);
}

int WFRedisSubscribeTask::punsubscribe() {
  return send("PUNSUBSCRIBE", {});
}

int WFRedisSubscribeTask::ping(const std::string& message) {
  return send("PING", {message});
}

int WFRedisSubscribeTask::ping() {
  return send("PING", {});
}

int WFRedisSubscribeTask::quit() {
  return send("QUIT", {});
}

protocol::ProtocolMessage* WFRedisSubscribeTask::next_response() {
  WFClientTask::next_response();
  subscription_->set_size_limit(resp_.get_size_limit());
  return subscription_.get();
}

workflow::ClientTimes WFRedisSubscribeTask::times() const {
  workflow::ClientTimes times = WFClientTask::times();
  times.first_byte = -2;
  times.after_renew = watch_timeout_ >= -1 ? watch_timeout_ : -1;
  times.receive_from_first_byte = true;
  times.keep_alive = 0;
  return times;
}

workflow::Runnable* WFRedisSubscribeTask::delivery() {
  delivering_ = subscription_->has_arrived();
  return delivering_ ? this : nullptr;
}

void WFRedisSubscribeTask::take_more_to_send(std::string* bytes) {
  subscription_->take_unsent(bytes);
}

workflow::Runnable* WFRedisSubscribeTask::ended(int end_state, int end_error, int timeout_reason) {
  subscription_->over();
  return WFClientTask::ended(end_state, end_error, timeout_reason);
}

void WFRedisSubscribeTask::deliver() {
  const workflow::Runtime& runtime = workflow::Runtime::current();
  RedisValue reply;
  while (!runtime.stopping() && subscription_->next(&reply)) {
    resp_.set_result(std::move(reply));
    if (next_extract_) {
      extract_ = std::move(*next_extract_);
      next_extract_.reset();
    }
    if (extract_) {
      extract_(this);
    }
  }
}

// Called to make a delivery, or at the end of the exchange.
SubTask* WFRedisSubscribeTask::done() {
  if (delivering_) {
    delivering_ = false;
    workflow::ThreadContext::current().deliveries++;
    deliver();
    workflow::ThreadContext::current().deliveries--;
    goes_on_elsewhere();
    resume();
    return nullptr;
  }
  subscription_->over();  // for a task that ends without an exchange
  if (state == WFT_STATE_SUCCESS || state == WFT_STATE_SYS_ERROR || state == WFT_STATE_SSL_ERROR) {
    deliver();
    if (subscription_->has_arrived()) {
      state = WFT_STATE_ABORTED;
      error = 0;
    }
  }
  if (callback_) {
    callback_(this);
    callback_ = nullptr;  // others may wait for what it captured to be released
  }
  extract_ = nullptr;
  next_extract_.reset();
  const Place after = place();
  let_go();
  return after.next();
}

void WFRedisSubscribeTask::drop_unstarted() {
  subscription_->over();
  let_go();
}

void WFRedisSubscribeTask::dismiss() {
  assert(!get_pointer());
  delete this;
}

void WFRedisSubscribeTask::release() {
  let_go();
}

void WFRedisSubscribeTask::let_go() {
  if (one_has_let_go_.exchange(true, std::memory_order_acq_rel)) {
    delete this;
  }
}

int WFRedisSubscriber::init(const std::string& url) {
  return init(url, nullptr);
}

int WFRedisSubscriber::init(const std::string& url, SSL_CTX* ssl_ctx) {
  workflow::RedisUrl parsed;
  if (workflow::RedisUrl::parse(url, &parsed) != 0 || !parsed.sentinels.empty()) {
    errno = EINVAL;
    return -1;
  }
  target_ = parsed.target();
  target_->ssl_ctx = ssl_ctx;
  return 0;
}

WFRedisSubscribeTask* WFRedisSubscriber::create(const char* command,
                                                const std::vector<std::string>& names,
                                                WFRedisSubscribeTask::extract_t&& extract,
                                                WFRedisSubscribeTask::callback_t&& callback) const {
  workflow::ClientTarget target;
  target.error = EINVAL;
  if (target_) {
    target = *target_;
  }
  return new WFRedisSubscribeTask(target, command, names, std::move(extract), std::move(callback));
}

WFRedisSubscribeTask* WFRedisSubscriber::create_subscribe_task(
    const std::vector<std::string>& channels, WFRedisSubscribeTask::extract_t extract,
    WFRedisSubscribeTask::callback_t callback) const {
  return create("SUBSCRIBE", channels, std::move(extract), std::move(callback));
}

WFRedisSubscribeTask* WFRedisSubscriber::create_psubscribe_task(
    const std::vector<std::string>& patterns, WFRedisSubscribeTask::extract_t extract,
    WFRedisSubscribeTask::callback_t callback) const {
  return create("PSUBSCRIBE", patterns, std::move(extract), std::move(callback));
}
