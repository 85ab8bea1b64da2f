#include "store/RedisClientTask.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <new>
#include <string_view>
#include <utility>

#include "kernel/Runtime.h"
#include "store/RedisCommands.h"
#include "store/RedisMasters.h"
#include "store/RedisRedirection.h"
#include "store/RedisWire.h"

using protocol::ProtocolMessage;
using protocol::RedisRequest;
using protocol::RedisResponse;
using protocol::RedisValue;

bool WFClientProtocol<RedisRequest, RedisResponse>::is_repeatable(const RedisRequest* request) {
  return workflow::only_reads(request->command());
}

namespace workflow {

namespace {

// The largest answer to what the task itself asks.
constexpr size_t kMaxAnswer = size_t{64} * 1024;

// A request behind ASKING (Redis Cluster): the two are sent at once.
class AskingRequest final : public ProtocolMessage {
 public:
  explicit AskingRequest(ProtocolMessage* request) : request_(request) {
    append_command(&asking_, {"ASKING"});
  }

  int encode(struct iovec vectors[], int max) override {
    if (max < 2) {
      errno = EINVAL;
      return -1;
    }
    vectors[0] = {asking_.data(), asking_.size()};
    const int count = request_->encode(vectors + 1, max - 1);
    return count < 0 ? -1 : count + 1;
  }

 private:
  ProtocolMessage* const request_;
  std::string asking_;
};

// The reply to ASKING, which is dropped, and the response behind it.
class AskingResponse final : public protocol::ProtocolWrapper {
 public:
  explicit AskingResponse(ProtocolMessage* response) : ProtocolWrapper(response) {
    answer_.set_size_limit(kMaxAnswer);
  }

  int append(const void* buffer, size_t* size) override {
    size_t used = 0;
    if (!asked_) {
      used = *size;
      const int result = answer_.append(buffer, &used);
      if (result <= 0) return result;
      asked_ = true;
      if (used == *size) return 0;
    }
    size_t rest = *size - used;
    const int result =
        append_to(message, static_cast<const char*>(buffer) + used, &rest, size_limit);
    *size = used + rest;
    return result;
  }
  using ProtocolMessage::append;

 private:
  RedisResponse answer_;
  bool asked_ = false;
};

bool starts_with(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

}  // namespace

RedisClientTask::RedisClientTask(RedisUrl url, int url_error, int retry_max, Callback callback)
    // A task that has Sentinels decides by itself which server is tried next.
    : WFClientTask(ClientTarget(), url.sentinels.empty() ? retry_max : 0, std::move(callback)),
      url_(std::move(url)),
      pauses_left_(std::max(retry_max, 0)) {
  target_error_ = url_error;
  if (url_error == 0 && url_.sentinels.empty()) {
    target_ = url_.target();
    target_error_ = target_.error;
  }
}

int RedisClientTask::check_command() const {
  if (req_.command().empty()) return EINVAL;
  return changes_connection(req_.command(), req_.params()) ? int{WFT_ERR_REDIS_COMMAND_DISALLOWED}
                                                           : 0;
}

void RedisClientTask::dispatch() {
  if (!began_ && target_error_ == 0) {
    target_error_ = check_command();
    if (target_error_ == 0 && !url_.sentinels.empty()) {
      target_error_ = find_master();
    }
  }
  began_ = true;
  WFClientTask::dispatch();
}

int RedisClientTask::find_master() {
  try {
    RedisUrl::Server master;
    master_is_remembered_ = RedisMasters::process().find(url_, &master);
    if (master_is_remembered_) {
      target_ = url_.target_of(master);
    } else {
      ask_next_sentinel();
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

ProtocolMessage* RedisClientTask::next_request() {
  if (question_) return &question_->request;
  ProtocolMessage* const request = WFClientTask::next_request();
  // The user's set_prepare() may have changed the command.
  const int refusal = check_command();
  is_refused_ = refusal != 0 || request == nullptr;
  if (refusal != 0) {
    errno = refusal;
    return nullptr;
  }
  if (!asking_response_) return request;
  asking_request_ = std::make_unique<AskingRequest>(request);
  return asking_request_.get();
}

ProtocolMessage* RedisClientTask::next_response() {
  if (question_) return &question_->response;
  ProtocolMessage* const response = WFClientTask::next_response();
  if (!asking_response_) return response;
  asking_response_ = std::make_unique<AskingResponse>(response);
  return asking_response_.get();
}

ClientTimes RedisClientTask::times() const {
  ClientTimes times = WFClientTask::times();
  if (question_) {
    // A command may be allowed to take for ever. For a Sentinel the usual limits hold.
    const int keep_alive = times.keep_alive;
    times = ClientTimes();
    times.keep_alive = keep_alive;
  }
  return times;
}

bool RedisClientTask::is_repeatable() {
  return question_ != nullptr || WFClientTask::is_repeatable();
}

Runnable* RedisClientTask::ended(int end_state, int end_error, int timeout_reason) {
  // A request that is not sent fails with an errno value; here it may be a code of ours.
  if (end_state == WFT_STATE_SYS_ERROR && end_error >= WFT_ERR_URI_PARSE_FAILED) {
    end_state = WFT_STATE_TASK_ERROR;
  }
  return WFClientTask::ended(end_state, end_error, timeout_reason);
}

SubTask* RedisClientTask::done() {
  if (!goes_on()) return end_task();
  const int pause = std::exchange(pause_ms_, 0);
  if (pause == 0) return this;
  return come_back_after(
      WFTaskFactory::create_timer_task(std::chrono::milliseconds(pause), nullptr));
}

void RedisClientTask::drop_unstarted() {
  if (began_) {
    // It was in its series behind the timer of a pause.
    const bool stopping = Runtime::current().stopping();
    state = stopping ? WFT_STATE_ABORTED : WFT_STATE_SYS_ERROR;
    error = stopping ? 0 : ECANCELED;
    timeout_reason_ = TOR_NOT_TIMEOUT;
    if (callback_) {
      callback_(this);
    }
  }
  delete this;
}

bool RedisClientTask::goes_on() {
  // If it was not sent at all, nothing else will change that.
  if (target_error_ != 0) return false;
  try {
    return question_ ? after_question() : after_command();
  } catch (const std::bad_alloc&) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOMEM;
    return false;
  }
}

// Sets the target to the next Sentinel. Returns false if all were asked.
bool RedisClientTask::ask_next_sentinel() {
  if (sentinels_asked_ == url_.sentinels.size()) return false;
  question_ = std::make_unique<Question>();
  question_->request.set_request("SENTINEL", {"get-master-addr-by-name", url_.master_name});
  question_->response.set_size_limit(kMaxAnswer);
  target_ = url_.sentinel_target(url_.sentinels[sentinels_asked_++]);
  return true;
}

bool RedisClientTask::after_question() {
  if (state == WFT_STATE_ABORTED) return false;
  if (const int reason = cancel_reason()) {
    // The question may have been answered, but the command was not sent.
    state = WFT_STATE_SYS_ERROR;
    error = reason;
    timeout_reason_ = TOR_NOT_TIMEOUT;
    return false;
  }
  const RedisValue* answer = state == WFT_STATE_SUCCESS ? question_->response.result() : nullptr;
  RedisUrl::Server master;
  if (answer && answer->arr_size() == 2) {
    master.host = (*answer)[0].string_value();
    const std::string port = (*answer)[1].string_value();
    std::from_chars(port.data(), port.data() + port.size(), master.port);
  }
  if (!master.host.empty() && master.port != 0) {
    question_.reset();
    RedisMasters::process().set(url_, master);
    target_ = url_.target_of(master);
    return true;
  }
  sentinel_answered_ |= answer != nullptr;
  if (ask_next_sentinel()) return true;
  if (sentinel_answered_) {
    state = WFT_STATE_TASK_ERROR;
    error = WFT_ERR_UPSTREAM_UNAVAILABLE;
  }
  return try_later();
}

bool RedisClientTask::after_command() {
  if (state == WFT_STATE_SUCCESS) {
    const RedisValue* reply = resp_.result();
    return reply && reply->is_error() && after_error_reply(*reply->string_view());
  }
  if (url_.sentinels.empty() || state == WFT_STATE_ABORTED || cancel_reason() != 0) return false;
  // Another server may be the master by now. If the command may have reached this one, it must not
  // be sent to the other one as well, unless it only reads.
  RedisMasters::process().forget(url_);
  const bool is_no_master = state == WFT_STATE_TASK_ERROR && error == WFT_ERR_UPSTREAM_UNAVAILABLE;
  const bool is_unreachable = state == WFT_STATE_DNS_ERROR || error == ECONNREFUSED ||
                              error == EHOSTUNREACH || error == ENETUNREACH ||
                              get_timeout_reason() == TOR_CONNECT_TIMEOUT;
  const bool is_broken = is_unreachable || error == ECONNRESET || error == EPIPE;
  const bool is_failure = state == WFT_STATE_SYS_ERROR || state == WFT_STATE_DNS_ERROR;
  const bool unsent =
      !may_have_been_sent() && !is_refused_ && get_timeout_reason() != TOR_WAIT_TIMEOUT;
  const bool reads = only_reads(req_.command()) && is_broken;
  const bool is_safe = is_no_master || (is_failure && (unsent || reads));
  return is_safe && ask_sentinels_again();
}

bool RedisClientTask::ask_sentinels_again() {
  RedisMasters::process().forget(url_);
  sentinels_asked_ = 0;
  sentinel_answered_ = false;
  if (std::exchange(master_is_remembered_, false)) {
    drop_response();  // it was not known to be the master, so this is no further try
  } else if (!try_later()) {
    return false;
  }
  return ask_next_sentinel();
}

bool RedisClientTask::after_error_reply(const std::string& text) {
  if (const auto redirection = RedisRedirection::parse(text, target_.host)) {
    return follow(*redirection);
  }
  // The server has not executed the command.
  if (starts_with(text, "TRYAGAIN") || starts_with(text, "CLUSTERDOWN")) return try_later();
  return starts_with(text, "READONLY") && !url_.sentinels.empty() && ask_sentinels_again();
}

bool RedisClientTask::follow(const RedisRedirection& redirection) {
  if (hops_left_ == 0) return false;
  hops_left_--;
  target_ = url_.target_of(redirection.server);
  drop_response();
  asking_response_.reset();
  if (redirection.asks) {
    asking_response_ = std::make_unique<AskingResponse>(&resp_);
  }
  return true;
}

bool RedisClientTask::try_later() {
  if (pauses_left_ == 0) return false;
  pauses_left_--;
  if (question_) {
    // None of the Sentinels knew; each is asked again.
    sentinels_asked_ = 0;
    sentinel_answered_ = false;
    ask_next_sentinel();
  }
  pause_ms_ = next_pause_ms_;
  next_pause_ms_ = std::min(2 * next_pause_ms_, kMaxPauseMs);
  drop_response();
  return true;
}

void RedisClientTask::drop_response() {
  RedisResponse fresh;
  fresh.set_size_limit(resp_.get_size_limit());
  resp_ = std::move(fresh);
}

}  // namespace workflow

WFRedisTask* WFTaskFactory::create_redis_task(const std::string& url, int retry_max,
                                              redis_callback_t callback) {
  workflow::RedisUrl parsed;
  const int error = workflow::RedisUrl::parse(url, &parsed);
  return new workflow::RedisClientTask(std::move(parsed), error, retry_max, std::move(callback));
}

WFRedisTask* WFTaskFactory::create_redis_task(const ParsedURI& uri, int retry_max,
                                              redis_callback_t callback) {
  workflow::RedisUrl parsed;
  const int error = workflow::RedisUrl::parse(uri, &parsed);
  return new workflow::RedisClientTask(std::move(parsed), error, retry_max, std::move(callback));
}
