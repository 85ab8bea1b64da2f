#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "util/Mutex.h"
#include "workflow/Runnable.h"
#include "workflow/WFHttpStream.h"

namespace workflow {

class PieceEnd;
class ServerPeer;

// A reply that is sent piece by piece: the inside of WFHttpStream.
//
// Shared by the user's handles, the exchange, which ends it, and the connection, which tells it of
// room and of the client's leaving.
//
// Thread-safe. T is mutex_. Order T, then the connection's C.
// Invariants:
// 1. While peer_ is set the exchange has not ended, so that the peer is alive.
// 2. Who takes a task out of waiting_, under T, owns its completion.
// 3. A task waits only when more is unsent than kHighWater; the connection calls room() after it
//    has come down to kLowWater.
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
  // The dispatch of a task: false when it has ended.
  bool wait(WFStreamTask* task);
  // Of a task that does not begin, but ends with this error.
  void refuse(WFStreamTask* task, int error);
  // A task that still waits, if so, shall end early.
  void interrupt(const PieceEnd* end);

  // Of the connection, no lock held.
  void room();
  void beat();
  // The connection is lost and over() follows with this error: whatever ends because of that, such
  // as a task whose scope is ended, ends with the same error. Waits for nothing.
  void lose(int error) { lost_error_.store(error, std::memory_order_release); }
  // The last thing that can happen: nothing is sent any more, and who tries gets this errno. 0, or
  // the errno with which it was over before.
  int over(int error);

  // As a chunk, or as it is.
  static void append_framed(std::string& text, std::string_view data, Form form);

  // What ends the reply.
  std::string_view last_bytes() const {
    return form_.chunked && !form_.discards ? "0\r\n\r\n" : "";
  }

 private:
  static constexpr size_t kPieceSize = 64 * 1024;

  int write_piece(std::string_view data) WF_REQUIRES(mutex_);
  // Goes on with a task; true when it has ended.
  bool advance(WFStreamTask* task) WF_REQUIRES(mutex_);
  bool begin_to_wait(WFStreamTask* task, RunnableList& ended);
  // The task ends with that error, or with that of a lost connection, and so does the stream if
  // bytes of the task are missing. One whose bytes were all taken, and that only waits for room,
  // has done what it shall.
  void cut(WFStreamTask* task, int asked, RunnableList& ended) WF_REQUIRES(mutex_);
  // Without a peer: those that wait end.
  void end_waiting(RunnableList& ended) WF_REQUIRES(mutex_);
  // No lock held; the list is empty then.
  static void hand_over(RunnableList& ended);

  const Form form_;
  mutable Mutex mutex_;  // T
  ServerPeer* peer_ WF_GUARDED_BY(mutex_);
  int error_ WF_GUARDED_BY(mutex_) = 0;  // without a peer
  std::atomic<int> lost_error_{0};
  std::deque<WFStreamTask*> waiting_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow
