#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "store/RedisUrl.h"
#include "util/Mutex.h"
#include "workflow/RedisMessage.h"
#include "workflow/WFTaskState.h"
#include "workflow/WFTimer.h"

namespace workflow {

// One connection to a Redis, over which any thread sends commands. The replies come back in order.
// What is posted while the connection writes goes out with the next write: nothing waits for a
// batch to fill, and a busy pipeline sends many commands at a time.
//
// The connection is made at once, and again after it was lost, with growing pauses. A command that
// is posted meanwhile waits for the next attempt. A command whose connection could not be made or
// was lost is never sent again by the pipeline; its outcome says whether it may have been executed.
//
// Threads: any thread may call post(). The callbacks of a pipeline run one at a time. A reply is
// passed on by the poller's thread, and the loss of a connection by a handler thread. So callbacks
// must not block or call user code. Each is called once, before close() returns, and never inside
// post(). A callback may call post(), but not close().
//
// Order: mutex_, then the Channel lock of the connection.
//
// Invariants:
// 1. entries_ holds the commands whose outcome is unknown, in the order of their posts. The first
//    sent_ of them were handed to the connection; the bytes of the others are in chunks_, in the
//    same order.
// 2. connected_ is true from the answer to the first PING of a connection to its end. While it is
//    true the connection stays the same, so that ask_to_send() may be called under mutex_.
// 3. If connected_ is true and chunks_ is not empty, asked_ is true, and the poller's thread will
//    take the chunks: no post is left behind.
// 4. The pipeline ends after three things: the exchange (running_), what follows an exchange or a
//    timer (following_), and a canceller (cancelling_). close() waits for all of them.
// 5. While running_ is true, only the exchange ends commands. When closing_ is true and running_ is
//    false, both stay so, nothing is posted any more, and one thread ends what is left: the one
//    that has set dropping_.
class RedisPipeline {
 public:
  struct Options {
    size_t max_commands = 65536;                         // that have no outcome yet
    size_t max_unsent_bytes = size_t{64} * 1024 * 1024;  // a single command may be larger
    size_t reply_size_limit = size_t{64} * 1024 * 1024;
    // The connection is given up if commands wait for replies and nothing has come for so long.
    int reply_timeout_ms = 10 * 1000;
    // How long it waits before it connects again: doubled with each failure in a row.
    int first_pause_ms = 20;
    int max_pause_ms = 1000;
    // False: it does not connect again. Once its only connection has ended, posts are refused.
    bool reconnects = true;
  };

  struct Outcome {
    // SUCCESS: `value` is the reply, which may be an error. Otherwise there is none, and the state
    // and the error are those of a client task; SYS_ERROR with ECANCELED after close().
    int state = WFT_STATE_SUCCESS;
    int error = 0;
    bool sent = true;  // false: the server has not executed the command
    protocol::RedisValue value;
  };
  using Callback = std::function<void(Outcome&&)>;

  // `url` names a server or a unix socket, not Sentinels.
  explicit RedisPipeline(const RedisUrl& url) : RedisPipeline(url, Options{}) {}
  RedisPipeline(const RedisUrl& url, const Options& options);
  ~RedisPipeline();
  RedisPipeline(const RedisPipeline&) = delete;
  RedisPipeline& operator=(const RedisPipeline&) = delete;

  // Sends one command, which append_command() has encoded. Returns 0, or an errno value if the
  // callback will not be called: ENOBUFS at a limit, ENOMEM, or ECANCELED after close(), when the
  // library stops, or when the only connection has ended.
  int post(const std::string& command, Callback callback);

  // Refuses further posts, closes the connection, and returns when every callback has returned.
  // What has no outcome yet ends with ECANCELED. Blocks; a thread of the library is replaced
  // meanwhile. Not for callbacks.
  void close();

  bool is_connected() const;
  // What a post that is refused would have ended with: the failure of the only connection, or
  // SYS_ERROR with ECANCELED.
  Outcome ending() const;

 private:
  // The exchange that lasts as long as a connection.
  class Link;

  struct Chunk {
    std::string bytes;
    size_t commands = 0;
  };

  static constexpr size_t kChunkBytes = size_t{64} * 1024;

  // These are called by the link. connected(), replies_came() and take_chunk() are called on the
  // poller's thread.
  void connected();
  // Returns false if these are more replies than commands were sent.
  bool replies_came(std::deque<protocol::RedisValue>& replies);
  void take_chunk(std::string* bytes);
  void ended();
  // On a handler, after ended(): the exchange is over.
  void lost(int state, int error);

  // Returns false if there is no memory.
  bool add_to_chunks(const std::string& command) WF_REQUIRES(mutex_);
  void connect();
  void cancel_link(int reason) WF_EXCLUDES(mutex_);
  // Starts the timer that leads to time_passed(), unless the pipeline is being closed, or another
  // one has followed on timer `after` meanwhile. Returns false if there is no memory.
  bool begin_timer(int64_t delay_ms, uint64_t after);
  void time_passed(uint64_t timer, int state, int error);
  Callback take_first();
  // The last step of what following_ counts. Ends what was posted during a pause or an end, if
  // nothing will connect any more and no other thread does so.
  void end_following();
  bool is_overdue() const WF_REQUIRES(mutex_);
  int64_t now_ms() const;

  const Options options_;
  const std::unique_ptr<Link> link_;

  mutable Mutex mutex_;
  CondVar changed_;  // something of invariant 4 has ended
  std::deque<Callback> entries_ WF_GUARDED_BY(mutex_);
  size_t sent_ WF_GUARDED_BY(mutex_) = 0;
  std::deque<Chunk> chunks_ WF_GUARDED_BY(mutex_);
  size_t unsent_bytes_ WF_GUARDED_BY(mutex_) = 0;
  bool connected_ WF_GUARDED_BY(mutex_) = false;
  bool asked_ WF_GUARDED_BY(mutex_) = false;
  bool closing_ WF_GUARDED_BY(mutex_) = false;
  bool running_ WF_GUARDED_BY(mutex_) = false;
  bool cancelling_ WF_GUARDED_BY(mutex_) = false;
  bool dropping_ WF_GUARDED_BY(mutex_) = false;
  // Timers whose callback has not returned, and lost() after it has cleared running_.
  int following_ WF_GUARDED_BY(mutex_) = 0;
  WFTimerHandle timer_ WF_GUARDED_BY(mutex_);
  // How the only connection has ended; SUCCESS before that.
  int end_state_ WF_GUARDED_BY(mutex_) = WFT_STATE_SUCCESS;
  int end_error_ WF_GUARDED_BY(mutex_) = 0;
  uint64_t timer_number_ WF_GUARDED_BY(mutex_) = 0;  // an earlier timer means nothing any more
  int pause_ms_ WF_GUARDED_BY(mutex_);
  int64_t progress_ms_ WF_GUARDED_BY(mutex_) = 0;  // when a reply came, or when none was awaited
};

}  // namespace workflow
