#pragma once

#include <memory>

#include "util/Mutex.h"
#include "workflow/detail/Ref.h"

namespace workflow {

class ClientConnection;
class ClientEndpoint;
class ClientExchange;
class ClientHub;
class ClientSession;
class SessionPlace;

// Where the session of an exchange is, so that a canceller finds it there and ends it. An exchange
// has one if its task is inside a scope.
//
// The mutex is a leaf. It may be taken while the mutex of a ClientHub, ClientEndpoint or
// ClientConnection is held.
//
// Invariants:
// 1. The owner of a session ends it, here as everywhere. cancel() takes the session out of the
//    look-ups or out of the queue of an endpoint, and owns it then. If a connection has the
//    session, cancel() asks the connection to end it.
// 2. A session arrives at a place while the lock of that place is held, and only if the exchange
//    has no end_reason() yet. That reason is there before cancel() looks for the place. So either
//    cancel() finds the session, or the session does not arrive, and its owner ends it.
// 3. So once there is a reason the session arrives nowhere any more, and what cancel() has found is
//    where it was last.
// 4. Under the lock of a place, a session is recognised by its SessionLocation, which exists while
//    cancel() runs. The address of the session may be that of another one by then.
class SessionLocation {
 public:
  explicit SessionLocation(const ClientExchange& exchange) : exchange_(exchange) {}
  SessionLocation(const SessionLocation&) = delete;
  SessionLocation& operator=(const SessionLocation&) = delete;

  // The session arrives. Returns 0, or the errno value with which it must end instead.
  int enter_lookup(ClientHub& hub, ClientSession* session);
  int in_queue(std::shared_ptr<ClientEndpoint> endpoint);
  int on_connection(ClientConnection* connection);
  // The session is on its way again, or ends. Called by its owner, with no lock held.
  void leave();

  // Ends the session with `reason`, unless something else does. Called while the exchange is kept
  // alive, with no lock held.
  void cancel(int reason);

  SessionPlace* waiter = nullptr;  // while it is in a queue; guarded by the endpoint's mutex

 private:
  // A queue may be followed by a connection, which counts then; leave() ends both.
  struct Place {
    ClientHub* hub = nullptr;
    ClientSession* session = nullptr;  // with hub
    std::shared_ptr<ClientEndpoint> endpoint;
    Ref<ClientConnection> connection;
  };

  Place place() const;

  const ClientExchange& exchange_;
  mutable Mutex mutex_;
  Place place_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow
