#include "store/RedisPipeline.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "kernel/BlockingScope.h"
#include "kernel/Runtime.h"
#include "store/RedisParser.h"
#include "util/Clock.h"
#include "util/Time.h"
#include "workflow/WFTaskError.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

using protocol::RedisValue;

namespace {

// What ends a connection because of the first reply of its server; 0: the server serves it. Then
// each command gets an answer of its own, also where that to PING is an error: the user may lack
// the right to PING, or the server is busy, is loading its data or cannot save them.
int refusal_by(const RedisValue& first) {
  if (!first.is_error()) return 0;
  const std::string& text = *first.string_view();
  if (text.starts_with("NOAUTH") || text.starts_with("DENIED")) return WFT_ERR_REDIS_ACCESS_DENIED;
  // The server closes the connection.
  return text.starts_with("ERR max number of clients") ? ECONNREFUSED : 0;
}

}  // namespace

class RedisPipeline::Link final : public ClientExchange,
                                  public Runnable,
                                  private protocol::ProtocolMessage {
 public:
  Link(RedisPipeline& pipeline, const RedisUrl& url, size_t reply_size_limit)
      : pipeline_(pipeline), target_(url.target()) {
    set_size_limit(reply_size_limit);
    // Connections with other parameters are not shared: no task finds this one, and its place does
    // not count among theirs.
    target_.params.max_connections = SIZE_MAX;
    target_.outlasts_stop = true;
    ping_.set_request("PING", {});
    if (!allow_cancel()) {
      throw std::bad_alloc();
    }
  }
  ~Link() override = default;

  void start() {
    if (target_.error != 0) {
      state_ = WFT_STATE_SYS_ERROR;
      error_ = target_.error;
      Runtime::current().handlers().post(this);
      return;
    }
    begin(target_, 0);
  }
  void cancel_for(int reason) {
    reason_.store(reason, std::memory_order_release);
    cancel(reason);
  }
  void ask() { ask_to_send(); }

 private:
  protocol::ProtocolMessage* next_request() override { return &ping_; }
  protocol::ProtocolMessage* next_response() override {
    parser_.emplace();
    replies_.clear();
    greeted_ = false;
    return this;
  }
  // The first reply is limited as that of a task, and the others by end_if_silent().
  ClientTimes times() const override { return {.between_reads = -1, .after_renew = -1}; }
  bool leaves_connection_usable() override { return false; }
  void take_more_to_send(std::string* bytes) override { pipeline_.take_chunk(bytes); }
  int end_reason() const override { return reason_.load(std::memory_order_acquire); }

  Runnable* ended(int state, int error, int) override {
    // What the parser answers as an errno value may be a code of ours.
    state_ = state == WFT_STATE_SYS_ERROR && error >= WFT_ERR_URI_PARSE_FAILED
                 ? int{WFT_STATE_TASK_ERROR}
                 : state;
    error_ = error;
    pipeline_.ended();
    return this;
  }
  void run_queued() override { pipeline_.lost(state_, error_); }

  int append(const void* buffer, size_t* size) override {
    int failure = parser_->feed(buffer, *size);
    while (failure == 0) {
      RedisValue reply;
      const RedisParser::Result result = parser_->next(size_limit, &reply);
      if (result == RedisParser::Result::kRefused) {
        failure = parser_->error();
      } else if (result == RedisParser::Result::kMore) {
        break;
      } else if (greeted_) {
        replies_.push_back(std::move(reply));
      } else {
        failure = refusal_by(reply);
        greeted_ = failure == 0;
        if (greeted_) {
          pipeline_.connected();
        }
      }
    }
    // What came whole before a failure counts.
    if (!pipeline_.bytes_came(replies_)) {
      failure = EBADMSG;
    }
    replies_.clear();
    if (failure != 0) {
      errno = failure;
      return -1;
    }
    renew();
    return 0;
  }

  RedisPipeline& pipeline_;
  ClientTarget target_;
  protocol::RedisRequest ping_;
  // Publishes nothing but itself, so acquire and release are to spare. The lock of SessionLocation
  // orders it: a canceller stores it before it takes that lock to find the session, and a session
  // reads it under that lock before it arrives anywhere.
  std::atomic<int> reason_{0};
  // Used by the thread that has the exchange.
  std::optional<RedisParser> parser_;
  std::deque<RedisValue> replies_;
  bool greeted_ = false;
  int state_ = 0;
  int error_ = 0;
};

RedisPipeline::RedisPipeline(const RedisUrl& url, const Options& options)
    : options_(options), link_(std::make_unique<Link>(*this, url, options.reply_size_limit)) {
  link_->start();
}

RedisPipeline::~RedisPipeline() {
  close();
}

int64_t RedisPipeline::now_ms() {
  return system_clock().now_ns() / kNsPerMs;
}

int RedisPipeline::post(const std::string& command, Callback callback) {
  MutexLock lock(mutex_);
  if (closed_) return ECANCELED;
  const bool is_full =
      unsent_bytes_ > 0 && (command.size() > options_.max_unsent_bytes ||
                            unsent_bytes_ > options_.max_unsent_bytes - command.size());
  if (entries_.size() >= options_.max_commands || is_full) return ENOBUFS;
  try {
    entries_.push_back(std::move(callback));
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  if (!add_to_chunks(command)) {
    entries_.pop_back();
    return ENOMEM;
  }
  if (connected_ && !std::exchange(asked_, true)) {
    link_->ask();
  }
  return 0;
}

bool RedisPipeline::add_to_chunks(const std::string& command) {
  const bool fits = !chunks_.empty() && chunks_.back().bytes.size() + command.size() <= kChunkBytes;
  try {
    if (fits) {
      chunks_.back().bytes.append(command);
    } else {
      chunks_.push_back({command, 0});
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  chunks_.back().commands++;
  unsent_bytes_ += command.size();
  return true;
}

void RedisPipeline::connected() {
  MutexLock lock(mutex_);
  connected_ = true;
  asked_ = !chunks_.empty();
  if (asked_) {
    link_->ask();
  }
}

void RedisPipeline::take_chunk(std::string* bytes) {
  MutexLock lock(mutex_);
  if (chunks_.empty()) {
    asked_ = false;
    return;
  }
  if (sent_ == 0) {
    progress_ms_ = now_ms();
  }
  Chunk& chunk = chunks_.front();
  bytes->swap(chunk.bytes);
  sent_ += chunk.commands;
  unsent_bytes_ -= bytes->size();
  chunks_.pop_front();
}

// Callbacks are taken one by one, because a container of them would need memory.
RedisPipeline::Callback RedisPipeline::take_first() {
  MutexLock lock(mutex_);
  Callback callback = std::move(entries_.front());
  entries_.pop_front();
  sent_ -= sent_ > 0 ? 1 : 0;
  return callback;
}

bool RedisPipeline::bytes_came(std::deque<RedisValue>& replies) {
  {
    MutexLock lock(mutex_);
    if (replies.size() > sent_) return false;
    progress_ms_ = now_ms();
  }
  for (RedisValue& reply : replies) {
    Outcome outcome;
    outcome.value = std::move(reply);
    take_first()(std::move(outcome));
  }
  return true;
}

void RedisPipeline::ended() {
  MutexLock lock(mutex_);
  connected_ = false;
}

void RedisPipeline::lost(int state, int error) {
  size_t sent = 0;
  size_t all = 0;
  {
    MutexLock lock(mutex_);
    const bool is_given_up = closed_ || state == WFT_STATE_ABORTED;
    closed_ = true;
    if (is_given_up) {
      state = WFT_STATE_SYS_ERROR;
      error = ECANCELED;
    } else {
      end_state_ = state;
      end_error_ = error;
    }
    all = entries_.size();
    sent = std::exchange(sent_, 0);
    chunks_.clear();
    unsent_bytes_ = 0;
  }
  for (size_t i = 0; i < all; i++) {
    Outcome outcome;
    outcome.state = state;
    outcome.error = error;
    outcome.sent = i < sent;
    take_first()(std::move(outcome));
  }
  MutexLock lock(mutex_);
  running_ = false;
  changed_.notify_all();
}

RedisPipeline::Outcome RedisPipeline::ending() const {
  MutexLock lock(mutex_);
  const bool failed = end_state_ != WFT_STATE_SUCCESS;
  Outcome outcome;
  outcome.state = failed ? end_state_ : WFT_STATE_SYS_ERROR;
  outcome.error = failed ? end_error_ : ECANCELED;
  outcome.sent = false;
  return outcome;
}

void RedisPipeline::end_if_silent(int64_t limit_ms) {
  bool is_silent = false;
  {
    MutexLock lock(mutex_);
    is_silent = connected_ && sent_ > 0 && now_ms() - progress_ms_ >= limit_ms;
  }
  if (is_silent) {
    cancel_link(ETIMEDOUT);
  }
}

void RedisPipeline::end_if_unconnected() {
  bool is_connected = false;
  {
    MutexLock lock(mutex_);
    is_connected = connected_;
  }
  if (!is_connected) {
    cancel_link(ESHUTDOWN);
  }
}

void RedisPipeline::cancel_link(int reason) {
  {
    MutexLock lock(mutex_);
    while (cancelling_) {
      changed_.wait(mutex_);
    }
    if (!running_) return;
    cancelling_ = true;
  }
  link_->cancel_for(reason);
  MutexLock lock(mutex_);
  cancelling_ = false;
  changed_.notify_all();
}

void RedisPipeline::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  cancel_link(ECANCELED);
  BlockingScope blocking;
  MutexLock lock(mutex_);
  while (running_ || cancelling_) {
    changed_.wait(mutex_);
  }
}

}  // namespace workflow
