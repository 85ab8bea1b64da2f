#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/HttpMessageChunk.h"
#include "workflow/URIParser.h"
#include "workflow/WFHttpClientTask.h"
#include "workflow/WFTaskFactory.h"

// A request over HTTP whose response is handed out as it arrives, and never kept: what the task
// holds stays small however much the server sends.
//
// `extract` is called for one piece after the other, get_chunk(), then the callback, once, for the
// end. A chunk of a chunked response (RFC 9112, 7.1) is a piece; one of more than 64 KiB comes in
// several, as it arrives. So does a body that is not chunked. Of a redirect that is followed
// nothing is handed out; trailers are checked and dropped.
//
// Threads: both are called on framework threads, one at a time. While `extract` runs nothing more
// is read, so that a slow one slows the server down, and time limits stand still. It may wait, as a
// callback may. In it the task is the user's as in its callback.
//
// A request is never sent again, except on a new connection when one that was kept turns out to be
// closed. When the library stops the task ends ABORTED, and what was not handed out is not any
// more. Other failures come after everything whole that arrived before them.
//
// Beyond that a WFHttpTask, whose functions it has: start(), dismiss(), user_data, get_req(),
// get_resp() (with a head only), get_state(), get_error(), set_send_timeout(), set_keep_alive(),
// ...
//
// Two of these functions limit each piece here, because a response may go on for ever. The head of
// the response counts as the first piece, and each interim response (1xx) as a piece of its own.
//   set_watch_timeout()    limits the wait for the first byte of each piece.
//   set_receive_timeout()  limits the wait until a piece is whole. With a watch timeout this time
//                          begins with the first byte of the piece. Without one it begins when the
//                          request has been sent, and then when the piece before has been handed
//                          out.
// If neither is set, the wait for the first byte of the response is limited by the endpoint's
// response_timeout, and the wait for each later piece by set_read_timeout(), which is the
// endpoint's response_timeout by default. set_read_timeout() also limits the time between two reads
// within a piece, the head included. Set all time limits before the start. docs/clients.md has a
// table.
class WFHttpChunkedTask final : public workflow::HttpClientTask {
 public:
  using extract_t = std::function<void(WFHttpChunkedTask *)>;
  using callback_t = std::function<void(WFHttpChunkedTask *)>;

  // In `extract`: what has arrived; its bytes stay until extract returns. Without data in the call
  // for the header.
  protocol::HttpMessageChunk *get_chunk() { return &chunk_; }
  const protocol::HttpMessageChunk *get_chunk() const { return &chunk_; }

  // Before the start: `extract` is also called when the header section has arrived, before the
  // first piece.
  void extract_on_header(bool on) { extract_on_header_ = on; }

  // Before the start, or in `extract` for the calls after it.
  void set_extract(extract_t extract) { next_extract_ = std::move(extract); }
  void set_callback(callback_t callback);

  // In `extract`: no more of the response is wanted. The connection is closed, and the task ends
  // SYS_ERROR with ECANCELED, unless it has failed otherwise already.
  void stop() { stopped_ = true; }

  // In ms, -1: unlimited. For the whole response, since the request was sent.
  void set_total_timeout(int timeout) { total_timeout_ = timeout; }
  void set_total_timeout(workflow::Duration timeout) { total_timeout_ = timeout.timeout_ms(); }
  // In ms, -1: unlimited. Limits the time between two reads of the response, instead of the
  // endpoint's response_timeout. If neither a watch nor a receive timeout is set, it also limits
  // the wait for each piece but the first: for those after the head, and for the head after a 1xx.
  // The wait for the first byte of the whole response remains limited by response_timeout.
  void set_read_timeout(int timeout) { read_timeout_ = timeout; }
  void set_read_timeout(workflow::Duration timeout) { read_timeout_ = timeout.timeout_ms(); }

  // An older name.
  void set_recv_timeout(int timeout) { set_receive_timeout(timeout); }

  // Before the start: for https, instead of the process's. The caller keeps it until the callback.
  void set_ssl_ctx(SSL_CTX *ssl_ctx) { target_.ssl_ctx = ssl_ctx; }

  // The task itself.
  const WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse> *get_http_task() const {
    return this;
  }

  // See WFHttpChunkedClient.
  WFHttpChunkedTask(const ParsedURI &uri, int redirect_max, extract_t extract, callback_t callback);

 protected:
  SubTask *done() override;
  bool goes_on() override;
  protocol::ProtocolMessage *next_request() override;
  protocol::ProtocolMessage *next_response() override { return &resp_; }
  workflow::ClientTimes times() const override;
  bool wants_more() override;
  workflow::Runnable *delivery() override;

 private:
  ~WFHttpChunkedTask() override = default;

  // Calls extract for what has arrived.
  void deliver();
  void call_extract();

  protocol::HttpMessageChunk chunk_;
  std::optional<extract_t> next_extract_;  // takes extract_'s place before the next call
  extract_t extract_;
  int total_timeout_ = -1;
  int read_timeout_ = kTimeoutNotSet;
  bool extract_on_header_ = false;
  bool header_told_ = false;
  bool delivering_ = false;
  bool stopped_ = false;
};

class WFHttpChunkedClient {
 public:
  using extract_t = WFHttpChunkedTask::extract_t;
  using callback_t = WFHttpChunkedTask::callback_t;

  // An http or https URL. GET, unless the request is changed before the start. At most
  // `redirect_max` redirects are followed, as by WFTaskFactory::create_http_task().
  static WFHttpChunkedTask *create_chunked_task(const std::string &url, int redirect_max,
                                                extract_t extract, callback_t callback);
  static WFHttpChunkedTask *create_chunked_task(const ParsedURI &uri, int redirect_max,
                                                extract_t extract, callback_t callback);
};
