#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "workflow/RedisMessage.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

namespace redis_test {

// How a command ended. `text` is the reply as RedisValue::debug_string() has it.
struct Reply {
  int state = -2;
  int error = 0;
  int timeout_reason = 0;
  long long sequence = 0;
  protocol::RedisValue value;
  std::string text;
};

inline Reply reply_of(WFRedisTask* task) {
  Reply reply;
  reply.state = task->get_state();
  reply.error = task->get_error();
  reply.timeout_reason = task->get_timeout_reason();
  reply.sequence = task->get_task_seq();
  const bool has_result = task->get_resp()->get_result(reply.value);
  if (has_result) {
    reply.text = reply.value.debug_string();
  }
  return reply;
}

struct RunOptions {
  int retry_max = 0;
  std::function<void(WFRedisTask*)> change = nullptr;  // before the start
};

// Sends "COMMAND parameter ..." and waits for the end.
inline Reply run(const std::string& url, const std::vector<std::string>& words,
                 const RunOptions& options = {}) {
  Reply reply;
  WFFacilities::WaitGroup group(1);
  WFRedisTask* task =
      WFTaskFactory::create_redis_task(url, options.retry_max, [&](WFRedisTask* done) {
        reply = reply_of(done);
        group.done();
      });
  if (!words.empty()) {
    task->get_req()->set_request(words[0], {words.begin() + 1, words.end()});
  }
  if (options.change) {
    options.change(task);
  }
  task->start();
  group.wait();
  return reply;
}

// How often the server has carried out a command, also in scripts. The name is as in INFO: "hset",
// "cluster|slots".
inline size_t calls_of(const std::string& url, const std::string& command) {
  const std::string all = run(url, {"INFO", "commandstats"}).value.string_value();
  const std::string begin = "cmdstat_" + command + ":calls=";
  const size_t place = all.find(begin);
  return place == std::string::npos ? 0 : std::stoul(all.substr(place + begin.size()));
}

// A section of what a server says about itself. Empty if it does not answer.
inline std::string info(const std::string& url, const std::string& section) {
  return run(url, {"INFO", section}).value.string_value();
}

// Whether the server could be killed and would start again with all that it has said. A replica
// that has got the whole of its master's data writes its log anew, and what it gets meanwhile is
// not in its log yet.
inline bool has_written_its_log(const std::string& url) {
  const std::string said = info(url, "persistence");
  return said.find("aof_rewrite_in_progress:0") != std::string::npos &&
         said.find("aof_rewrite_scheduled:0") != std::string::npos;
}

}  // namespace redis_test
