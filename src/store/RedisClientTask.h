#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "store/RedisUrl.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {

struct RedisRedirection;

// The task that WFTaskFactory::create_redis_task() creates: one command and its reply. On the way
// there it may ask Sentinels for the master, follow redirections of a cluster, and wait and try
// again where the server says so. Each of these is one more exchange of the same task.
//
// Life and threads: see WFClientTask. Between two exchanges it may be in its series again, behind a
// timer; if the series is cancelled then, it ends with ECANCELED, because it had begun.
class RedisClientTask final : public WFClientTask<protocol::RedisRequest, protocol::RedisResponse> {
 public:
  using Callback = std::function<void(Task*)>;

  // `url_error`: not 0 if the URL could not be parsed.
  RedisClientTask(RedisUrl url, int url_error, int retry_max, Callback callback);

  void dispatch() override;

 protected:
  SubTask* done() override;
  void drop_unstarted() override;
  ComesBack comes_back() const override { return ComesBack::kYes; }
  bool goes_on() override;

  protocol::ProtocolMessage* next_request() override;
  protocol::ProtocolMessage* next_response() override;
  ClientTimes times() const override;
  bool is_repeatable() override;
  Runnable* ended(int end_state, int end_error, int timeout_reason) override;

 private:
  // A question to a Sentinel, and its answer.
  struct Question {
    protocol::RedisRequest request;
    protocol::RedisResponse response;
  };

  static constexpr int kMaxHops = 5;
  static constexpr int kFirstPauseMs = 20;
  static constexpr int kMaxPauseMs = 1000;

  ~RedisClientTask() override = default;

  // Returns 0, or why the command is not sent: an errno value or a WFT_ERR_* code.
  int check_command() const;
  // Sets the target to the master, or to a Sentinel. Returns 0, or ENOMEM.
  int find_master();

  // These decide what follows from the end of an exchange. Return whether the task goes on.
  bool after_question();
  bool after_command();
  bool after_error_reply(const std::string& text);
  bool follow(const RedisRedirection& redirection);
  bool ask_next_sentinel();
  bool ask_sentinels_again();
  // Goes on after a pause, if one is left.
  bool try_later();
  void drop_response();

  const RedisUrl url_;
  std::unique_ptr<Question> question_;  // while a Sentinel is being asked
  size_t sentinels_asked_ = 0;
  bool sentinel_answered_ = false;     // one of them did not know the master
  bool master_is_remembered_ = false;  // no Sentinel was asked for it yet
  int hops_left_ = kMaxHops;
  int pauses_left_;
  int pause_ms_ = 0;  // not 0: the task goes on after that time
  int next_pause_ms_ = kFirstPauseMs;
  bool began_ = false;
  bool is_refused_ = false;  // the command that the user has made cannot be sent to any server
  // The command is sent behind ASKING, which has a reply of its own.
  std::unique_ptr<protocol::ProtocolMessage> asking_request_;
  std::unique_ptr<protocol::ProtocolMessage> asking_response_;
};

}  // namespace workflow
