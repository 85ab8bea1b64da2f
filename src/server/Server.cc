#include "server/Server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "kernel/DeadlineScope.h"
#include "kernel/Socket.h"
#include "kernel/ThreadContext.h"
#include "workflow/Workflow.h"

namespace workflow {

namespace {

// How many descriptors a server may hold open, so that the process has some left to work with.
size_t descriptor_room() {
  constexpr rlim_t kReserved = 64;
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur > kReserved ? static_cast<size_t>(limit.rlim_cur - kReserved) : 1;
}

}  // namespace

int Server::open(UniqueFd listen_fd, TlsContext tls) {
  Runtime& runtime = Runtime::current();
  MutexLock lock(mutex_);
  if (runtime_) {
    errno = EALREADY;
    return -1;
  }
  if (!runtime.add_service(this)) {
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
    runtime.remove_service(this);
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
  try {
    if (is_datagram(params().transport_type)) {
      port_ = new DatagramPort(*this, poller, std::move(fd));
      return port_->start();
    }
    listener_ = new Listener(
        poller, std::move(fd), [this](UniqueFd accepted) { accept(std::move(accepted)); },
        [this] { listener_closed(); });
    return listener_->start();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return false;
  }
}

bool Server::is_open() const {
  if (belongs_to_parent_process()) return false;
  MutexLock lock(mutex_);
  return runtime_ != nullptr;
}

void Server::accept(UniqueFd fd) {
  Poller* poller = nullptr;
  Ref<ServerConnection> idle;
  {
    MutexLock lock(mutex_);
    if (!listener_) return;
    if (alive_ >= max_connections_) {
      idle = open_count_ < max_connections_ + kMaxMakingRoom ? take_oldest_idle()
                                                             : Ref<ServerConnection>();
      if (!idle) return;
    }
    alive_++;
    poller = &runtime_->poller(next_poller_++ % runtime_->poller_count());
  }
  if (idle) {
    idle->make_room();
  }
  set_no_delay(fd.get(), params().transport_type);
  WFConnection* user = nullptr;
  ServerConnection* connection = nullptr;
  try {
    user = interface_.new_connection(fd.get());
    connection = user ? new ServerConnection(*this, *poller, std::move(fd), user) : nullptr;
  } catch (const std::bad_alloc&) {
    // Without memory the client is turned away.
  }
  if (!connection) {
    connection_gone(user);
    return;
  }
  // The connection may end as soon as other threads can find it, even before start().
  const Ref<ServerConnection> kept(connection);
  const bool open = enter(connection);
  if (!connection->start()) {
    connection_closed(connection, nullptr);
    connection->release();
  } else if (!open) {
    connection->shut_down();
  }
}

bool Server::may_serve(const char* host, const SSL_CTX* context) {
  const SSL_CTX* own = *host != '\0' ? interface_.get_server_ssl_ctx(host) : nullptr;
  if (!own) {
    own = tls_.get();
  }
  return own == context || (SSL_CTX_get_verify_mode(own) & SSL_VERIFY_PEER) == 0;
}

bool Server::enter(ServerConnection* connection) {
  MutexLock lock(mutex_);
  open_.add(connection);
  open_count_++;
  return listener_ != nullptr;
}

void Server::List::add(ServerConnection* connection) {
  ServerConnection::Place& place = connection->place;
  place.is_listed = true;
  place.previous = nullptr;
  place.next = std::exchange(first, connection);
  if (place.next) {
    place.next->place.previous = connection;
  }
}

bool Server::List::remove(ServerConnection* connection) {
  ServerConnection::Place& place = connection->place;
  if (!std::exchange(place.is_listed, false)) return false;
  (place.previous ? place.previous->place.next : first) = place.next;
  if (place.next) {
    place.next->place.previous = place.previous;
  }
  cursors.leaves(connection, place.next);
  return true;
}

Ref<ServerConnection> Server::take_oldest_idle() {
  for (;;) {
    if (idle_.empty()) {
      const int64_t now_ns = runtime_->clock().now_ns();
      if (now_ns < next_look_ns_) return nullptr;
      next_look_ns_ = now_ns + static_cast<int64_t>(open_count_) * kLookRestNs;
      look_for_idle();
      if (idle_.empty()) return nullptr;
    }
    const Idle idle = idle_.back();
    idle_.pop_back();
    if (idle.connection->idle_since_ns() == idle.since_ns) return Ref(idle.connection);
  }
}

// Never notes many more connections than it keeps. A table of all connections would be large, and
// every look would have to allocate it again.
void Server::look_for_idle() {
  const auto younger = [](const Idle& a, const Idle& b) { return a.since_ns > b.since_ns; };
  const auto keep_oldest = [younger](std::vector<Idle>& idle) {
    if (idle.size() > kMaxIdleNoted) {
      const auto oldest = idle.end() - kMaxIdleNoted;
      std::nth_element(idle.begin(), oldest, idle.end(), younger);
      idle.erase(idle.begin(), oldest);
    }
  };
  for (ServerConnection* connection = open_.first; connection;
       connection = connection->place.next) {
    const int64_t since_ns = connection->idle_since_ns();
    if (since_ns != kNever && !connection->shutting_down()) {
      if (idle_.size() == 2 * kMaxIdleNoted) {
        keep_oldest(idle_);
      }
      try {
        idle_.push_back({since_ns, connection});
      } catch (const std::bad_alloc&) {
        break;  // those noted so far are enough
      }
    }
  }
  keep_oldest(idle_);
  std::sort(idle_.begin(), idle_.end(), younger);
}

void Server::connection_closed(ServerConnection* connection, Ref<DeadlineScope> still_runs) {
  MutexLock lock(mutex_);
  if (connection->place.still_runs || !open_.remove(connection)) return;
  open_count_--;
  std::erase_if(idle_, [connection](const Idle& idle) { return idle.connection == connection; });
  if (still_runs) {
    connection->place.still_runs = std::move(still_runs);
    still_running_.add(connection);
  }
}

void Server::request_gone(ServerConnection* connection) {
  MutexLock lock(mutex_);
  if (connection->place.still_runs) {
    still_running_.remove(connection);
  }
}

void Server::give_back(WFConnection* user) {
  const Server* outer = std::exchange(giving_back_for_, this);
  interface_.delete_connection(user);
  giving_back_for_ = outer;
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

void Server::runtime_stopped() {
  DatagramPort* port = nullptr;
  {
    MutexLock lock(mutex_);
    port = std::exchange(port_, nullptr);
  }
  for_each_open([this](ServerConnection* connection) {
    connection_closed(connection, nullptr);
    connection->end_with_runtime();
  });
  if (port) {
    port->end_with_runtime();
  }
  MutexLock lock(mutex_);
  runtime_stopped_ = true;
  changed_.notify_all();
}

size_t Server::connection_count() const {
  if (belongs_to_parent_process()) return 0;
  MutexLock lock(mutex_);
  return port_ ? port_->under_way() : alive_;
}

int Server::listening_fd() const {
  if (listener_) return listener_->fd();
  return port_ && !port_->shutting_down() ? port_->fd() : -1;
}

int Server::listen_addr(struct sockaddr* address, socklen_t* length) const {
  if (belongs_to_parent_process()) {
    errno = ENOTCONN;
    return -1;
  }
  MutexLock lock(mutex_);
  const int fd = listening_fd();
  if (fd < 0) {
    errno = ENOTCONN;
    return -1;
  }
  struct sockaddr_storage storage;
  socklen_t actual = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&storage), &actual) < 0) return -1;
  if (*length < actual) {
    errno = ENOBUFS;
    return -1;
  }
  std::copy_n(reinterpret_cast<const char*>(&storage), actual, reinterpret_cast<char*>(address));
  *length = actual;
  return 0;
}

void Server::shut_down() {
  // The parent goes on serving.
  if (belongs_to_parent_process()) return;
  Listener* listener = nullptr;  // which is still to be deleted
  bool had_listener = false;
  Ref<DatagramPort> port;
  {
    MutexLock lock(mutex_);
    shutting_down_++;
    listener = std::exchange(listener_, nullptr);
    had_listener = listener != nullptr;
    // Under the same lock: what it accepts from here on is closed at once, although another process
    // that has the socket could serve it.
    if (listener && listener->close()) {
      listener = nullptr;  // it deletes itself
    }
    port = Ref(port_);
  }
  if (port) {
    port->shut_down();
    port = nullptr;  // while the server cannot be freed yet
  }
  if (listener) {
    delete listener;
    listener_closed();
  }
  if (had_listener) {
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
    series = parallel ? SeriesScope::joined_by(parallel) : nullptr;
  }
  return false;
}

// Whether this server cannot end before the calling thread goes on.
bool Server::would_wait_for_itself() const {
  const ThreadContext& context = ThreadContext::current();
  // Unless it is away, a poller's thread runs user code only for the connections that it serves.
  const bool is_polling = context.poller && !context.running_for;
  if (!is_polling && giving_back_for_ != this && !inside_own_series()) return false;
  std::fprintf(stderr,
               "workflow: a server's wait_finish() or stop() was called by one of its own "
               "requests or connections; it does not wait\n");
  errno = EDEADLK;
  return true;
}

void Server::wait() {
  if (would_wait_for_itself() || !is_open()) return;
  wait_within(-1, &Server::is_finished);
  forget_runtime();
}

void Server::require_finished() const {
  if (belongs_to_parent_process()) return;
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
  if (would_wait_for_itself() || !is_open()) return result;
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
