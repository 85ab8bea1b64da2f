#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/RedisPipeline.h"
#include "store/RedisUrl.h"
#include "workflow/RedisMessage.h"

namespace workflow {

// One connection of a store to a server, which is never replaced. A restart of the server ends it.
// A failover may leave it standing: see RedisStoreNodes. When the library stops, one that has been
// made stays until the store is closed, and one that is being made ends.
//
// Used by one thread at a time. Blocks.
class RedisStoreLink {
 public:
  struct Reply {
    int error = 0;        // an errno value; 0: `value` is the reply, which may be an error
    bool sent = true;     // false: the server has not executed the command
    std::string reason;   // why there is no reply, in one line that begins with the server
    int64_t sent_us = 0;  // monotonic times
    int64_t received_us = 0;
    protocol::RedisValue value;
  };

  // A command, encoded, and the connection for it.
  struct Question {
    RedisStoreLink* link = nullptr;
    std::string command;
  };
  // Says when the wait for replies ends although some are missing. A missing reply then has the
  // error EAGAIN if `goes_on` has ended the wait, and ETIMEDOUT if `enough` has. All connections
  // that were asked have ended then, also those that have replied.
  struct Patience {
    // Called again and again while nothing comes. It may ask elsewhere, and block. False, or no
    // memory: no longer.
    std::function<bool()> goes_on = nullptr;
    // So many replies are enough: the others get a moment more.
    size_t enough = SIZE_MAX;
  };

  // A connection that says nothing for so long may belong to a server that is not what it was.
  static constexpr int64_t kSilenceUs = 1'500'000;

  explicit RedisStoreLink(const RedisUrl& url);

  // The server as messages name it, such as "Redis at 127.0.0.1:6379". Never a user or a password.
  const std::string& name() const { return name_; }

  // Sends all at once, and waits for what becomes of each: a reply, or an error after some 10 s of
  // silence, or 2 s while the library stops. After an error the connection has ended, unless it is
  // ENOMEM or ENOBUFS.
  static std::vector<Reply> ask_each(const std::vector<Question>& questions,
                                     const Patience& patience);
  std::vector<Reply> ask(const std::vector<std::string>& commands);
  Reply ask(const std::string& command);

  // Ends the connection if replies have been awaited for too long. See ask_each().
  void end_if_silent();

  // Whether a reply came kSilenceUs or more after the previous one, or after the connection was
  // begun. Stays true until was_checked() reports that the server is still a master. That check
  // began at `began_us`, so it says nothing about replies that came later.
  bool was_silent() const { return last_silence_us_ != 0; }
  void was_checked(int64_t began_us);

 private:
  void heard(int64_t received_us);

  const std::string name_;
  // Monotonic times.
  int64_t last_reply_us_;        // at first: when the connection was begun
  int64_t last_silence_us_ = 0;  // when the last one has ended that is not checked; 0: none
  RedisPipeline pipeline_;
};

}  // namespace workflow
