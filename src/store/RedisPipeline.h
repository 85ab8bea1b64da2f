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

namespace workflow {

// One connection to a Redis, over which any thread sends commands. The replies come back in order.
// What is posted while the connection writes goes out with the next write: nothing waits for a
// batch to fill, and a busy pipeline sends many commands at a time.
//
// The connection is made at once, and once only: when it has ended, so has the pipeline. What is
// posted before it is made waits for it. The outcome of a command whose connection could not be
// made or was lost says whether the server may have executed it.
//
// Nothing limits how long a reply may take, but for end_if_silent(). When the library stops, a
// connection whose first PING was answered goes on until close().
//
// Threads: any thread may call post(). The callbacks of a pipeline run one at a time. A reply is
// passed on by the poller's thread, and the loss of the connection by a handler thread. So
// callbacks must not block or call user code. Each is called once, before close() returns, and
// never inside post(). A callback may call post(), but not close().
//
// Order: mutex_, then the Channel lock of the connection.
//
// Invariants:
// 1. entries_ holds the commands whose outcome is unknown, in the order of their posts. The first
//    sent_ of them were handed to the connection; the bytes of the others are in chunks_, in the
//    same order.
// 2. connected_ is true from the answer to the first PING to the end of the connection, so that
//    ask_to_send() may be called under mutex_.
// 3. If connected_ is true and chunks_ is not empty, asked_ is true, and the poller's thread will
//    take the chunks: no post is left behind.
// 4. running_ is true from the construction until the connection has ended and every command has
//    its outcome. When the connection has ended, closed_ is set before the commands that are left
//    get their outcomes, and after that nothing is posted.
// 5. The pipeline has ended when neither the exchange (running_) nor a canceller (cancelling_) is
//    under way. close() waits for both.
class RedisPipeline {
 public:
  struct Options {
    size_t max_commands = 65536;                         // that have no outcome yet
    size_t max_unsent_bytes = size_t{64} * 1024 * 1024;  // a single command may be larger
    size_t reply_size_limit = size_t{64} * 1024 * 1024;
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
  // callback will not be called: ENOBUFS at a limit, ENOMEM, or ECANCELED after close() or when the
  // connection has ended.
  int post(const std::string& command, Callback callback);

  // Refuses further posts, closes the connection, and returns when every callback has returned.
  // What has no outcome yet ends with ECANCELED. Blocks; a thread of the library is replaced
  // meanwhile. Not for callbacks.
  void close();

  // If commands wait for replies and nothing has come for so long, the connection ends, and they
  // end with ETIMEDOUT, soon after this has returned.
  void end_if_silent(int64_t limit_ms);
  // If the first PING has not been answered, the connection ends, and the commands that wait for it
  // end with ESHUTDOWN, soon after this has returned.
  void end_if_unconnected();

  // What a post that is refused would have ended with: the failure of the connection, or SYS_ERROR
  // with ECANCELED.
  Outcome ending() const;

 private:
  // The exchange that lasts as long as a connection.
  class Link;

  struct Chunk {
    std::string bytes;
    size_t commands = 0;
  };

  static constexpr size_t kChunkBytes = size_t{64} * 1024;

  // These are called by the link. connected(), bytes_came() and take_chunk() are called on the
  // poller's thread.
  void connected();
  // `replies` are those that are whole now, if there are any. Returns false if these are more than
  // commands were sent.
  bool bytes_came(std::deque<protocol::RedisValue>& replies);
  void take_chunk(std::string* bytes);
  void ended();
  // On a handler, after ended(): the exchange is over.
  void lost(int state, int error);

  // Returns false if there is no memory.
  bool add_to_chunks(const std::string& command) WF_REQUIRES(mutex_);
  void cancel_link(int reason) WF_EXCLUDES(mutex_);
  Callback take_first();
  static int64_t now_ms();

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
  bool closed_ WF_GUARDED_BY(mutex_) = false;
  bool running_ WF_GUARDED_BY(mutex_) = true;
  bool cancelling_ WF_GUARDED_BY(mutex_) = false;
  // How the connection has ended; SUCCESS before that, and if close() has ended it.
  int end_state_ WF_GUARDED_BY(mutex_) = WFT_STATE_SUCCESS;
  int end_error_ WF_GUARDED_BY(mutex_) = 0;
  int64_t progress_ms_ WF_GUARDED_BY(mutex_) = 0;  // when bytes came, or when none were awaited
};

}  // namespace workflow
