#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/Executor.h"
#include "workflow/HttpMessage.h"
#include "workflow/URIParser.h"
#include "workflow/WFFileTask.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFHttpClientTask.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTask.h"
#include "workflow/Workflow.h"

using WFHttpTask = WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse>;
using http_callback_t = std::function<void(WFHttpTask *)>;
using timer_callback_t = std::function<void(WFTimerTask *)>;
using counter_callback_t = std::function<void(WFCounterTask *)>;
using mailbox_callback_t = std::function<void(WFMailboxTask *)>;
using selector_callback_t = std::function<void(WFSelectorTask *)>;
using go_callback_t = std::function<void(WFGoTask *)>;
using graph_callback_t = std::function<void(WFGraphTask *)>;
using repeater_callback_t = std::function<void(WFRepeaterTask *)>;
using module_callback_t = std::function<void(const WFModuleTask *)>;
using fio_callback_t = std::function<void(WFFileIOTask *)>;
using fvio_callback_t = std::function<void(WFFileVIOTask *)>;
using fsync_callback_t = std::function<void(WFFileSyncTask *)>;

using WFEmptyTask = WFGenericTask;
using WFDynamicTask = WFGenericTask;
using dynamic_create_t = std::function<SubTask *(WFDynamicTask *)>;
using repeated_create_t = std::function<SubTask *(WFRepeaterTask *)>;

// Creates tasks; docs/tasks.md has every kind on one page. Every function may be called from any
// thread. A task is started by start() or by joining a series, deletes itself after its callback,
// and is freed by dismiss() if it is not started. Creation throws std::bad_alloc at most.
class WFTaskFactory {
 public:
  // Timers ------------------------------------------------------------------------------------

  // Ends SUCCESS `seconds` and `nanoseconds` after it was dispatched, never earlier. Seconds -1
  // (or any negative number): never. Nanoseconds outside [0, 1e9): SYS_ERROR/EINVAL, which
  // get_error() says from its creation on; nobody can cancel it, and it has no name.
  static WFTimerTask *create_timer_task(time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // The same, under a name. Any number of timers may share a name, which may be any bytes.
  static WFTimerTask *create_timer_task(const std::string &name, time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // The same with any std::chrono::duration; a negative one: never. For dates, other clocks and
  // more see WFTimer.h.
  static WFTimerTask *create_timer_task(workflow::Duration delay, timer_callback_t callback);
  static WFTimerTask *create_timer_task(const std::string &name, workflow::Duration delay,
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

  // Mailboxes ---------------------------------------------------------------------------------

  // Ends SUCCESS when a message was sent to it: to the task itself, or by its name. `mailbox` is
  // where the message goes; without one, `user_data` of the task.
  static WFMailboxTask *create_mailbox_task(void **mailbox, mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(const std::string &name, void **mailbox,
                                            mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(const std::string &name, mailbox_callback_t callback);

  // Sends to the mailboxes of that name that were created before the call, oldest first: `msg` to
  // all, or to at most `max`; or msg[0] to the oldest, msg[1] to the next, and so on. Returns how
  // many got a message: exactly those that this call made end.
  static int send_by_name(const std::string &name, void *msg);
  static int send_by_name(const std::string &name, void *msg, size_t max);
  template <class T>
  static int send_by_name(const std::string &name, T *const msg[], size_t max) {
    return send_each_by_name(name, max, Messages::of(msg));
  }

  // Selectors ---------------------------------------------------------------------------------

  // Ends with the first message of `candidates` submits that is not null.
  static WFSelectorTask *create_selector_task(size_t candidates, selector_callback_t callback);

  // Conditionals ------------------------------------------------------------------------------

  // Runs `task` when it was started and signalled: the conditional itself, or by its name. `msgbuf`
  // is where the message goes; without one, `user_data` of the conditional.
  static WFConditional *create_conditional(SubTask *task, void **msgbuf);
  static WFConditional *create_conditional(SubTask *task);
  static WFConditional *create_conditional(const std::string &name, SubTask *task, void **msgbuf);
  static WFConditional *create_conditional(const std::string &name, SubTask *task);

  // As send_by_name(), for conditionals.
  static int signal_by_name(const std::string &name, void *msg);
  static int signal_by_name(const std::string &name, void *msg, size_t max);
  template <class T>
  static int signal_by_name(const std::string &name, T *const msg[], size_t max) {
    return signal_each_by_name(name, max, Messages::of(msg));
  }

  // Runs `task` when it holds the resource of that name: one task at a time does, in the order in
  // which the guards were dispatched, from then until the release. The message of the release
  // before is in `*msgbuf` or `user_data`; null if nobody held it. A guard whose series is
  // cancelled by then drops its task, and passes the resource on by itself.
  static WFConditional *create_guard(const std::string &resource, SubTask *task, void **msgbuf);
  static WFConditional *create_guard(const std::string &resource, SubTask *task);

  // The holder, who must release once, does so, from any thread: 1 if the resource went to another
  // guard, else 0. That guard's task may run within the call of release_guard() when it is made on
  // a framework thread (a chain of them takes constant stack), never within release_guard_safe().
  // Harmless when nobody holds the resource.
  static int release_guard(const std::string &resource, void *msg);
  static int release_guard_safe(const std::string &resource, void *msg);

  // Computing ---------------------------------------------------------------------------------

  // Runs func(args...) on a computing thread; arguments are copied, std::ref passes references.
  // Tasks of one queue name begin in the order they were started, and may run side by side;
  // queues take turns. Or on the threads of an executor of the user's own.
  template <class FUNC, class... ARGS>
  static WFGoTask *create_go_task(const std::string &queue_name, FUNC &&func, ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::named(queue_name), workflow::TimeSpan::never(),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }
  template <class FUNC, class... ARGS>
  static WFGoTask *create_go_task(ExecQueue *queue, Executor *executor, FUNC &&func,
                                  ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::of(queue, executor), workflow::TimeSpan::never(),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }

  // The same with a time limit, from the start on: SYS_ERROR/ETIMEDOUT when it is over; the
  // function runs on, if it has begun. Seconds -1: no limit. Nanoseconds outside [0, 1e9):
  // SYS_ERROR/EINVAL.
  template <class FUNC, class... ARGS>
  static WFGoTask *create_timedgo_task(time_t seconds, long nanoseconds,
                                       const std::string &queue_name, FUNC &&func, ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::named(queue_name),
                        workflow::TimeSpan::of(seconds, nanoseconds),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }
  template <class FUNC, class... ARGS>
  static WFGoTask *create_timedgo_task(time_t seconds, long nanoseconds, ExecQueue *queue,
                                       Executor *executor, FUNC &&func, ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::of(queue, executor),
                        workflow::TimeSpan::of(seconds, nanoseconds),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }

  // The same with any std::chrono::duration; a negative one: no limit.
  template <class FUNC, class... ARGS>
  static WFGoTask *create_timedgo_task(workflow::Duration limit, const std::string &queue_name,
                                       FUNC &&func, ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::named(queue_name), workflow::TimeSpan::of(limit),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }

  // Before the task is started: what it shall run instead, for functions that need the task.
  template <class FUNC, class... ARGS>
  static void reset_go_task(WFGoTask *task, FUNC &&func, ARGS &&...args) {
    task->function_ = bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...);
  }

  // HTTP clients ------------------------------------------------------------------------------

  // Requests `url`, which is http or https, by GET unless get_req() says otherwise; Host,
  // Content-Length and the like are added. At most `redirect_max` redirects are followed, by the
  // rules of RFC 9110, 15.4, and without credentials to another origin; the last response stands.
  // A request that may be repeated (RFC 9110, 9.2.2) and got no answer is, `retry_max` times.
  //
  // TASK_ERROR: WFT_ERR_URI_* for a URL that is none or of another scheme,
  // WFT_ERR_HTTP_BAD_REDIRECT_HEADER. Others: see WFClientTask.
  static WFHttpTask *create_http_task(const std::string &url, int redirect_max, int retry_max,
                                      http_callback_t callback);
  static WFHttpTask *create_http_task(const ParsedURI &uri, int redirect_max, int retry_max,
                                      http_callback_t callback);
  // By way of an HTTP proxy, whose URL may have credentials; https through a tunnel (CONNECT).
  // TASK_ERROR/WFT_ERR_HTTP_PROXY_CONNECT_FAILED when the proxy refuses that.
  static WFHttpTask *create_http_task(const std::string &url, const std::string &proxy_url,
                                      int redirect_max, int retry_max, http_callback_t callback);
  static WFHttpTask *create_http_task(const ParsedURI &uri, const ParsedURI &proxy,
                                      int redirect_max, int retry_max, http_callback_t callback);

  // Files -------------------------------------------------------------------------------------

  // What pread(2), pwrite(2), preadv(2) and pwritev(2) do, with their results and errors, beside
  // the program (see WFFileTask.h). Any number may be outstanding. By a path: the file is opened
  // for it, to read, or to write without truncating, when it is created (0644) if it does not
  // exist; and closed before the callback. Errors of open(2) are the task's. A FIFO is not waited
  // for: it ends with ESPIPE, or ENXIO. A path with a null byte: EINVAL.
  static WFFileIOTask *create_pread_task(int fd, void *buf, size_t count, off_t offset,
                                         fio_callback_t callback);
  static WFFileIOTask *create_pread_task(const std::string &path, void *buf, size_t count,
                                         off_t offset, fio_callback_t callback);
  static WFFileIOTask *create_pwrite_task(int fd, const void *buf, size_t count, off_t offset,
                                          fio_callback_t callback);
  static WFFileIOTask *create_pwrite_task(const std::string &path, const void *buf, size_t count,
                                          off_t offset, fio_callback_t callback);
  static WFFileVIOTask *create_preadv_task(int fd, const struct iovec *iov, int iovcnt,
                                           off_t offset, fvio_callback_t callback);
  static WFFileVIOTask *create_preadv_task(const std::string &path, const struct iovec *iov,
                                           int iovcnt, off_t offset, fvio_callback_t callback);
  static WFFileVIOTask *create_pwritev_task(int fd, const struct iovec *iov, int iovcnt,
                                            off_t offset, fvio_callback_t callback);
  static WFFileVIOTask *create_pwritev_task(const std::string &path, const struct iovec *iov,
                                            int iovcnt, off_t offset, fvio_callback_t callback);

  // fsync(2), fdatasync(2). What other tasks write at the same time may or may not be included.
  static WFFileSyncTask *create_fsync_task(int fd, fsync_callback_t callback);
  static WFFileSyncTask *create_fdatasync_task(int fd, fsync_callback_t callback);

  // Structure ---------------------------------------------------------------------------------

  // Tasks that depend on each other; see WFGraphTask.h.
  static WFGraphTask *create_graph_task(graph_callback_t callback);

  static WFEmptyTask *create_empty_task() { return new WFEmptyTask; }

  // Makes the task when its turn has come: what `create` returns takes its place; null: nothing.
  static WFDynamicTask *create_dynamic_task(dynamic_create_t create);

  // Runs what `create` returns, and calls it again after that, until it returns null.
  static WFRepeaterTask *create_repeater_task(repeated_create_t create,
                                              repeater_callback_t callback);

  // A task made of a series of its own.
  static WFModuleTask *create_module_task(SubTask *first, module_callback_t callback);
  static WFModuleTask *create_module_task(SubTask *first, SubTask *last,
                                          module_callback_t callback);

 private:
  // An array of pointers to any type of messages.
  struct Messages {
    const void *array;
    void *(*get)(const void *array, size_t i);

    template <class T>
    static Messages of(T *const *array) {
      return {array, [](const void *messages, size_t i) -> void * {
                return const_cast<std::remove_cv_t<T> *>(static_cast<T *const *>(messages)[i]);
              }};
    }
  };

  template <class FUNC, class... ARGS>
  static std::function<void()> bind(FUNC &&func, ARGS &&...args) {
    if constexpr (sizeof...(ARGS) == 0) {
      return std::function<void()>(std::forward<FUNC>(func));
    } else {
      return std::bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...);
    }
  }

  static int send_each_by_name(const std::string &name, size_t max, const Messages &messages);
  static int signal_each_by_name(const std::string &name, size_t max, const Messages &messages);
  static WFGoTask *make_go_task(const workflow::ComputePlace &place,
                                const workflow::TimeSpan &limit, std::function<void()> &&function);
};

// Creates requests of any protocol, from the client's side; see WFClientTask for their states. A
// connection is kept for the next task of the same endpoint only if the task says so, by
// set_keep_alive(). `retry_max`: how many more times the request is tried where that is safe: when
// no connection could be made, or when it broke before anything came back.
//
// TT_UDP: each try is a datagram from a port of its own, and is repeated when nothing came back in
// time (docs/protocols.md). TT_SCTP, TT_SCTP_SSL: SYS_ERROR/EPROTONOSUPPORT where the kernel has no
// SCTP. TLS verifies the peer's chain and that the certificate is the host's, with
// WFGlobal::get_ssl_client_ctx() unless a context is given, which lives until the callback.
template <class REQ, class RESP>
class WFNetworkTaskFactory {
 private:
  using T = WFNetworkTask<REQ, RESP>;
  using Task = WFClientTask<REQ, RESP>;
  using callback_t = std::function<void(T *)>;

  static T *create(const workflow::ClientTarget &target, int error, int retry_max,
                   callback_t &&callback) {
    if (error != 0) return new Task(error, std::move(callback));
    return new Task(target, retry_max, std::move(callback));
  }

 public:
  static T *create_client_task(enum TransportType type, const std::string &host,
                               unsigned short port, int retry_max, callback_t callback) {
    return new Task(workflow::ClientTarget::of(type, host, port), retry_max, std::move(callback));
  }
  // TASK_ERROR/WFT_ERR_URI_* for a URL without a host, or without a port that it names or its
  // scheme has (WFGlobal::register_scheme_port).
  static T *create_client_task(enum TransportType type, const std::string &url, int retry_max,
                               callback_t callback) {
    workflow::ClientTarget target;
    const int error = workflow::ClientTarget::parse(type, url, &target);
    return create(target, error, retry_max, std::move(callback));
  }
  static T *create_client_task(enum TransportType type, const ParsedURI &uri, int retry_max,
                               callback_t callback) {
    workflow::ClientTarget target;
    const int error = workflow::ClientTarget::parse(type, uri, &target);
    return create(target, error, retry_max, std::move(callback));
  }
  // AF_INET, AF_INET6, AF_UNIX. SYS_ERROR/EINVAL for an address that is null or whose length is
  // that of none, as for a transport that is none.
  static T *create_client_task(enum TransportType type, const struct sockaddr *addr,
                               socklen_t addrlen, int retry_max, callback_t callback) {
    return create_client_task(type, addr, addrlen, nullptr, retry_max, std::move(callback));
  }
  static T *create_client_task(enum TransportType type, const struct sockaddr *addr,
                               socklen_t addrlen, SSL_CTX *ssl_ctx, int retry_max,
                               callback_t callback) {
    workflow::ClientTarget target = workflow::ClientTarget::of(type, addr, addrlen);
    target.ssl_ctx = ssl_ctx;
    return new Task(target, retry_max, std::move(callback));
  }
};

// Creates tasks that run `routine(input, output)` on a computing thread: fill get_input() before
// the start. Queues, executors and time limits as those of go tasks.
template <class IN, class OUT>
class WFThreadTaskFactory {
 private:
  using T = WFThreadTask<IN, OUT>;
  using routine_t = std::function<void(IN *, OUT *)>;
  using callback_t = std::function<void(T *)>;

  class Task final : public T {
   public:
    Task(const workflow::ComputePlace &place, const workflow::TimeSpan &limit, routine_t &&routine,
         callback_t &&callback)
        : T(place, limit, std::move(callback)), routine_(std::move(routine)) {}

   protected:
    void compute() override { routine_(&this->input_, &this->output_); }

   private:
    const routine_t routine_;
  };

 public:
  static T *create_thread_task(const std::string &queue_name, routine_t routine,
                               callback_t callback) {
    return new Task(workflow::ComputePlace::named(queue_name), workflow::TimeSpan::never(),
                    std::move(routine), std::move(callback));
  }
  static T *create_thread_task(time_t seconds, long nanoseconds, const std::string &queue_name,
                               routine_t routine, callback_t callback) {
    return new Task(workflow::ComputePlace::named(queue_name),
                    workflow::TimeSpan::of(seconds, nanoseconds), std::move(routine),
                    std::move(callback));
  }
  static T *create_thread_task(workflow::Duration limit, const std::string &queue_name,
                               routine_t routine, callback_t callback) {
    return new Task(workflow::ComputePlace::named(queue_name), workflow::TimeSpan::of(limit),
                    std::move(routine), std::move(callback));
  }
  static T *create_thread_task(ExecQueue *queue, Executor *executor, routine_t routine,
                               callback_t callback) {
    return new Task(workflow::ComputePlace::of(queue, executor), workflow::TimeSpan::never(),
                    std::move(routine), std::move(callback));
  }
  static T *create_thread_task(time_t seconds, long nanoseconds, ExecQueue *queue,
                               Executor *executor, routine_t routine, callback_t callback) {
    return new Task(workflow::ComputePlace::of(queue, executor),
                    workflow::TimeSpan::of(seconds, nanoseconds), std::move(routine),
                    std::move(callback));
  }
};
