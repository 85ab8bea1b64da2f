#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "workflow/WFGenericTask.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {
class ReplyStream;
}  // namespace workflow

// A task that waits for a streamed reply: it ends when the stream has taken its bytes and has room
// for more. It ends with SUCCESS, or with SYS_ERROR and the reason why the stream has ended.
//
// If the scope around the task (WFScope.h) ends before the stream has taken all its bytes, the task
// ends with SYS_ERROR and the error of the scope: ETIMEDOUT for a deadline. The rest is then
// missing from the reply, so the stream ends with that error, too: the reply is incomplete, and the
// connection is closed. A task without bytes ends in the same way if the scope ends before there is
// room; the stream goes on.
class WFStreamTask : public workflow::TaskWithCallback<WFStreamTask, WFGenericTask> {
 public:
  void dispatch() override;

 protected:
  WFStreamTask(std::shared_ptr<workflow::ReplyStream> stream, std::string &&data,
               std::function<void(WFStreamTask *)> &&callback)
      : TaskWithCallback(std::move(callback)), stream_(std::move(stream)), data_(std::move(data)) {}
  ~WFStreamTask() override = default;

 private:
  friend class WFHttpStream;
  friend class workflow::ReplyStream;

  void on_cancel(int reason) override;

  const std::shared_ptr<workflow::ReplyStream> stream_;  // null: there is no stream
  const std::string data_;
  size_t written_ = 0;
};

// An event for a browser's EventSource (HTML Standard, 9.2). Fields that are empty, or negative,
// are not sent.
struct WFServerEvent {
  std::string data;  // any number of lines
  std::string event;
  std::string id;
  int retry = -1;  // ms
};

// A reply that is sent piece by piece while the series of its request goes on. The reply ends when
// the series ends. An HTTP/1.1 client receives chunks (RFC 9112, 7.1), and an HTTP/1.0 client bytes
// until the connection ends. If the request is HEAD, or the status allows no body, what is written
// is dropped.
//
// This is a handle: it may be copied and kept. After the reply has ended every call just fails.
// Thread-safe; any thread may write. A client that leaves ends the stream: the timers that the
// series waits for end at once (see cancel_timers_on_closed()), and stream tasks end with
// ECONNRESET. A client that takes nothing for the time of set_send_timeout() is cut off, and stream
// tasks end with ETIMEDOUT. The default of that time is the server's send_timeout.
class WFHttpStream {
 public:
  // Makes a handle that refers to no stream.
  WFHttpStream() = default;

  // Sends the head of task->get_resp(), followed by whatever was appended to its body. Call this
  // once, in the series of a server's task. On failure the returned handle has no stream, and errno
  // is set:
  // - EINVAL: the task is null or not one of an HTTP server, or its response has a head that no
  //   reply can have: a status 1xx, or a version other than 1.1 and 1.0. Such a reply becomes a 500
  //   when the series ends.
  // - EALREADY: the reply has already begun, or there will be none (see noreply()).
  // - EOPNOTSUPP: the server uses datagrams.
  // - Any other error, such as ENOMEM or the reason why there is no connection any more, means that
  //   there will be no reply at all.
  static WFHttpStream begin(WFHttpTask *task);
  // Like begin(), for a stream of events: sets Content-Type to text/event-stream, and Cache-Control
  // to no-cache unless it is set.
  static WFHttpStream begin_events(WFHttpTask *task);

  explicit operator bool() const { return stream_ != nullptr; }

  // Sends the bytes, and buffers up to 1 MiB that the client does not take yet. Returns 0, or -1
  // with errno if nothing was taken: ENOBUFS, ENOMEM, or the error with which the stream has ended.
  // Writing 0 bytes writes no chunk and returns 0.
  int write(const void *data, size_t size) const;
  int write(const std::string &data) const { return write(data.data(), data.size()); }
  // Like write(). Fails with EINVAL if `event` or `id` has more than one line.
  int send_event(const WFServerEvent &event) const;
  // Sends a comment, which clients ignore. Returns as write() does.
  int send_comment(const std::string &text) const;

  // Sends an empty comment whenever nothing was sent for `ms` milliseconds, so that neither side,
  // nor a proxy, takes the connection for a dead one. There is no heartbeat for `ms` <= 0, which is
  // the default. Returns 0, or -1 with errno: EINVAL if this is not a stream of events, or the
  // error with which the stream has ended.
  int set_heartbeat(int ms) const;

  // Returns how many bytes are buffered because the socket has not taken them yet, chunk framing
  // included. Over TLS a record counts until all of it has been sent.
  size_t unsent() const;
  // Whether the client has left, or the reply has ended.
  bool closed() const;
  // Whether the server is being stopped. The stop waits for this reply.
  bool stopping() const;

  // Creates a task for back-pressure. It ends at once if no more than 64 KiB are unsent, and
  // otherwise when no more than 16 KiB are.
  WFStreamTask *create_room_task(std::function<void(WFStreamTask *)> callback) const;
  // Creates a task that writes `data`, of any size, as room becomes available, and then ends as a
  // room task does.
  WFStreamTask *create_write_task(std::string data,
                                  std::function<void(WFStreamTask *)> callback) const;

 private:
  explicit WFHttpStream(std::shared_ptr<workflow::ReplyStream> stream)
      : stream_(std::move(stream)) {}
  static WFHttpStream open(WFHttpTask *task, bool of_events);

  std::shared_ptr<workflow::ReplyStream> stream_;
};
