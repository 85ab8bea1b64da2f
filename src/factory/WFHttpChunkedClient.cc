#include "workflow/WFHttpChunkedClient.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "protocol/HttpContent.h"
#include "protocol/HttpPieces.h"
#include "workflow/HttpLimits.h"

namespace {

// No chunk is kept, so even an endless stream of small chunks is allowed.
constexpr struct protocol::HttpLimits kStreamLimits = [] {
  struct protocol::HttpLimits limits;
  limits.body_bytes = UINT64_MAX;
  limits.chunk_overhead_bytes = SIZE_MAX;
  return limits;
}();

protocol::HttpPieces* pieces_of(const protocol::HttpResponse& response) {
  return response.content() ? response.content()->receiver.pieces() : nullptr;
}

}  // namespace

WFHttpChunkedTask::WFHttpChunkedTask(const ParsedURI& uri, int redirect_max, extract_t extract,
                                     callback_t callback)
    : HttpClientTask(uri, nullptr, redirect_max, 0, nullptr), extract_(std::move(extract)) {
  set_callback(std::move(callback));
}

void WFHttpChunkedTask::set_callback(callback_t callback) {
  if (!callback) {
    callback_ = nullptr;
    return;
  }
  callback_ = [callback = std::move(callback)](Task* task) {
    callback(static_cast<WFHttpChunkedTask*>(task));
  };
}

protocol::ProtocolMessage* WFHttpChunkedTask::next_request() {
  protocol::ProtocolMessage* const request = HttpClientTask::next_request();
  resp_.set_limits(&kStreamLimits);
  resp_.stream_body();
  return request;
}

workflow::ClientTimes WFHttpChunkedTask::times() const {
  workflow::ClientTimes times = HttpClientTask::times();
  times.whole = total_timeout_;
  if (read_timeout_ >= -1) times.between_reads = times.after_renew = read_timeout_;
  if (watch_timeout_ >= -1) {
    times.after_renew = watch_timeout_;
    times.receive_from_first_byte = true;
  } else if (receive_timeout_ >= -1) {
    times.first_byte = times.after_renew = -1;
  }
  return times;
}

// Does not read the body of a redirect, because it might never end.
bool WFHttpChunkedTask::wants_more() {
  return !stopped_ && !(resp_.is_header_complete() && is_followed());
}

workflow::Runnable* WFHttpChunkedTask::delivery() {
  const protocol::HttpPieces* pieces = pieces_of(resp_);
  const bool tells_header = extract_on_header_ && !header_reported_ && resp_.is_header_complete();
  delivering_ = tells_header || (pieces && !pieces->empty());
  return delivering_ ? this : nullptr;
}

void WFHttpChunkedTask::call_extract() {
  if (next_extract_) {
    extract_ = std::move(*next_extract_);
    next_extract_.reset();
  }
  if (extract_) extract_(this);
}

void WFHttpChunkedTask::deliver() {
  const workflow::Runtime& runtime = workflow::Runtime::current();
  if (extract_on_header_ && !header_reported_ && !runtime.stopping()) {
    header_reported_ = true;
    call_extract();
  }
  protocol::HttpPieces* const pieces = pieces_of(resp_);
  const char* data = nullptr;
  size_t size = 0;
  while (pieces && !stopped_ && !runtime.stopping() && pieces->take(&data, &size)) {
    chunk_.refer_to(data, size);
    call_extract();
    chunk_.refer_to(nullptr, 0);
  }
}

bool WFHttpChunkedTask::goes_on() {
  return !stopped_ && HttpClientTask::goes_on();
}

bool WFHttpChunkedTask::has_pieces() const {
  const protocol::HttpPieces* const pieces = pieces_of(resp_);
  return pieces && !pieces->empty();
}

// With a reader this is called again after each piece.
void WFHttpChunkedTask::dispatch() {
  if (!reader_) {
    HttpClientTask::dispatch();
    return;
  }
  if (!std::exchange(has_begun_, true)) {
    if (allow_cancel()) {  // it may come back in a scope
      HttpClientTask::dispatch();
    } else {
      state = WFT_STATE_SYS_ERROR;
      error = ENOMEM;
      is_over_ = true;
      subtask_done();
    }
    return;
  }
  if (is_over_ || (has_pieces() && !stopped_)) {
    delivering_ = !is_over_;
    subtask_done();
    return;
  }
  if (protocol::HttpPieces* const pieces = pieces_of(resp_)) {
    pieces->drop();  // frees the memory of those that were passed on
  }
  if (const int reason = enter_scope()) {
    cancel(reason);
  }
  resume();
}

// With a reader the exchange may have begun: then it has to end before the task is deleted.
void WFHttpChunkedTask::drop_unstarted() {
  if (reader_) {
    reader_->dropped();
  }
  if (!has_begun_) {
    delete this;
    return;
  }
  callback_ = nullptr;
  set_pointer(nullptr);
  stop();
  start();
}

// The task keeps the response. It waits for nothing now, so it leaves its scope, too: the series
// waits for other things meanwhile.
SubTask* WFHttpChunkedTask::pass_piece() {
  if (!leave_scope()) {
    return nullptr;  // the canceller posts this, and done() is called again
  }
  delivering_ = false;
  const char* data = nullptr;
  size_t size = 0;
  const bool has_one = pieces_of(resp_)->take(&data, &size);
  const Place after = leave_place();
  if (has_one) {
    reader_->piece(data, size);
  }
  return after.next();
}

// Called to make a delivery, or at the end of the exchange.
SubTask* WFHttpChunkedTask::done() {
  if (delivering_ && reader_ && has_pieces()) return pass_piece();
  if (delivering_) {
    delivering_ = false;
    workflow::ThreadContext::current().deliveries++;
    deliver();
    workflow::ThreadContext::current().deliveries--;
    goes_on_elsewhere();
    resume();
    return nullptr;
  }
  if (!is_over_ && goes_on()) {
    has_begun_ = false;  // dispatch() begins another exchange
    return this;
  }
  const bool has_response =
      state == WFT_STATE_SUCCESS || state == WFT_STATE_SYS_ERROR || state == WFT_STATE_SSL_ERROR;
  if (has_response && resp_.is_header_complete() && !stopped_) {
    if (reader_ && has_pieces() && !workflow::Runtime::current().stopping()) {
      is_over_ = true;
      return pass_piece();
    }
    deliver();
  }
  const protocol::HttpPieces* pieces = pieces_of(resp_);
  if (stopped_ && state == WFT_STATE_SUCCESS) {
    state = WFT_STATE_SYS_ERROR;
    error = ECANCELED;
  } else if (has_response && !stopped_ && pieces && !pieces->empty()) {
    state = WFT_STATE_ABORTED;
    error = 0;
  }
  return end_task();
}

WFHttpChunkedTask* WFHttpChunkedClient::create_chunked_task(
    const std::string& url, int redirect_max, WFHttpChunkedTask::extract_t extract,
    WFHttpChunkedTask::callback_t callback) {
  ParsedURI uri;
  URIParser::parse(url, uri);
  return create_chunked_task(uri, redirect_max, std::move(extract), std::move(callback));
}

WFHttpChunkedTask* WFHttpChunkedClient::create_chunked_task(
    const ParsedURI& uri, int redirect_max, WFHttpChunkedTask::extract_t extract,
    WFHttpChunkedTask::callback_t callback) {
  return new WFHttpChunkedTask(uri, redirect_max, std::move(extract), std::move(callback));
}
