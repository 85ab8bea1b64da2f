#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/HttpMessageChunk.h"
#include "workflow/URIParser.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/detail/HttpClientTask.h"

namespace workflow {

// Takes the pieces of a response one by one, in its own time: see WFHttpChunkedTask::set_reader().
class ChunkReader {
 public:
  // A piece has arrived. Its bytes are valid during the call. The task then leaves its series, so
  // that the next task of the series runs, and may be started or join a series again.
  virtual void piece(const char *data, size_t size) = 0;
  // The task was dropped or dismissed: there will be no callback. Nothing is called after this.
  virtual void dropped() = 0;

 protected:
  ~ChunkReader() = default;
};

}  // namespace workflow

// An HTTP request whose response is passed on as it arrives, and never stored: the task needs
// little memory however much the server sends.
//
// `extract` is called for one piece after the other, which get_chunk() returns. At the end the
// callback is called once. A piece is a chunk of a chunked response (RFC 9112, 7.1). A chunk of
// more than 64 KiB comes in several pieces, as it arrives, and so does a body that is not chunked.
// If a redirect is followed, nothing of the redirecting response is passed on. Trailers are checked
// and dropped.
//
// Threads: `extract` and the callback run on threads of the library, one at a time. While `extract`
// runs nothing more is read and the time limits are suspended, so that a slow `extract` slows the
// server down. It may wait, as a callback may, and may use the task as a callback may.
//
// A request is never sent again, with one exception: if a kept connection breaks before anything of
// the response has come, a request with an idempotent method (RFC 9110, 9.2.2) goes to a new one.
// When the library stops the task ends ABORTED, and data that has not been passed on is dropped.
// Before any other failure is reported, every whole piece that arrived is passed on.
//
// Apart from that the task is a WFHttpTask with its functions: start(), dismiss(), user_data,
// get_req(), get_resp() (with a head only), get_state(), get_error(), set_send_timeout(),
// set_keep_alive(), ...
//
// Two of these functions limit each piece here, because a response may go on for ever. The head of
// the response counts as the first piece, and each interim response (1xx) as a piece of its own.
//   set_watch_timeout()    limits the wait for the first byte of each piece.
//   set_receive_timeout()  limits the wait until a piece is whole. With a watch timeout this time
//                          begins with the first byte of the piece. Without one it begins when the
//                          request has been sent, and later when the previous piece has been
//                          passed on.
// If neither is set, the wait for the first byte of the response is limited by the endpoint's
// response_timeout, and the wait for each later piece by set_read_timeout(), which is the
// endpoint's response_timeout by default. set_read_timeout() also limits the time between two reads
// within a piece, the head included. Set all time limits before the start. docs/clients.md has a
// table.
class WFHttpChunkedTask final : public workflow::HttpClientTask {
 public:
  using extract_t = std::function<void(WFHttpChunkedTask *)>;
  using callback_t = std::function<void(WFHttpChunkedTask *)>;

  // For use in `extract`: the piece that has arrived. Its bytes stay valid until extract returns.
  // In the call for the header there is no data.
  protocol::HttpMessageChunk *get_chunk() { return &chunk_; }
  const protocol::HttpMessageChunk *get_chunk() const { return &chunk_; }

  // Set before the start. If `on`, `extract` is also called when the header section has arrived,
  // before the first piece.
  void extract_on_header(bool on) { extract_on_header_ = on; }

  // Set before the start, or in `extract` for the calls after it.
  void set_extract(extract_t extract) { next_extract_ = std::move(extract); }
  void set_callback(callback_t callback);

  // For use in `extract`: ends the response early. The connection is closed, and the task ends with
  // SYS_ERROR and ECANCELED, unless it has already failed for another reason.
  void stop() { stopped_ = true; }

  // Limits the whole response, from when the request was sent, in ms. A negative time means
  // unlimited.
  void set_total_timeout(int timeout) { total_timeout_ = workflow::Duration::timeout_ms(timeout); }
  void set_total_timeout(workflow::Duration timeout) { total_timeout_ = timeout.timeout_ms(); }
  // Limits the time between two reads of the response, in place of the endpoint's response_timeout,
  // in ms. A negative time means unlimited. If neither a watch nor a receive timeout is set, it
  // also limits the wait for each piece but the first: for those after the head, and for the head
  // after a 1xx. The wait for the first byte of the whole response remains limited by
  // response_timeout.
  void set_read_timeout(int timeout) { read_timeout_ = workflow::Duration::timeout_ms(timeout); }
  void set_read_timeout(workflow::Duration timeout) { read_timeout_ = timeout.timeout_ms(); }

  // An older name of set_receive_timeout().
  void set_recv_timeout(int timeout) { set_receive_timeout(timeout); }

  // Set before the start. The context is used for https in place of the one of the process. The
  // caller keeps it until the callback.
  void set_ssl_ctx(SSL_CTX *ssl_ctx) { target_.ssl_ctx = ssl_ctx; }

  // Returns the task itself.
  const WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse> *get_http_task() const {
    return this;
  }

  // For WFCoChunks, before the start: the pieces go to the reader instead of `extract`. Each time
  // that the task is dispatched it ends in one of two ways: with a piece, after which it is to be
  // dispatched again, or with its callback. Until it is dispatched again nothing more is read. The
  // reader must live until the callback.
  void set_reader(workflow::ChunkReader *reader) { reader_ = reader; }

  // See WFHttpChunkedClient.
  WFHttpChunkedTask(const ParsedURI &uri, int redirect_max, extract_t extract, callback_t callback);

 protected:
  void dispatch() override;
  SubTask *done() override;
  void drop_unstarted() override;
  bool goes_on() override;
  protocol::ProtocolMessage *next_request() override;
  protocol::ProtocolMessage *next_response() override { return &resp_; }
  workflow::ClientTimes times() const override;
  bool wants_more() override;
  workflow::Runnable *delivery() override;

 private:
  ~WFHttpChunkedTask() override = default;

  // Calls extract for the data that has arrived.
  void deliver();
  void call_extract();
  bool has_pieces() const;
  SubTask *pass_piece();

  protocol::HttpMessageChunk chunk_;
  std::optional<extract_t> next_extract_;  // replaces extract_ before the next call
  extract_t extract_;
  int total_timeout_ = -1;
  int read_timeout_ = kTimeoutNotSet;
  bool extract_on_header_ = false;
  bool header_reported_ = false;
  bool delivering_ = false;
  bool stopped_ = false;
  bool is_over_ = false;  // with a reader: the exchange has ended, and pieces are left
  bool has_begun_ = false;
  workflow::ChunkReader *reader_ = nullptr;
};

class WFHttpChunkedClient {
 public:
  using extract_t = WFHttpChunkedTask::extract_t;
  using callback_t = WFHttpChunkedTask::callback_t;

  // Creates a task for an http or https URL. The method is GET, unless the request is changed
  // before the start. At most `redirect_max` redirects are followed, as by
  // WFTaskFactory::create_http_task(). Both functions may be null.
  static WFHttpChunkedTask *create_chunked_task(const std::string &url, int redirect_max,
                                                extract_t extract, callback_t callback);
  static WFHttpChunkedTask *create_chunked_task(const ParsedURI &uri, int redirect_max,
                                                extract_t extract, callback_t callback);
};
