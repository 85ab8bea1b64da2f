#include "server/Server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>
#include <vector>

#include "factory/TimerTask.h"
#include "kernel/Socket.h"
#include "kernel/ThreadContext.h"
#include "workflow/Workflow.h"

namespace workflow {

namespace {

// What a server may hold open and leave the process descriptors to work with.
size_t descriptor_room() {
  constexpr rlim_t kReserved = 64;
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) {
    return SIZE_MAX;
  }
  return limit.rlim_cur > kReserved ? static_cast<size_t>(limit.rlim_cur - kReserved) : 1;
}

// The server whose connection this thread is giving back to the user, or null.
thread_local const Server* giving_back_for = nullptr;

}  // namespace

int Server::open(UniqueFd listen_fd, TlsContext tls) {
  Runtime& runtime = Runtime::current();
  MutexLock lock(mutex_);
  if (runtime_) {
    errno = EALREADY;
    return -1;
  }
  if (!runtime.add_intake(this)) {
    errno = ECANCELED;
    return -1;
  }
  tls_ = std::move(tls);
  if (!listen(runtime, std::move(listen_fd))) {
    const int error = errno;
    Listener* const listener = std::exchange(listener_, nullptr);
    DatagramPort* const port = std::exchange(port_, nullptr);
    lock.unlock();
    delete listener;
    if (port) {
      port->discard();
    }
    runtime.remove_intake(this);
    errno = error;
    return -1;
  }
  runtime_ = &runtime;
  listening_ = true;
  max_connections_ = std::min(params().max_connections, descriptor_room());
  return 0;
}

bool Server::listen(Runtime& runtime, UniqueFd fd) {
  Poller& poller = runtime.poller(next_poller_++ % runtime.poller_count());
  if (is_datagram(params().transport_type)) {
    port_ = new DatagramPort(*this, poller, std::move(fd));
    return port_->start();
  }
  listener_ = new Listener(
      poller, std::move(fd), [this](UniqueFd accepted) { accept(std::move(accepted)); },
      [this] { listener_closed(); });
  return listener_->start();
}

bool Server::is_open() const {
  MutexLock lock(mutex_);
  return runtime_ != nullptr;
}

void Server::accept(UniqueFd fd) {
  Poller* poller = nullptr;
  ServerConnection* idle = nullptr;
  {
    MutexLock lock(mutex_);
    if (!listener_) {
      return;
    }
    if (alive_ >= max_connections_) {
      idle = open_.size() < max_connections_ + kMaxMakingRoom ? take_oldest_idle() : nullptr;
      if (!idle) {
        return;
      }
    }
    alive_++;
    poller = &runtime_->poller(next_poller_++ % runtime_->poller_count());
  }
  if (idle) {
    idle->make_room();
    idle->release();
  }
  set_no_delay(fd.get(), params().transport_type);
  WFConnection* user = face_.new_connection(fd.get());
  if (!user) {
    connection_gone(nullptr);
    return;
  }
  ServerConnection* connection = new ServerConnection(*this, *poller, std::move(fd), user);
  // Another reference: the connection may end as soon as others can find it, even before start().
  connection->retain();
  bool shut_down = false;
  {
    MutexLock lock(mutex_);
    open_.insert(connection);
    shut_down = listener_ == nullptr;
  }
  if (!connection->start()) {
    connection_closed(connection);
    connection->release();
  } else if (shut_down) {
    connection->shut_down();
  }
  connection->release();
}

ServerConnection* Server::take_oldest_idle() {
  for (;;) {
    if (idle_.empty()) {
      const int64_t now_ns = runtime_->clock().now_ns();
      if (now_ns < next_look_ns_) {
        return nullptr;
      }
      next_look_ns_ = now_ns + static_cast<int64_t>(open_.size()) * kLookRestNs;
      look_for_idle();
      if (idle_.empty()) {
        return nullptr;
      }
    }
    const Idle idle = idle_.back();
    idle_.pop_back();
    // It may have gone, and another be at its address.
    if (open_.count(idle.connection) && idle.connection->idle_since_ns() == idle.since_ns) {
      idle.connection->retain();
      return idle.connection;
    }
  }
}

void Server::look_for_idle() {
  for (ServerConnection* connection : open_) {
    const int64_t since_ns = connection->idle_since_ns();
    if (since_ns != kNever && !connection->shutting_down()) {
      idle_.push_back({since_ns, connection});
    }
  }
  const auto younger = [](const Idle& a, const Idle& b) { return a.since_ns > b.since_ns; };
  if (idle_.size() > kMaxIdleNoted) {
    const auto oldest = idle_.end() - kMaxIdleNoted;
    std::nth_element(idle_.begin(), oldest, idle_.end(), younger);
    idle_.erase(idle_.begin(), oldest);
  }
  std::sort(idle_.begin(), idle_.end(), younger);
}

void Server::connection_closed(ServerConnection* connection) {
  MutexLock lock(mutex_);
  open_.erase(connection);
}

void Server::give_back(WFConnection* user) {
  const Server* outer = std::exchange(giving_back_for, this);
  face_.delete_connection(user);
  giving_back_for = outer;
}

void Server::connection_gone(WFConnection* user) {
  if (user) {
    give_back(user);
  }
  MutexLock lock(mutex_);
  alive_--;
  if (alive_ == 0) {
    changed_.notify_all();
  }
}

void Server::port_closing() {
  MutexLock lock(mutex_);
  port_ = nullptr;
}

void Server::listener_closed() {
  MutexLock lock(mutex_);
  listening_ = false;
  changed_.notify_all();
}

void Server::shut_down() {
  Listener* listener = nullptr;
  DatagramPort* port = nullptr;
  {
    MutexLock lock(mutex_);
    listener = std::exchange(listener_, nullptr);
    port = port_;
    if (port) {
      port->retain();
    }
  }
  if (port) {
    port->shut_down();
    port->release();
  }
  if (!listener) {
    return;
  }
  if (!listener->close()) {
    delete listener;
    listener_closed();
  }
  for (ServerConnection* connection : open_connections()) {
    connection->shut_down();
    connection->release();
  }
}

std::vector<ServerConnection*> Server::open_connections() const {
  MutexLock lock(mutex_);
  std::vector<ServerConnection*> connections(open_.begin(), open_.end());
  for (ServerConnection* connection : connections) {
    connection->retain();
  }
  return connections;
}

bool Server::inside_own_series() const {
  const SeriesWork* series = ThreadContext::current().series;
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

// Whether the calling thread is one that this server cannot end without.
bool Server::would_wait_for_itself() const {
  const ThreadContext& context = ThreadContext::current();
  // A poller's thread runs user code only to make or delete connections, unless it is away.
  const bool is_polling = context.poller && !context.away_from;
  if (!is_polling && giving_back_for != this && !inside_own_series()) {
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

// Whether or not it comes from a poller, a limit holds S to end the wait.
class Server::Limit final : public TimerNode {
 public:
  explicit Limit(Server& server) : server_(server) {}

  void left_queue(bool /*stopped*/, RunnableList& /*finished*/) override {
    MutexLock lock(server_.mutex_);
    passed = true;
    server_.changed_.notify_all();
  }

  bool passed = false;  // guarded by S

 private:
  Server& server_;
};

void Server::wait_within(int timeout_ms, Condition ended) {
  LendingCondition::Waiter waiter;
  Limit limit(*this);
  MutexLock lock(mutex_);
  bool queued = false;
  if (timeout_ms >= 0 && runtime_) {
    queued =
        runtime_->own_poller().start_timer(&limit, timeout_ms * kNsPerMs) == Poller::Start::kQueued;
    limit.passed = !queued;
  }
  // Once the runtime has stopped, what a series still waits for will not come.
  while (runtime_ && !runtime_stopped_ && !limit.passed && !(this->*ended)()) {
    changed_.wait(mutex_, waiter);
  }
  if (queued && Poller::cancel_timer(&limit) == Poller::Cancel::kTooLate) {
    while (!limit.passed) {
      changed_.wait(mutex_, waiter);
    }
  }
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
    runtime->remove_intake(this);
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
  RunnableList ended;
  for (ServerConnection* connection : open_connections()) {
    result.cut_short += connection->cut_short(action, unavailable, ended);
    connection->release();
  }
  TimerTask::end_interrupted(ended);
  wait_within(params().linger_timeout, &Server::is_finished);
  for (ServerConnection* connection : open_connections()) {
    result.cut_short += connection->close_now();
    connection->release();
  }
  // Closed they are soon; what else runs has this long to notice.
  wait_within(params().linger_timeout, &Server::is_finished);
  {
    MutexLock lock(mutex_);
    result.running = alive_;
  }
  forget_runtime();
  return result;
}

void Server::runtime_stopped() {
  std::vector<ServerConnection*> left;
  DatagramPort* port = nullptr;
  {
    MutexLock lock(mutex_);
    port = std::exchange(port_, nullptr);
    left.assign(open_.begin(), open_.end());
    open_.clear();
  }
  for (ServerConnection* connection : left) {
    connection->end_with_runtime();
  }
  if (port) {
    port->end_with_runtime();
  }
  MutexLock lock(mutex_);
  runtime_stopped_ = true;
  changed_.notify_all();
}

size_t Server::connection_count() const {
  MutexLock lock(mutex_);
  return port_ ? port_->under_way() : alive_;
}

int Server::listening_fd() const {
  if (listener_) {
    return listener_->fd();
  }
  return port_ && !port_->shutting_down() ? port_->fd() : -1;
}

int Server::listen_addr(struct sockaddr* address, socklen_t* length) const {
  MutexLock lock(mutex_);
  const int fd = listening_fd();
  if (fd < 0) {
    errno = ENOTCONN;
    return -1;
  }
  struct sockaddr_storage storage;
  socklen_t actual = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&storage), &actual) < 0) {
    return -1;
  }
  if (*length < actual) {
    errno = ENOBUFS;
    return -1;
  }
  std::copy_n(reinterpret_cast<const char*>(&storage), actual, reinterpret_cast<char*>(address));
  *length = actual;
  return 0;
}

}  // namespace workflow
