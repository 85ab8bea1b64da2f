#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "workflow/WFGenericTask.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {
class PieceEnd;
class ReplyStream;
}  // namespace workflow

// A step of a series that ends when a streamed reply has taken its bytes and has room for more.
// SUCCESS, or SYS_ERROR with the reason why the stream has ended, or with ETIMEDOUT where a
// deadline around it passes (WFDeadline.h) before its bytes were taken, or there was room. If it
// has bytes of its own these are missing then, so the stream has ended with that error: the reply
// is incomplete, and the connection is closed.
class WFStreamTask : public WFGenericTask {
 public:
  void set_callback(std::function<void(WFStreamTask *)> callback) {
    callback_ = std::move(callback);
  }

  void dispatch() override;

 protected:
  WFStreamTask(std::shared_ptr<workflow::ReplyStream> stream, std::string &&data,
               std::function<void(WFStreamTask *)> &&callback)
      : stream_(std::move(stream)), data_(std::move(data)), callback_(std::move(callback)) {}
  ~WFStreamTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

 private:
  friend class WFHttpStream;
  friend class workflow::ReplyStream;

  void interrupt(workflow::Interruption &interruption) override;
  // False: it has an outcome.
  bool enter_own_scope();
  void leave_own_scope();

  const std::shared_ptr<workflow::ReplyStream> stream_;  // null: of nothing
  const std::string data_;
  size_t written_ = 0;
  workflow::PieceEnd *end_ = nullptr;  // in the scope of a deadline
  std::function<void(WFStreamTask *)> callback_;
};

// An event for a browser's EventSource (HTML Standard, 9.2). What is empty, or negative, is left
// out.
struct WFServerEvent {
  std::string data;  // any number of lines
  std::string event;
  std::string id;
  int retry = -1;  // ms
};

// A reply that is sent piece by piece, while the series of its request goes on; the reply ends when
// the series does. To HTTP/1.1 in chunks (RFC 9112, 7.1), to HTTP/1.0 up to the end of the
// connection; to HEAD, and where the status allows no body, what is written is thrown away.
//
// A handle, to be copied and kept: after the reply has ended every call just fails. Thread-safe;
// any thread may write. A client that leaves ends the stream: the timers that the series waits for
// end at once (see cancel_timers_on_closed()), and stream tasks with ECONNRESET. One that takes
// nothing for the time of set_send_timeout(), by default that of the server, is cut off: ETIMEDOUT.
class WFHttpStream {
 public:
  // Of nothing.
  WFHttpStream() = default;

  // Sends the head of the reply, from task->get_resp(); what was appended to its body is written
  // behind it. Called in the series of a server's task, once. On failure of nothing, with errno:
  // EINVAL when it is no task of an HTTP server or its head none of a reply (a status 1xx, a
  // version other than 1.1 and 1.0; it becomes a 500 when the series ends), EALREADY, EOPNOTSUPP
  // over datagrams. With others, as ENOMEM, or why there is no connection any more, there will be
  // no reply at all.
  static WFHttpStream begin(WFHttpTask *task);
  // The same for events: with Content-Type text/event-stream, and Cache-Control no-cache unless it
  // is set.
  static WFHttpStream begin_events(WFHttpTask *task);

  explicit operator bool() const { return stream_ != nullptr; }

  // Sends, or keeps up to 1 MiB of what the client does not take yet. 0, or -1 with errno and
  // nothing taken: ENOBUFS, ENOMEM, or as of the stream's end. No bytes are no chunk, and 0.
  int write(const void *data, size_t size) const;
  int write(const std::string &data) const { return write(data.data(), data.size()); }
  // As write(). EINVAL when `event` or `id` have more than a line.
  int send_event(const WFServerEvent &event) const;
  // A line that clients ignore.
  int send_comment(const std::string &text) const;

  // In a stream of events, whenever nothing was sent for so long, in ms (<= 0: never, as at first):
  // an empty comment, so that neither side, nor a proxy, takes the connection for a dead one. 0, or
  // -1 with errno: EINVAL in another stream, or as of the stream's end.
  int set_heartbeat(int ms) const;

  // Bytes written, chunk framing included, that are kept because the socket has not taken them yet;
  // over TLS a record counts until it has left as a whole.
  size_t unsent() const;
  // The client has left, or the reply has ended.
  bool closed() const;
  // The server is being stopped, which waits for this reply.
  bool stopping() const;

  // Back-pressure: ends when no more than 64 KiB are unsent; once there were more, not before there
  // are at most 16 KiB.
  WFStreamTask *create_room_task(std::function<void(WFStreamTask *)> callback) const;
  // The same after `data`, of any size, was written as there was room for it.
  WFStreamTask *create_write_task(std::string data,
                                  std::function<void(WFStreamTask *)> callback) const;

 private:
  explicit WFHttpStream(std::shared_ptr<workflow::ReplyStream> stream)
      : stream_(std::move(stream)) {}
  static WFHttpStream open(WFHttpTask *task, bool of_events);

  std::shared_ptr<workflow::ReplyStream> stream_;
};
