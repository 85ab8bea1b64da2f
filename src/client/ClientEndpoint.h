#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "client/ClientConnection.h"
#include "client/ClientTls.h"
#include "client/SessionQueue.h"
#include "kernel/Poller.h"
#include "util/Mutex.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

class ClientHub;
class ClientSession;
class SessionLocation;

// One address that clients talk to in one way: its connections, idle or not, and the sessions that
// wait for a connection because the limit of connections is reached.
//
// Thread-safe. A thread that holds mutex_ takes no lock of a connection. Order: mutex_, then the
// SessionLocation lock or the PollerTimers lock.
class ClientEndpoint final : public std::enable_shared_from_this<ClientEndpoint> {
 public:
  // `key`: the key by which the hub finds this endpoint.
  ClientEndpoint(ClientHub& hub, std::string key, const ClientTarget& target,
                 const struct sockaddr* address, socklen_t length);

  const std::string& key() const { return key_; }
  const struct EndpointParams& params() const { return params_; }
  enum TransportType transport() const { return transport_; }
  // Null: the connections do not use TLS.
  const ClientTls* tls() const { return tls_ ? &*tls_ : nullptr; }
  const struct sockaddr* address() const {
    return reinterpret_cast<const struct sockaddr*>(&address_);
  }
  socklen_t address_length() const { return address_length_; }
  const std::string& tunnel_request() const { return tunnel_request_; }
  // Null if there is none.
  const ClientGreeting* greeting() const { return greeting_.get(); }

  enum class Acquire {
    kUnderWay,  // a connection, or the wait for one, has the session now
    kFailed,    // the session stays the caller's
    kRetired    // the session stays the caller's; look the endpoint up again
  };
  // Finds or makes a connection for the session, or has it wait for one. `fresh`: the session needs
  // a new connection. If there is no room for one, an idle connection is closed to make room.
  Acquire acquire(ClientSession* session, bool fresh, ClientFailure* failure);

  // Called by a connection, on its poller's thread: it is idle now. The endpoint gives it to the
  // next session, or keeps it, or closes it to make room.
  void returned(ClientConnection* connection, RunnableList& finished);
  // Called by a connection that will close soon: gone() will follow. Any thread.
  void closes(ClientConnection* connection);
  // Called by a connection that closes, on its poller's thread.
  void gone(ClientConnection* connection);

  // If the session of that location waits for a connection here, it ends with `reason`.
  void cancel(const SessionLocation& location, int reason);

  // The runtime stops: everything ends as aborted, but for connections that outlast the stop.
  void abort_all();
  void end_with_runtime();

  ClientHub& hub() const { return hub_; }
  // Once this is true, no time limit can be set any more.
  bool runtime_stops() const;

  // If there is no connection and nothing waits, retires the endpoint: every later acquire()
  // returns kRetired. Returns whether it is retired.
  bool retire_if_unused();

 private:
  // A session's place in the queue, and its time limit. The thread that takes it out of the queue,
  // under mutex_, owns the session. The waiter is freed by the taker if the taker could cancel the
  // timer, and otherwise when the timer ends.
  class Waiter;
  struct Wait {
    int64_t until_ns;
  };

  // Does what the public acquire() does. `wait` is not null for a session that was the first in the
  // queue and got a connection that turned out to be closed. If such a session has to wait again,
  // it is the first again, for what is left of its time.
  Acquire acquire(ClientSession* session, bool fresh, const Wait* wait, ClientFailure* failure);
  // Makes a new connection, which open_ counts already.
  Acquire connect(ClientSession* session, ClientFailure* failure);
  // Returns false if there is no memory. Sets `*closed` to whether the runtime stops.
  bool add(ClientConnection* connection, bool* closed);
  // Sets `*displaced` to an idle connection that the caller has to close to make room, or leaves it
  // as it is.
  Acquire enqueue(ClientSession* session, bool fresh, const Wait* wait,
                  Ref<ClientConnection>* displaced, ClientFailure* failure) WF_REQUIRES(mutex_);
  // Takes a session out of the queue and returns it; null if `place` is null. Sets `*wait`, if
  // given, to the time until which the session would have waited.
  ClientSession* take(SessionPlace* place, Wait* wait = nullptr) WF_REQUIRES(mutex_);
  // Returns false if the place is not in the queue any more.
  bool leave_queue(SessionPlace* place) WF_REQUIRES(mutex_);
  void note_closing(ClientConnection* connection) WF_REQUIRES(mutex_);
  // There is room for a connection, because one has closed or could not be made: connects for the
  // sessions that wait.
  void connect_next(RunnableList& finished);

  ClientHub& hub_;
  const std::string key_;
  const struct EndpointParams params_;
  struct sockaddr_storage address_ = {};
  const socklen_t address_length_;
  const enum TransportType transport_;
  const bool outlasts_stop_;
  const std::string tunnel_request_;
  const std::shared_ptr<const ClientGreeting> greeting_;
  std::optional<ClientTls> tls_;  // constant

  mutable Mutex mutex_;
  std::vector<ClientConnection*> idle_ WF_GUARDED_BY(mutex_);  // the most recently used is last
  std::unordered_set<ClientConnection*> all_ WF_GUARDED_BY(mutex_);
  size_t open_ WF_GUARDED_BY(mutex_) = 0;
  SessionQueue waiting_ WF_GUARDED_BY(mutex_);
  // How many connections of all_ are known to close soon. Not less than waiting_.promised().
  size_t closing_ WF_GUARDED_BY(mutex_) = 0;
  bool closed_ WF_GUARDED_BY(mutex_) = false;
  bool retired_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
