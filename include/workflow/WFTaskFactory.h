#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "workflow/Executor.h"
#include "workflow/HttpMessage.h"
#include "workflow/RedisMessage.h"
#include "workflow/URIParser.h"
#include "workflow/WFFileTask.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFScope.h"
#include "workflow/WFTask.h"
#include "workflow/Workflow.h"
#include "workflow/detail/HttpClientTask.h"
#include "workflow/detail/RedisProtocol.h"

using WFHttpTask = WFNetworkTask<protocol::HttpRequest, protocol::HttpResponse>;
using http_callback_t = std::function<void(WFHttpTask *)>;
using WFRedisTask = WFNetworkTask<protocol::RedisRequest, protocol::RedisResponse>;
using redis_callback_t = std::function<void(WFRedisTask *)>;
using timer_callback_t = std::function<void(WFTimerTask *)>;
using counter_callback_t = std::function<void(WFCounterTask *)>;
using mailbox_callback_t = std::function<void(WFMailboxTask *)>;
using selector_callback_t = std::function<void(WFSelectorTask *)>;
using go_callback_t = std::function<void(WFGoTask *)>;
using graph_callback_t = std::function<void(WFGraphTask *)>;
using repeater_callback_t = std::function<void(WFRepeaterTask *)>;
using scope_callback_t = std::function<void(WFScopeTask *)>;
using module_callback_t = std::function<void(const WFModuleTask *)>;
using fio_callback_t = std::function<void(WFFileIOTask *)>;
using fvio_callback_t = std::function<void(WFFileVIOTask *)>;
using fsync_callback_t = std::function<void(WFFileSyncTask *)>;

using WFEmptyTask = WFGenericTask;
using WFDynamicTask = WFGenericTask;
using dynamic_create_t = std::function<SubTask *(WFDynamicTask *)>;
using repeated_create_t = std::function<SubTask *(WFRepeaterTask *)>;

// Creates tasks; docs/tasks.md has every kind on one page. Every function may be called from any
// thread. The caller owns a task until it calls start() or dismiss(), or gives the task to a series
// or to another task. A task that was started deletes itself after its callback. dismiss() frees a
// task that was not started and is in no series. Creating a task throws nothing but std::bad_alloc,
// and what the copies of the user's functions and arguments throw. Tasks and series that were
// passed to a function that throws still belong to the caller.
//
// Callbacks and functions may be null, and are not called then: a computation without a function
// ends with SUCCESS, a repeater without `create` at once. There is one exception: the function of a
// go task must not be null if arguments are passed with it. Tasks and series that are passed in
// must not be null, except where a comment says so, and must not be started nor be in a series.
// Names may consist of any bytes; an empty name is a name like any other. If nothing has the name,
// calls by name return 0.
class WFTaskFactory {
 public:
  // Timers ------------------------------------------------------------------------------------

  // Ends with SUCCESS `seconds` and `nanoseconds` after it was dispatched, never earlier. For
  // negative seconds see docs/limits.md. Nanoseconds outside [0, 1e9) are refused: the task ends
  // with SYS_ERROR/EINVAL, which get_error() returns from the creation on; nobody can cancel it,
  // and it has no name.
  static WFTimerTask *create_timer_task(time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // Creates such a timer with a name. Any number of timers may share a name.
  static WFTimerTask *create_timer_task(const std::string &name, time_t seconds, long nanoseconds,
                                        timer_callback_t callback);

  // The delay may be any std::chrono::duration (negative: see docs/limits.md). For dates, other
  // clocks and more see WFTimer.h.
  static WFTimerTask *create_timer_task(workflow::Duration delay, timer_callback_t callback);
  static WFTimerTask *create_timer_task(const std::string &name, workflow::Duration delay,
                                        timer_callback_t callback);

  // Ends with SYS_ERROR/ECANCELED as soon as it is dispatched.
  static WFTimerTask *create_timer_task(timer_callback_t callback);

  static WFTimerTask *create_timer_task(unsigned int microseconds, timer_callback_t callback);

  // Cancels the timers of that name that were created before the call, started or not, oldest first
  // and at most `max` of them. Returns their number: it is exactly the number of timers that this
  // call made end with ECANCELED. The callback of each runs on a thread of the library once the
  // timer is dispatched, and never inside this call. O(1) for an unknown name, O(log n) for each
  // cancelled timer; other threads wait at most while a few dozen timers are cancelled.
  static int cancel_by_name(const std::string &name);
  static int cancel_by_name(const std::string &name, size_t max);

  // Counters ----------------------------------------------------------------------------------

  // Ends with SUCCESS when it was counted `target` times. With a target of 0 it ends as soon as it
  // is dispatched.
  static WFCounterTask *create_counter_task(unsigned int target, counter_callback_t callback);
  static WFCounterTask *create_counter_task(const std::string &name, unsigned int target,
                                            counter_callback_t callback);

  // Counts the counters of that name once, or `n` times: first the oldest, until its target is
  // reached, then the next one, and so on. Counts that remain after the last counter are dropped.
  // Returns the number of counters that reached their target.
  static int count_by_name(const std::string &name);
  static int count_by_name(const std::string &name, unsigned int n);

  // Mailboxes ---------------------------------------------------------------------------------

  // Ends with SUCCESS when a message was sent to it, either directly or by its name. The message is
  // stored in `mailbox`, or in the task's `user_data` if there is no mailbox.
  static WFMailboxTask *create_mailbox_task(void **mailbox, mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(const std::string &name, void **mailbox,
                                            mailbox_callback_t callback);
  static WFMailboxTask *create_mailbox_task(const std::string &name, mailbox_callback_t callback);

  // Sends to the mailboxes of that name that were created before the call, oldest first. Either all
  // of them, or at most `max`, get `msg`; or the oldest one gets msg[0], the next one msg[1], and
  // so on. Returns how many mailboxes got a message: exactly those that this call made end.
  static int send_by_name(const std::string &name, void *msg);
  static int send_by_name(const std::string &name, void *msg, size_t max);
  template <class T>
  static int send_by_name(const std::string &name, T *const msg[], size_t max) {
    return send_each_by_name(name, max, Messages::of(msg));
  }

  // Selectors ---------------------------------------------------------------------------------

  // Ends with the first message that is not null, out of `candidates` calls of submit(). With no
  // candidates it ends with SYS_ERROR/ENOMSG as soon as it is dispatched.
  static WFSelectorTask *create_selector_task(size_t candidates, selector_callback_t callback);

  // Conditionals ------------------------------------------------------------------------------

  // Runs `task` when the conditional was dispatched and was signalled, either directly or by its
  // name. The message is stored in `msgbuf`, or in the conditional's `user_data` if there is no
  // buffer.
  static WFConditional *create_conditional(SubTask *task, void **msgbuf);
  static WFConditional *create_conditional(SubTask *task);
  static WFConditional *create_conditional(const std::string &name, SubTask *task, void **msgbuf);
  static WFConditional *create_conditional(const std::string &name, SubTask *task);

  // Like send_by_name(), for conditionals.
  static int signal_by_name(const std::string &name, void *msg);
  static int signal_by_name(const std::string &name, void *msg, size_t max);
  template <class T>
  static int signal_by_name(const std::string &name, T *const msg[], size_t max) {
    return signal_each_by_name(name, max, Messages::of(msg));
  }

  // Runs `task` when it holds the resource of that name. One task at a time holds the resource, in
  // the order in which the guards were dispatched, from the beginning of the task until the
  // release. The message of the previous release is in `*msgbuf` or in `user_data`; it is null if
  // nobody held the resource. If the series of a guard is cancelled before the guard gets the
  // resource, the guard drops its task and passes the resource on by itself.
  static WFConditional *create_guard(const std::string &resource, SubTask *task, void **msgbuf);
  static WFConditional *create_guard(const std::string &resource, SubTask *task);

  // Releases the resource. Its holder must do so once, from any thread. Returns 1 if the resource
  // went to another guard, else 0. If release_guard() is called on a thread of the library, the
  // task of that guard may run inside the call (a chain of such tasks takes constant stack). It
  // never runs inside release_guard_safe(). Both are harmless if nobody holds the resource.
  static int release_guard(const std::string &resource, void *msg);
  static int release_guard_safe(const std::string &resource, void *msg);

  // Computing ---------------------------------------------------------------------------------

  // Runs func(args...) on a computing thread. The arguments are copied; std::ref passes references.
  // Tasks of one queue name begin in the order in which they were dispatched, and may run side by
  // side. The queues take turns. The second form runs the function on an executor of the user's
  // own. Neither pointer may be null, and both objects must exist until the task has ended.
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

  // Creates a go task with a time limit that counts from its dispatch. When that has passed, the
  // task ends with SYS_ERROR/ETIMEDOUT; if the function has begun, it runs on. (A coroutine that
  // waits for the task goes on when the function has returned.) -1 seconds means no limit.
  // Nanoseconds outside [0, 1e9) end the task with SYS_ERROR/EINVAL.
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

  // The limit may be any std::chrono::duration (negative: see docs/limits.md).
  template <class FUNC, class... ARGS>
  static WFGoTask *create_timedgo_task(workflow::Duration limit, const std::string &queue_name,
                                       FUNC &&func, ARGS &&...args) {
    return make_go_task(workflow::ComputePlace::named(queue_name), workflow::TimeSpan::of(limit),
                        bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...));
  }

  // Replaces the function of a task that is not started yet. For functions that need the task
  // itself.
  template <class FUNC, class... ARGS>
  static void reset_go_task(WFGoTask *task, FUNC &&func, ARGS &&...args) {
    task->function_ = bind(std::forward<FUNC>(func), std::forward<ARGS>(args)...);
  }

  // HTTP clients ------------------------------------------------------------------------------

  // Requests `url`, which is http or https, by HTTP/1.1 (RFC 9110, 9112). Where the user did not
  // set them, the task adds to the request the method GET, the target, the version, Host, and
  // "Connection: close" if the connection is not to be kept. It replaces the user's Content-Length
  // by the true value. A chunked request has no Content-Length, and a request without a body has
  // one only if the method is POST, PUT or PATCH. The task does not send the following requests,
  // but ends with EINVAL:
  // - a request with several Host fields that differ;
  // - a request with a version other than 1.1 and 1.0;
  // - a request that announces a transfer coding other than "chunked";
  // - a request with "Transfer-Encoding: chunked" whose version is 1.0, or whose body is not a
  //   complete sequence of chunks and nothing else.
  //
  // At most `redirect_max` redirects are followed, by the rules of RFC 9110, 15.4, and without
  // credentials if they lead to another origin; after that the last response counts. A request is
  // tried again up to `retry_max` times if no address could be connected to, or if the connection
  // broke before anything of the response came and the method is idempotent (RFC 9110, 9.2.2). No
  // time limit but those of connecting leads to another try. Negative numbers count as 0.
  //
  // TASK_ERROR is one of: WFT_ERR_URI_* for a URL that is invalid or of another scheme,
  // WFT_ERR_HTTP_BAD_REDIRECT_HEADER. For other errors see WFClientTask.
  static WFHttpTask *create_http_task(const std::string &url, int redirect_max, int retry_max,
                                      http_callback_t callback);
  static WFHttpTask *create_http_task(const ParsedURI &uri, int redirect_max, int retry_max,
                                      http_callback_t callback);
  // Sends the request through an HTTP proxy, whose URL may contain credentials. https goes through
  // a tunnel (CONNECT). TASK_ERROR/WFT_ERR_HTTP_PROXY_CONNECT_FAILED means that the proxy refuses
  // the tunnel.
  static WFHttpTask *create_http_task(const std::string &url, const std::string &proxy_url,
                                      int redirect_max, int retry_max, http_callback_t callback);
  static WFHttpTask *create_http_task(const ParsedURI &uri, const ParsedURI &proxy,
                                      int redirect_max, int retry_max, http_callback_t callback);

  // Redis clients -----------------------------------------------------------------------------

  // Sends one command to Redis and receives its reply: get_req()->set_request() before the start,
  // get_resp()->get_result() in the callback. These functions are in the library workflow::store;
  // docs/redis.md says more. The URL is one of
  //   redis://[user]:password@host:port/db
  //       The default port is 6379, the default database 0.
  //   rediss://...
  //       The same over TLS. The server's certificate is verified.
  //   redis+unix://[user]:password@/path?db=0
  //       A unix socket.
  //   redis+sentinel://[user]:password@host:port,host:port/name?db=0
  //       The master that these Sentinels know by that name. rediss+sentinel:// uses TLS.
  //
  // A reply that is an error ends the task with SUCCESS: see RedisValue::is_error(). In a cluster
  // the task follows MOVED and ASK. A command is tried again up to `retry_max` times if no
  // connection could be made, if the connection broke before anything of the reply came and the
  // command only reads, or, after a pause, if a cluster or the Sentinels could not serve it yet.
  //
  // TASK_ERROR is one of: WFT_ERR_URI_* for a URL that is none of the above,
  // WFT_ERR_REDIS_ACCESS_DENIED if the server refuses the user, the password or the database,
  // WFT_ERR_REDIS_COMMAND_DISALLOWED for a command that would change the state of the connection,
  // which other tasks use, too (AUTH, SELECT, SUBSCRIBE, MULTI, ...), WFT_ERR_UPSTREAM_UNAVAILABLE
  // if no Sentinel knows a master. For other errors see WFClientTask.
  static WFRedisTask *create_redis_task(const std::string &url, int retry_max,
                                        redis_callback_t callback);
  static WFRedisTask *create_redis_task(const ParsedURI &uri, int retry_max,
                                        redis_callback_t callback);

  // Files -------------------------------------------------------------------------------------

  // These tasks do what pread(2), pwrite(2), preadv(2) and pwritev(2) do, with the same results and
  // errors, while the program goes on (see WFFileTask.h). Any number of them may be outstanding.
  //
  // Given a path, the task opens the file and closes it before the callback. For writing, the file
  // is not truncated, and is created (0644) if it does not exist. Errors of open(2) become the
  // errors of the task, such as ENOENT for an empty path. A FIFO is not waited for: the task ends
  // with ESPIPE or ENXIO. A path that contains a null byte gives EINVAL. Wrong descriptors,
  // pointers and counts give the error that the system call gives: EBADF, EFAULT, EINVAL.
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

  // fsync(2) and fdatasync(2). What other tasks write at the same time may or may not be included.
  static WFFileSyncTask *create_fsync_task(int fd, fsync_callback_t callback);
  static WFFileSyncTask *create_fdatasync_task(int fd, fsync_callback_t callback);

  // Structure ---------------------------------------------------------------------------------

  // Tasks that depend on each other; see WFGraphTask.h.
  static WFGraphTask *create_graph_task(graph_callback_t callback);

  static WFEmptyTask *create_empty_task() { return new WFEmptyTask; }

  // Creates a placeholder. When the placeholder is dispatched, `create` is called on a thread of
  // the library, and the task that it returns takes the place of the placeholder in the series,
  // which owns the task from then on. If `create` returns null, the series goes on. If the series
  // was cancelled meanwhile, the returned task is dropped. The placeholder has no callback.
  static WFDynamicTask *create_dynamic_task(dynamic_create_t create);

  // Calls `create` and runs the task that it returns, again and again, until `create` returns null.
  static WFRepeaterTask *create_repeater_task(repeated_create_t create,
                                              repeater_callback_t callback);

  // Scopes (WFScope.h) ------------------------------------------------------------------------

  // A task that contains a series in a scope of its own: WFScopeTask::scope().cancel() ends
  // everything that waits inside, from any thread. The first form makes a series of the one task.
  // `series` must not be started nor be in a parallel, and the scope task owns it from now on. The
  // callback may be null.
  static WFScopeTask *create_scope_task(SubTask *task, scope_callback_t callback);
  static WFScopeTask *create_scope_task(SeriesWork *series, scope_callback_t callback);

  // Creates a scope task with a deadline, at which the scope ends with ETIMEDOUT. A delay counts
  // from the dispatch of the scope task (negative: see docs/limits.md). WFScope::set_deadline()
  // moves it.
  static WFScopeTask *create_deadline_task(SubTask *task, const WFTimerDue &due,
                                           scope_callback_t callback);
  static WFScopeTask *create_deadline_task(SeriesWork *series, const WFTimerDue &due,
                                           scope_callback_t callback);

  // A task that consists of a series of its own. `last` may be null.
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

// Creates client requests of any protocol; see WFClientTask for their states. How long the
// connection is kept for the next task of the same endpoint is set by set_keep_alive(). The default
// is WFClientProtocol::kKeepAlive: 0, which means that it is not kept, unless the protocol says
// otherwise. `retry_max` says how many more times the request is tried if no connection could be
// made, or if it broke before anything came back. So the peer may receive a request twice, unless
// WFClientProtocol::is_repeatable() returns false for it. A request that breaks with a kept
// connection goes once to a new one besides, even if `retry_max` is 0. A negative number counts as
// 0.
//
// TT_UDP: each try is a datagram from a port of its own. If nothing has come back in time, the
// datagram is repeated (docs/protocols.md). TT_SCTP and TT_SCTP_SSL end with
// SYS_ERROR/EPROTONOSUPPORT if the kernel has no SCTP. TLS verifies the peer's certificate chain,
// and that the certificate is for the host. It uses WFGlobal::get_ssl_client_ctx() unless a context
// is given, which must live until the callback.
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
  // TASK_ERROR/WFT_ERR_URI_* for a URL without a host, or without a port if its scheme has none
  // either (WFGlobal::register_scheme_port).
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
  // The address is of family AF_INET, AF_INET6 or AF_UNIX. SYS_ERROR/EINVAL if it is null, if no
  // address has that length, or if the transport type is unknown.
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

// Creates tasks that run `routine(input, output)` on a computing thread. Fill get_input() before
// the start. Queues, executors and time limits work as for go tasks.
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
    void compute() override {
      if (routine_) routine_(&this->input_, &this->output_);
    }
    void forget_computation() override {
      routine_ = nullptr;
      this->callback_ = nullptr;  // it has been called
      renew(this->input_);
      renew(this->output_);
    }

   private:
    // A value need not be one that can be assigned.
    template <class V>
    static void renew(V &value) noexcept {
      if constexpr (!std::is_array_v<V>) {
        value.~V();
        ::new (static_cast<void *>(std::addressof(value))) V{};
      }
    }

    routine_t routine_;
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
