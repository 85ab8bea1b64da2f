#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "workflow/WFFuture.h"
#include "workflow/WFTaskFactory.h"

// How a request ended: the values of get_resp(), get_task_seq(), get_state() and get_error() of its
// task.
template <class RESP>
struct WFNetworkResult {
  RESP resp;
  long long seqid;
  int task_state;
  int task_error;
};

// Calls for code that prefers waiting to callbacks. Any thread may use them. A wait on a thread of
// the library lends that thread to other work, so a callback may wait for other callbacks.
//
// A wait in the function of a go or thread task returns early when the scope of the task ends
// (WFScope.h), as if its time was over. After a wait without a result, such a function asks
// WFScope::current().error() whether it was complete. What the function has lent to others, such as
// captured references, must outlive it in that case.
class WFFacilities {
 public:
  template <class RESP>
  using WFNetworkResult = ::WFNetworkResult<RESP>;

  // Blocks the calling thread for `microseconds`. Returns earlier only if the library stops, there
  // is no memory for the timer, or the scope of the computation that calls this ends.
  static void usleep(unsigned int microseconds);

  // The future is ready after `microseconds`, or when the library stops.
  static WFFuture<void> async_usleep(unsigned int microseconds);

  // Like usleep() and async_usleep(), for any std::chrono::duration (negative: see docs/limits.md).
  // One that does not fit means for ever, that is, until the library stops.
  static void sleep_for(workflow::Duration duration);
  static WFFuture<void> async_sleep_for(workflow::Duration duration);

  // Runs func(args...) on a computing thread: creates and starts a go task of that queue. A null
  // function is allowed if there are no arguments, and is not called.
  template <class FUNC, class... ARGS>
  static void go(const std::string &queue_name, FUNC &&func, ARGS &&...args) {
    WFTaskFactory::create_go_task(queue_name, std::forward<FUNC>(func), std::forward<ARGS>(args)...)
        ->start();
  }

  // Sends `req`: creates and starts a client task of WFNetworkTaskFactory. request() waits for its
  // end. If the scope of the computation ends first, it returns SYS_ERROR with the error of the
  // scope, and the request is left to itself.
  template <class REQ, class RESP>
  static WFNetworkResult<RESP> request(enum TransportType type, const std::string &url, REQ &&req,
                                       int retry_max) {
    WFFuture<WFNetworkResult<RESP>> result =
        async_request<REQ, RESP>(type, url, std::move(req), retry_max);
    if (result.wait_for(std::chrono::hours::max()) == std::future_status::ready) {
      return result.get();
    }
    return {RESP(), 0, WFT_STATE_SYS_ERROR, WFScope::current().error()};
  }
  template <class REQ, class RESP>
  static WFFuture<WFNetworkResult<RESP>> async_request(enum TransportType type,
                                                       const std::string &url, REQ &&req,
                                                       int retry_max) {
    const auto promise = std::make_shared<WFPromise<WFNetworkResult<RESP>>>();
    WFFuture<WFNetworkResult<RESP>> result = promise->get_future();
    auto *task = WFNetworkTaskFactory<REQ, RESP>::create_client_task(
        type, url, retry_max, [promise](WFNetworkTask<REQ, RESP> *ended) {
          promise->set_value(WFNetworkResult<RESP>{std::move(*ended->get_resp()),
                                                   ended->get_task_seq(), ended->get_state(),
                                                   ended->get_error()});
        });
    *task->get_req() = std::move(req);
    task->start();
    return result;
  }

  // Creates and starts a file task (see WFTaskFactory.h). The future gets what the system call
  // would return: the number of bytes, or 0 for fsync and fdatasync. It gets -1 for any error, and
  // if the library stops. To learn which error it was, create a task instead and call its
  // get_error().
  static WFFuture<ssize_t> async_pread(int fd, void *buf, size_t count, off_t offset);
  static WFFuture<ssize_t> async_pwrite(int fd, const void *buf, size_t count, off_t offset);
  static WFFuture<ssize_t> async_preadv(int fd, const struct iovec *iov, int iovcnt, off_t offset);
  static WFFuture<ssize_t> async_pwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset);
  static WFFuture<int> async_fsync(int fd);
  static WFFuture<int> async_fdatasync(int fd);

  class WaitGroup;
};

// Waits until a number of things are done. wait() returns if the number is 0 or less, now or at
// some moment since the call. All members are thread-safe. The group may be destroyed as soon as
// wait() has returned, even if the last done() has not.
class WFFacilities::WaitGroup {
 public:
  explicit WaitGroup(int n);
  ~WaitGroup();
  WaitGroup(const WaitGroup &) = delete;
  WaitGroup &operator=(const WaitGroup &) = delete;

  // Adds `n` things to wait for; a negative `n` removes some.
  void add(int n);
  void done();

  void wait() const;
  // Waits at most that long (negative: no limit; see docs/limits.md).
  std::future_status wait(int milliseconds) const;
  // Waits at most that long (negative: see docs/limits.md).
  std::future_status wait_for(workflow::Duration duration) const;

 private:
  const std::shared_ptr<workflow::Countdown> left_;
};
