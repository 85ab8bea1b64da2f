#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "util/Mutex.h"
#include "workflow/WFHttpStream.h"
#include "workflow/detail/Runnable.h"

namespace workflow {

class ServerPeer;

// A reply that is sent piece by piece: the implementation of WFHttpStream.
//
// Shared by the user's handles, by the exchange, which ends it, and by the connection, which
// reports that there is room, or that the client has left.
//
// Thread-safe. Order: mutex_, then the Channel lock of the connection.
// Invariants:
// 1. While peer_ is set the exchange has not ended, so the peer is alive.
// 2. The thread that takes a task out of waiting_, under mutex_, owns its completion.
// 3. A task begins to wait if more than kHighWater bytes are unsent, or if other tasks wait before
//    it. The tasks go on in their order when the connection calls room(), which it does once the
//    number of unsent bytes has come down to kLowWater.
class ReplyStream {
 public:
  static constexpr size_t kHighWater = 64 * 1024;
  static constexpr size_t kLowWater = 16 * 1024;

  struct Form {
    bool chunked;
    bool discards;  // the reply has no body
    bool of_events;
  };

  ReplyStream(ServerPeer* peer, Form form) : form_(form), peer_(peer) {}

  // See WFHttpStream.
  int write(std::string_view data);
  int set_heartbeat(int ms);
  size_t unsent() const;
  bool closed() const;
  bool stopping() const;
  // Called by the dispatch of a task. Returns false if the task has ended already.
  bool wait(WFStreamTask* task);
  // Ends a task that has not begun, with `error`.
  void refuse(WFStreamTask* task, int error);
  // Ends a task that still waits. If it had bytes and all were taken, it ends with SUCCESS.
  // Otherwise it ends with the error of a lost connection, or else with `error`; if bytes of it are
  // missing, the stream ends, too.
  void cancel(WFStreamTask* task, int error);

  // Called by the connection, which holds no lock.
  void room();
  void send_heartbeat();
  // Announces that the connection is lost; over(error) follows. What ends meanwhile, because bytes
  // are not taken any more or because the scope is cancelled, ends with this error. The first call
  // counts. Called under the connection's lock; takes none.
  void lose(int error) {
    if (lost_error_.load(std::memory_order_relaxed) == 0) {
      lost_error_.store(error, std::memory_order_release);
    }
  }
  // Ends the stream: nothing is sent any more, and every later attempt fails with this errno.
  // Returns 0, or the errno with which the stream had ended before.
  int over(int error);

  // Appends the data to `text`, framed as a chunk if the reply is chunked.
  static void append_framed(std::string& text, std::string_view data, Form form);

  // The bytes that end the reply.
  std::string_view last_bytes() const {
    return form_.chunked && !form_.discards ? "0\r\n\r\n" : "";
  }

 private:
  static constexpr size_t kPieceSize = 64 * 1024;

  int write_piece(std::string_view data) WF_REQUIRES(mutex_);
  // Goes on with a task. Returns true when the task has ended.
  bool advance(WFStreamTask* task) WF_REQUIRES(mutex_);
  bool begin_to_wait(WFStreamTask* task, RunnableList& ended);
  // The task ends with that error, or with that of a lost connection, and so does the stream if
  // bytes of the task are missing. A task whose bytes were all taken, and that only waits for room,
  // has done its work.
  void cut(WFStreamTask* task, int asked, RunnableList& ended) WF_REQUIRES(mutex_);
  // There is no peer any more: ends the tasks that wait.
  void end_waiting(RunnableList& ended) WF_REQUIRES(mutex_);
  // Ends the tasks, which have their outcomes, and empties the list. The caller holds no lock.
  static void end(RunnableList& ended);

  // Why the connection is lost, or `error` if it is not.
  int error_of_loss(int error) const {
    const int lost = lost_error_.load(std::memory_order_acquire);
    return lost != 0 ? lost : error;
  }

  const Form form_;
  mutable Mutex mutex_;
  ServerPeer* peer_ WF_GUARDED_BY(mutex_);
  int error_ WF_GUARDED_BY(mutex_) = 0;  // why there is no peer
  // Set before the connection takes no more bytes, under its lock, and before the scope is
  // cancelled. A write that is not taken has had that lock, and the scope publishes its reason, so
  // whoever ends for one of these reasons sees this error, too. So acquire and release are to spare
  // here.
  std::atomic<int> lost_error_{0};
  std::deque<WFStreamTask*> waiting_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow
