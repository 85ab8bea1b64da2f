#include "client/ClientEndpoint.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "client/ClientHub.h"
#include "client/ClientSession.h"
#include "client/SessionLocation.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskState.h"

namespace workflow {

class ClientEndpoint::Waiter final : public TimerNode, public SessionPlace {
 public:
  Waiter(std::shared_ptr<ClientEndpoint> endpoint, ClientSession* who, bool wants_fresh,
         Wait how_long)
      : SessionPlace(who, wants_fresh), wait(how_long), endpoint_(std::move(endpoint)) {}

  void left_queue(bool stopped, RunnableList& finished) override {
    bool late = false;
    {
      MutexLock lock(endpoint_->mutex_);
      late = endpoint_->leave_queue(this);
    }
    if (late) {
      session->failed({.state = stopped ? WFT_STATE_ABORTED : WFT_STATE_SYS_ERROR,
                       .error = stopped ? 0 : ETIMEDOUT,
                       .timeout_reason = stopped ? TOR_NOT_TIMEOUT : TOR_WAIT_TIMEOUT},
                      finished);
    }
    delete this;
  }

  const Wait wait;

 private:
  const std::shared_ptr<ClientEndpoint> endpoint_;
};

ClientEndpoint::ClientEndpoint(ClientHub& hub, std::string key, const ClientTarget& target,
                               const struct sockaddr* address, socklen_t length)
    : hub_(hub),
      key_(std::move(key)),
      params_(target.params),
      address_length_(length),
      transport_(target.transport),
      outlasts_stop_(target.outlasts_stop),
      tunnel_request_(target.tunnel_request),
      greeting_(target.greeting) {
  std::memcpy(&address_, address, length);
  if (target.is_tls()) {
    tls_.emplace(target, key_, hub.tls_sessions());
  }
}

ClientEndpoint::Acquire ClientEndpoint::acquire(ClientSession* session, bool fresh,
                                                ClientFailure* failure) {
  return acquire(session, fresh, nullptr, failure);
}

ClientEndpoint::Acquire ClientEndpoint::acquire(ClientSession* session, bool fresh,
                                                const Wait* wait, ClientFailure* failure) {
  for (;;) {
    if (const int error = session->end_reason()) {
      *failure = {.state = WFT_STATE_SYS_ERROR, .error = error};
      return Acquire::kFailed;
    }
    Ref<ClientConnection> idle;
    Ref<ClientConnection> displaced;
    Acquire queued = Acquire::kFailed;
    bool full = false;
    {
      MutexLock lock(mutex_);
      if (closed_) {
        *failure = {.state = WFT_STATE_ABORTED};
        return Acquire::kFailed;
      }
      if (retired_) return Acquire::kRetired;
      // While others wait there is room only for an instant, and that belongs to them.
      const bool others_first = wait ? waiting_.promised() > 0 : !waiting_.empty();
      full = open_ >= params_.max_connections || others_first;
      if (!idle_.empty() && !fresh) {
        idle = Ref(idle_.back());
        idle_.pop_back();
      } else if (full) {
        queued = enqueue(session, fresh, wait, &displaced, failure);
      } else {
        open_++;
      }
    }
    if (displaced) {
      displaced->close_idle();
    }
    if (!idle && full) return queued;
    if (!idle) {
      const Acquire connected = connect(session, failure);
      if (connected == Acquire::kFailed) {
        // Others may have queued up behind it.
        RunnableList finished;
        connect_next(finished);
        hub_.runtime().handlers().post(finished);
      }
      return connected;
    }
    const ClientConnection::Begin begun = idle->begin(session, failure);
    if (begun != ClientConnection::Begin::kNotIdle) {
      return begun == ClientConnection::Begin::kBegun ? Acquire::kUnderWay : Acquire::kFailed;
    }
  }
}

ClientEndpoint::Acquire ClientEndpoint::enqueue(ClientSession* session, bool fresh,
                                                const Wait* wait, Ref<ClientConnection>* displaced,
                                                ClientFailure* failure) {
  SessionLocation* const location = session->location();
  if (location) {
    if (const int error = location->in_queue(shared_from_this())) {
      *failure = {.state = WFT_STATE_SYS_ERROR, .error = error};
      return Acquire::kFailed;
    }
  }
  Poller& poller = hub_.runtime().own_poller();
  const int64_t now_ns = poller.clock().now_ns();
  int64_t patience_ns = params_.connect_timeout < 0 ? kNever : params_.connect_timeout * kNsPerMs;
  if (wait && wait->until_ns != kNever) {
    patience_ns = std::max(wait->until_ns - now_ns, int64_t{0});
  }
  Waiter* waiter = new (std::nothrow)
      Waiter(shared_from_this(), session, fresh, Wait{saturating_add(now_ns, patience_ns)});
  const PollerTimers::Start started =
      waiter ? poller.timers().start(waiter, patience_ns) : PollerTimers::Start::kNoMemory;
  if (started != PollerTimers::Start::kQueued) {
    delete waiter;
    *failure = started == PollerTimers::Start::kNoMemory
                   ? ClientFailure{.state = WFT_STATE_SYS_ERROR, .error = ENOMEM}
                   : ClientFailure{.state = WFT_STATE_ABORTED};
    return Acquire::kFailed;
  }
  wait ? waiting_.push_front(waiter) : waiting_.push_back(waiter);
  if (location) {
    location->waiter = waiter;
  }
  if (fresh) {
    if (closing_ <= waiting_.promised() && !idle_.empty()) {
      *displaced = Ref(idle_.front());
      idle_.erase(idle_.begin());
      note_closing(displaced->get());
    }
    if (closing_ > waiting_.promised()) {
      waiting_.promise(waiter);
    }
  }
  return Acquire::kUnderWay;
}

bool ClientEndpoint::leave_queue(SessionPlace* place) {
  if (!waiting_.erase(place)) {
    return false;  // and the session may be gone
  }
  if (SessionLocation* const location = place->session->location()) {
    location->waiter = nullptr;
  }
  return true;
}

ClientSession* ClientEndpoint::take(SessionPlace* place, Wait* wait) {
  if (!place) return nullptr;
  leave_queue(place);
  Waiter* const waiter = static_cast<Waiter*>(place);
  ClientSession* session = waiter->session;
  if (wait) {
    *wait = waiter->wait;
  }
  if (PollerTimers::cancel(waiter) == PollerTimers::Cancel::kTaken) {
    delete waiter;
  }
  return session;
}

ClientEndpoint::Acquire ClientEndpoint::connect(ClientSession* session, ClientFailure* failure) {
  UniqueFd fd = open_socket(transport_, address_.ss_family);
  int error = fd.valid() ? 0 : errno;
  if (error == 0 && is_datagram(transport_) && address_.ss_family == AF_UNIX) {
    // The kernel chooses a name (unix(7), autobind), because the answer needs an address.
    const struct sockaddr_un none = {AF_UNIX, {}};
    if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&none), sizeof none.sun_family) <
        0) {
      error = errno;
    }
  }
  if (error == 0 && ::connect(fd.get(), address(), address_length_) < 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    error = errno;
  }
  ClientConnection* connection = nullptr;
  if (error == 0) {
    connection = new (std::nothrow)
        ClientConnection(shared_from_this(), hub_.runtime().own_poller(), std::move(fd), session);
    error = connection ? 0 : ENOMEM;
  }
  if (connection) {
    // The connection may end as soon as other threads can find it.
    const Ref<ClientConnection> kept(connection);
    bool closed = false;
    const bool added = add(connection, &closed);
    errno = ENOMEM;
    if (added && connection->start()) {
      if (closed) {
        connection->abort();
      }
      return Acquire::kUnderWay;
    }
    error = errno;
    {
      MutexLock lock(mutex_);
      all_.erase(connection);
    }
    connection->discard();
  }
  *failure = {.state = WFT_STATE_SYS_ERROR, .error = error};
  MutexLock lock(mutex_);
  open_--;
  return Acquire::kFailed;
}

bool ClientEndpoint::add(ClientConnection* connection, bool* closed) {
  MutexLock lock(mutex_);
  *closed = closed_;
  try {
    // Reserves a place in idle_, so that returned() needs no memory.
    idle_.reserve(all_.size() + 1);
    all_.insert(connection);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void ClientEndpoint::returned(ClientConnection* connection, RunnableList& finished) {
  ClientSession* next = nullptr;
  Wait wait = {};
  {
    MutexLock lock(mutex_);
    SessionPlace* place = waiting_.first_unpromised();
    for (; place && place->fresh; place = waiting_.first_unpromised()) {
      if (closing_ <= waiting_.promised()) {
        note_closing(connection);
        waiting_.promise(place);
        break;
      }
      waiting_.promise(place);
    }
    if (!place && !closed_) {
      idle_.push_back(connection);
    }
    if (!place) return;
    next = place->fresh ? nullptr : take(place, &wait);
  }
  if (!next) {
    connection->close_idle();
    return;
  }
  ClientFailure failure = {};
  const ClientConnection::Begin begun = connection->begin(next, &failure);
  // The endpoint is not retired, because this connection is still open.
  if (begun == ClientConnection::Begin::kFailed ||
      (begun == ClientConnection::Begin::kNotIdle &&
       acquire(next, false, &wait, &failure) == Acquire::kFailed)) {
    next->failed(failure, finished);
  }
}

void ClientEndpoint::note_closing(ClientConnection* connection) {
  if (!connection->is_known_to_close && all_.count(connection) > 0) {
    connection->is_known_to_close = true;
    closing_++;
  }
}

void ClientEndpoint::closes(ClientConnection* connection) {
  MutexLock lock(mutex_);
  note_closing(connection);
}

void ClientEndpoint::gone(ClientConnection* connection) {
  const std::shared_ptr<ClientEndpoint> self = shared_from_this();
  {
    MutexLock lock(mutex_);
    all_.erase(connection);
    std::erase(idle_, connection);
    closing_ -= connection->is_known_to_close ? 1 : 0;
    open_--;
  }
  RunnableList finished;
  connect_next(finished);
  hub_.runtime().handlers().post(finished);
  hub_.forget_if_unused(self);
}

void ClientEndpoint::connect_next(RunnableList& finished) {
  for (;;) {
    ClientSession* next = nullptr;
    {
      MutexLock lock(mutex_);
      next = open_ < params_.max_connections ? take(waiting_.next_for_new()) : nullptr;
      if (!next) return;
      open_++;
    }
    ClientFailure failure = {};
    if (connect(next, &failure) == Acquire::kFailed) {
      next->failed(failure, finished);
    }
  }
}

void ClientEndpoint::abort_all() {
  std::vector<Ref<ClientConnection>> connections;
  std::vector<ClientSession*> waiting;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    if (!outlasts_stop_) {
      for (ClientConnection* connection : all_) {
        connections.emplace_back(connection);
      }
    }
    while (ClientSession* session = take(waiting_.next_for_new())) {
      waiting.push_back(session);
    }
  }
  for (const Ref<ClientConnection>& connection : connections) {
    connection->abort();
  }
  RunnableList finished;
  for (ClientSession* session : waiting) {
    session->failed({.state = WFT_STATE_ABORTED}, finished);
  }
  hub_.runtime().handlers().post(finished);
}

void ClientEndpoint::end_with_runtime() {
  std::vector<ClientConnection*> connections;
  {
    MutexLock lock(mutex_);
    connections.assign(all_.begin(), all_.end());
    all_.clear();
    idle_.clear();
  }
  for (ClientConnection* connection : connections) {
    connection->end_with_runtime();
  }
}

void ClientEndpoint::cancel(const SessionLocation& location, int reason) {
  ClientSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    session = take(location.waiter);
  }
  if (session) {
    RunnableList finished;
    session->failed({.state = WFT_STATE_SYS_ERROR, .error = reason}, finished);
    hub_.runtime().handlers().post(finished);
  }
}

bool ClientEndpoint::runtime_stops() const {
  return hub_.runtime().stopping();
}

bool ClientEndpoint::retire_if_unused() {
  MutexLock lock(mutex_);
  retired_ = open_ == 0 && waiting_.empty();
  return retired_;
}

}  // namespace workflow
