#pragma once

#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <utility>

#include "workflow/HttpMessage.h"
#include "workflow/WFTask.h"
#include "workflow/Workflow.h"

using timer_callback_t = std::function<void(WFTimerTask *)>;
using counter_callback_t = std::function<void(WFCounterTask *)>;
using go_callback_t = std::function<void(WFGoTask *)>;

using WFEmptyTask = WFGenericTask;
using WFHttpTask = WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse>;

// Creates tasks. Every function may be called from any thread. A task is started by start() or by
// joining a series, deletes itself after its callback, and is freed by dismiss() if it is not
// started. Creation throws std::bad_alloc at most.
class WFTaskFactory {
 public:
  // Timers ------------------------------------------------------------------------------------

  // Ends SUCCESS `seconds` and `nanoseconds` after it was dispatched, never earlier. Seconds -1
  // (or any negative number): never. Nanoseconds outside [0, 1e9): SYS_ERROR/EINVAL.
  static WFTimerTask *create_timer_task(time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // The same, under a name. Any number of timers may share a name, which may be any bytes.
  static WFTimerTask *create_timer_task(const std::string &name, time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // Ends SYS_ERROR/ECANCELED as soon as it is started.
  static WFTimerTask *create_timer_task(timer_callback_t callback);

  static WFTimerTask *create_timer_task(unsigned int microseconds, timer_callback_t callback);

  // Cancels the timers of that name that were created before the call, oldest first, at most
  // `max`, started or not. Returns how many: exactly those that this call made end ECANCELED.
  // Each one's callback runs on a framework thread (if it is ever started), never inside this call.
  // O(1) for an unknown name, O(log n) per cancelled timer; other threads wait at most for a few
  // dozens of them.
  static int cancel_by_name(const std::string &name);
  static int cancel_by_name(const std::string &name, size_t max);

  // Counters ----------------------------------------------------------------------------------

  // Ends SUCCESS when counted `target` times; a target of 0 ends as soon as it is started.
  static WFCounterTask *create_counter_task(unsigned int target, counter_callback_t callback);
  static WFCounterTask *create_counter_task(const std::string &name, unsigned int target,
                                            counter_callback_t callback);

  // Counts the counters of that name once, or `n` times: the oldest first until its target is
  // reached, then the next. Counts beyond the last are dropped. Returns how many counters reached
  // their target.
  static int count_by_name(const std::string &name);
  static int count_by_name(const std::string &name, unsigned int n);

  // Computing ---------------------------------------------------------------------------------

  // Runs func(args...) on a computing thread; arguments are copied, std::ref passes references.
  // Tasks of one queue name begin in the order they were started, and may run side by side;
  // queues take turns.
  template <class FUNC, class... ARGS>
  static WFGoTask *create_go_task(const std::string &queue_name, FUNC &&func, ARGS &&...args) {
    return make_go_task(queue_name,
                        std::bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }

  // Structure ---------------------------------------------------------------------------------

  static WFEmptyTask *create_empty_task() { return new WFEmptyTask; }

 private:
  static WFGoTask *make_go_task(const std::string &queue_name, std::function<void()> function);
};
