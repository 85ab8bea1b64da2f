#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "factory/TaskContext.h"
#include "kernel/DeadlineScope.h"
#include "kernel/ThreadContext.h"
#include "server/Server.h"
#include "workflow/Workflow.h"

// How a server stops; see Server.cc for the rest.

namespace workflow {

void Server::shut_down() {
  Listener* listener = nullptr;
  Ref<DatagramPort> port;
  {
    MutexLock lock(mutex_);
    if (runtime_ && runtime_->belongs_to_parent_process()) {
      runtime_ = nullptr;  // in a child of fork(2): the parent goes on serving
      return;
    }
    shutting_down_++;
    listener = std::exchange(listener_, nullptr);
    port = Ref(port_);
  }
  if (port) {
    port->shut_down();
    port = nullptr;  // while the server cannot be freed yet
  }
  if (listener) {
    if (!listener->close()) {
      delete listener;
      listener_closed();
    }
    for_each_open([](ServerConnection* connection) { connection->shut_down(); });
  }
  MutexLock lock(mutex_);
  shutting_down_--;
  changed_.notify_all();
}

Ref<DatagramPort> Server::retained_port() const {
  MutexLock lock(mutex_);
  return Ref(port_);
}

bool Server::inside_own_series() const {
  const TaskContext& context = TaskContext::current();
  const SeriesWork* series = context.series;
  if (!series && context.scope) {
    return context.scope->belongs_to(static_cast<const ServerHost*>(this));
  }
  while (series) {
    if (const_cast<SeriesWork*>(series)->get_specific(ServerExchange::kHostKey) ==
        static_cast<const ServerHost*>(this)) {
      return true;
    }
    const ParallelTask* parallel = series->get_in_parallel();
    series = parallel ? series_of(parallel) : nullptr;
  }
  return false;
}

// Whether this server cannot end before the calling thread goes on.
bool Server::would_wait_for_itself() const {
  const ThreadContext& context = ThreadContext::current();
  // A poller's thread runs user code only to make or delete connections, unless it is away.
  const bool is_polling = context.poller && !context.running_for;
  if (!is_polling && giving_back_for_ != this && !inside_own_series()) {
    return false;
  }
  std::fprintf(stderr,
               "workflow: a server's wait_finish() or stop() was called by one of its own "
               "requests or connections; it does not wait\n");
  errno = EDEADLK;
  return true;
}

void Server::wait() {
  if (would_wait_for_itself() || !is_open()) {
    return;
  }
  wait_within(-1, &Server::is_finished);
  forget_runtime();
}

void Server::require_finished() const {
  MutexLock lock(mutex_);
  if (runtime_ && !runtime_stopped_ && !is_finished()) {
    std::fprintf(
        stderr,
        "workflow: a server was destroyed while its requests or connections still need it, "
        "perhaps by one of them\n");
    std::abort();
  }
}

// A time limit of wait_within(). Takes the Server lock when it passes, and ends the wait.
class Server::Limit final : public TimerNode {
 public:
  explicit Limit(Server& server) : server_(server) {}

  void left_queue(bool /*stopped*/, RunnableList& /*finished*/) override {
    MutexLock lock(server_.mutex_);
    passed = true;
    server_.changed_.notify_all();
  }

  bool passed = false;  // guarded by the Server lock

 private:
  Server& server_;
};

void Server::wait_within(int timeout_ms, Condition ended) {
  LendingCondition::Waiter waiter;
  Limit limit(*this);
  MutexLock lock(mutex_);
  bool queued = false;
  if (timeout_ms >= 0 && runtime_) {
    PollerTimers& timers = runtime_->own_poller().timers();
    queued = timers.start(&limit, timeout_ms * kNsPerMs) == PollerTimers::Start::kQueued;
    limit.passed = !queued;
  }
  // Once the runtime has stopped, a series that still waits would wait for ever.
  while (runtime_ && !runtime_stopped_ && !limit.passed && !(this->*ended)()) {
    changed_.wait(mutex_, waiter);
  }
  if (queued && PollerTimers::cancel(&limit) == PollerTimers::Cancel::kTooLate) {
    while (!limit.passed) {
      changed_.wait(mutex_, waiter);
    }
  }
}

void Server::end_scopes_that_still_run() {
  for_each(
      &Server::still_running_,
      [](ServerConnection* connection) { return connection->place.still_runs; },
      [](DeadlineScope* scope) { scope->cancel(ECANCELED); });
}

void Server::forget_runtime() {
  Runtime* runtime = nullptr;
  {
    MutexLock lock(mutex_);
    if (runtime_stopped_ || is_finished()) {
      runtime = std::exchange(runtime_, nullptr);
    }
  }
  if (runtime) {
    runtime->remove_service(this);
  }
}

struct WFStopResult Server::stop_within(int timeout_ms, enum WFStopAction action,
                                        const std::string& unavailable) {
  struct WFStopResult result = {};
  shut_down();
  if (would_wait_for_itself() || !is_open()) {
    return result;
  }
  wait_within(timeout_ms, &Server::is_finished);
  // The caller wants an end, so a limit applies even if linger_timeout is unlimited.
  constexpr int kLingerMs = 2000;
  const int linger_ms = params().linger_timeout >= 0 ? params().linger_timeout : kLingerMs;
  if (const Ref<DatagramPort> port = retained_port()) {
    result.cut_short += port->cut_short(action, unavailable);
  }
  for_each_open([&](ServerConnection* connection) {
    result.cut_short += connection->cut_short(action, unavailable);
  });
  end_scopes_that_still_run();
  wait_within(linger_ms, &Server::is_finished);
  if (const Ref<DatagramPort> port = retained_port()) {
    result.cut_short += port->close_now();
  }
  for_each_open([&](ServerConnection* connection) { result.cut_short += connection->close_now(); });
  // Connections close soon now. Series that still run have this long to notice.
  wait_within(linger_ms, &Server::is_finished);
  {
    MutexLock lock(mutex_);
    result.running = port_ ? port_->under_way() : alive_;
  }
  forget_runtime();
  return result;
}

}  // namespace workflow
