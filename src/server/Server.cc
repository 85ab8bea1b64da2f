#include "server/Server.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>
#include <vector>

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
  Poller& poller = runtime.poller(next_poller_++ % runtime.poller_count());
  listener_ = new Listener(
      poller, std::move(listen_fd), [this](UniqueFd fd) { accept(std::move(fd)); },
      [this] { listener_closed(); });
  if (!listener_->start()) {
    const int error = errno;
    Listener* unstarted = std::exchange(listener_, nullptr);
    lock.unlock();
    delete unstarted;
    runtime.remove_intake(this);
    errno = error;
    return -1;
  }
  runtime_ = &runtime;
  listening_ = true;
  max_connections_ = std::min(params().max_connections, descriptor_room());
  return 0;
}

bool Server::is_open() const {
  MutexLock lock(mutex_);
  return runtime_ != nullptr;
}

void Server::accept(UniqueFd fd) {
  Runtime* runtime = nullptr;
  Poller* poller = nullptr;
  {
    MutexLock lock(mutex_);
    if (!listener_ || alive_ >= max_connections_) {
      return;
    }
    alive_++;
    runtime = runtime_;
    poller = &runtime->poller(next_poller_++ % runtime->poller_count());
  }
  set_no_delay(fd.get());
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

void Server::connection_closed(ServerConnection* connection) {
  MutexLock lock(mutex_);
  open_.erase(connection);
}

void Server::connection_gone(WFConnection* user) {
  if (user) {
    const Server* outer = std::exchange(giving_back_for, this);
    face_.delete_connection(user);
    giving_back_for = outer;
  }
  MutexLock lock(mutex_);
  alive_--;
  if (alive_ == 0) {
    changed_.notify_all();
  }
}

void Server::listener_closed() {
  MutexLock lock(mutex_);
  listening_ = false;
  changed_.notify_all();
}

void Server::shut_down() {
  std::vector<ServerConnection*> connections;
  Listener* listener = nullptr;
  {
    MutexLock lock(mutex_);
    listener = std::exchange(listener_, nullptr);
    if (!listener) {
      return;
    }
    connections.assign(open_.begin(), open_.end());
    for (ServerConnection* connection : connections) {
      connection->retain();
    }
  }
  if (!listener->close()) {
    delete listener;
    listener_closed();
  }
  for (ServerConnection* connection : connections) {
    connection->shut_down();
    connection->release();
  }
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
  return is_polling || giving_back_for == this || inside_own_series();
}

void Server::wait() {
  if (would_wait_for_itself()) {
    std::fprintf(stderr,
                 "workflow: a server's wait_finish() or stop() was called by one of its own "
                 "requests or connections; it does not wait\n");
    errno = EDEADLK;
    return;
  }
  if (!is_open()) {
    return;
  }
  LendingCondition::Waiter waiter;
  Runtime* runtime = nullptr;
  {
    MutexLock lock(mutex_);
    runtime = runtime_;
    // Once the runtime has stopped, what a series still waits for will not come.
    while (runtime_ && !runtime_stopped_ && (listening_ || alive_ > 0)) {
      changed_.wait(mutex_, waiter);
    }
    runtime_ = nullptr;
  }
  if (runtime) {
    runtime->remove_intake(this);
  }
}

void Server::runtime_stopped() {
  std::vector<ServerConnection*> left;
  {
    MutexLock lock(mutex_);
    left.assign(open_.begin(), open_.end());
    open_.clear();
  }
  for (ServerConnection* connection : left) {
    connection->end_with_runtime();
  }
  MutexLock lock(mutex_);
  runtime_stopped_ = true;
  changed_.notify_all();
}

size_t Server::connection_count() const {
  MutexLock lock(mutex_);
  return alive_;
}

int Server::listen_addr(struct sockaddr* address, socklen_t* length) const {
  MutexLock lock(mutex_);
  if (!listener_) {
    errno = ENOTCONN;
    return -1;
  }
  struct sockaddr_storage storage;
  socklen_t actual = sizeof storage;
  if (::getsockname(listener_->fd(), reinterpret_cast<struct sockaddr*>(&storage), &actual) < 0) {
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
