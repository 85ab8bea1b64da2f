#include "store/RedisPipeline.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "kernel/BlockingScope.h"
#include "kernel/Runtime.h"
#include "store/RedisParser.h"
#include "util/Time.h"
#include "workflow/WFTaskError.h"
#include "workflow/WFTaskFactory.h"
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
    ping_.set_request("PING", {});
    if (!allow_cancel()) {
      throw std::bad_alloc();
    }
  }
  ~Link() override = default;

  void begin_anew() {
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
  // Between two exchanges, when no canceller is left.
  void forget_reason() { reason_.store(0, std::memory_order_release); }
  void ask() { ask_to_send(); }

 private:
  protocol::ProtocolMessage* next_request() override { return &ping_; }
  protocol::ProtocolMessage* next_response() override {
    parser_.emplace();
    replies_.clear();
    greeted_ = false;
    return this;
  }
  // The first reply is limited as that of a task. Afterwards the pipeline looks at the time.
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
    if (!replies_.empty() && !pipeline_.replies_came(replies_)) {
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
    : options_(options),
      link_(std::make_unique<Link>(*this, url, options.reply_size_limit)),
      pause_ms_(options.first_pause_ms) {
  connect();
}

RedisPipeline::~RedisPipeline() {
  close();
}

bool RedisPipeline::is_connected() const {
  MutexLock lock(mutex_);
  return connected_;
}

int64_t RedisPipeline::now_ms() const {
  return Runtime::current().clock().now_ns() / kNsPerMs;
}

int RedisPipeline::post(const std::string& command, Callback callback) {
  MutexLock lock(mutex_);
  if (closing_) return ECANCELED;
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
  uint64_t timer = 0;
  {
    MutexLock lock(mutex_);
    timer = timer_number_;
    connected_ = true;
    pause_ms_ = options_.first_pause_ms;
    asked_ = !chunks_.empty();
    if (asked_) {
      link_->ask();
    }
  }
  if (!begin_timer(options_.reply_timeout_ms, timer)) {
    throw std::bad_alloc();  // as if there were none for the first reply: the connection ends
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

bool RedisPipeline::replies_came(std::deque<RedisValue>& replies) {
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
  WFTimerHandle timer;
  bool closing = false;
  {
    MutexLock lock(mutex_);
    closing_ = closing_ || state == WFT_STATE_ABORTED;
    closing = closing_;
    if (!closing && !options_.reconnects) {
      closing_ = true;
      end_state_ = state;
      end_error_ = error;
    }
    timer_number_++;
    all = entries_.size();  // more may be posted meanwhile
    sent = std::exchange(sent_, 0);
    chunks_.clear();
    unsent_bytes_ = 0;
    timer = timer_;
  }
  timer.cancel();
  if (closing) {
    state = WFT_STATE_SYS_ERROR;
    error = ECANCELED;
  }
  for (size_t i = 0; i < all; i++) {
    Outcome outcome;
    outcome.state = state;
    outcome.error = error;
    outcome.sent = i < sent;
    take_first()(std::move(outcome));
  }
  int pause = 0;
  uint64_t last_timer = 0;
  {
    MutexLock lock(mutex_);
    // A cancel that comes late must not meet the next connection.
    while (cancelling_) {
      changed_.wait(mutex_);
    }
    link_->forget_reason();
    if (!closing_) {
      pause = std::max(pause_ms_, 1);
      pause_ms_ = std::min(2 * pause_ms_, options_.max_pause_ms);
    }
    last_timer = timer_number_;
    following_++;
    running_ = false;
  }
  if (pause > 0 && !begin_timer(pause, last_timer)) {
    connect();
  }
  end_following();
}

void RedisPipeline::connect() {
  {
    MutexLock lock(mutex_);
    if (closing_ || running_) return;
    running_ = true;
  }
  link_->begin_anew();
}

bool RedisPipeline::begin_timer(int64_t delay_ms, uint64_t after) {
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    // close() would not find the timer, or it would take the place of a later one.
    if (closing_ || timer_number_ != after) return true;
    number = ++timer_number_;
    following_++;
  }
  WFTimerTask* task = nullptr;
  WFTimerHandle handle;
  try {
    task = WFTaskFactory::create_timer_task(
        std::chrono::milliseconds(delay_ms), [this, number](WFTimerTask* timer) {
          time_passed(number, timer->get_state(), timer->get_error());
        });
    handle = WFTimer::handle_of(task);
  } catch (const std::bad_alloc&) {
    // There is no timer.
  }
  if (handle == WFTimerHandle()) {  // close() would not find the timer
    if (task) {
      task->dismiss();
    }
    end_following();
    return false;
  }
  {
    MutexLock lock(mutex_);
    if (!closing_ && timer_number_ == number) {
      timer_ = std::exchange(handle, WFTimerHandle());
    }
  }
  task->start();
  handle.cancel();  // if nobody else would
  return true;
}

void RedisPipeline::end_following() {
  bool drops = false;
  {
    MutexLock lock(mutex_);
    if (closing_ && !running_ && !dropping_) {
      dropping_ = drops = true;
      chunks_.clear();
      unsent_bytes_ = 0;
    }
  }
  while (drops) {
    Callback callback;
    {
      MutexLock lock(mutex_);
      if (entries_.empty()) break;
      callback = std::move(entries_.front());
      entries_.pop_front();
    }
    callback(ending());
  }
  MutexLock lock(mutex_);
  following_--;
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

bool RedisPipeline::is_overdue() const {
  return connected_ && sent_ > 0 && now_ms() - progress_ms_ >= options_.reply_timeout_ms;
}

void RedisPipeline::time_passed(uint64_t timer, int state, int error) {
  bool connects = false;
  bool gives_up = false;
  int64_t next_ms = 0;
  {
    MutexLock lock(mutex_);
    // One that there was no memory for has passed early. Nobody would look at the time any more, so
    // the connection is given up.
    const bool failed = state == WFT_STATE_SYS_ERROR && error != ECANCELED;
    const bool passed =
        (state == WFT_STATE_SUCCESS || failed) && !closing_ && timer == timer_number_;
    connects = passed && !running_;
    gives_up = passed && (failed || is_overdue());
    if (passed && connected_ && !gives_up) {
      const int64_t waited = sent_ > 0 ? now_ms() - progress_ms_ : 0;
      next_ms = std::max<int64_t>(options_.reply_timeout_ms - waited, 1);
    }
    if (state == WFT_STATE_ABORTED) {
      closing_ = true;
    }
  }
  if (connects) {
    connect();
  } else if (gives_up) {
    cancel_link(ETIMEDOUT);
  } else if (next_ms > 0 && !begin_timer(next_ms, timer)) {
    cancel_link(ENOMEM);
  }
  end_following();
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
  WFTimerHandle timer;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    timer = timer_;
  }
  timer.cancel();
  cancel_link(ECANCELED);
  BlockingScope blocking;
  MutexLock lock(mutex_);
  while (running_ || cancelling_ || following_ > 0) {
    changed_.wait(mutex_);
  }
}

}  // namespace workflow
