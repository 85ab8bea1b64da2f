#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "client/ClientConnection.h"
#include "client/SessionQueue.h"
#include "client/TlsSessions.h"
#include "kernel/Poller.h"
#include "kernel/Stream.h"
#include "util/Mutex.h"
#include "workflow/ClientExchange.h"

namespace workflow {

class ClientHub;
class ClientSession;
class EarlyEnd;

// One address that clients talk to in one way: its connections, idle or not, and the sessions that
// wait for one because there are as many as there may be.
//
// Thread-safe. E is mutex_; no connection and no session is called under it. Order E, then P.
class ClientEndpoint final : public std::enable_shared_from_this<ClientEndpoint> {
 public:
  // `key`: what the hub knows it by.
  ClientEndpoint(ClientHub& hub, std::string key, const ClientTarget& target,
                 const struct sockaddr* address, socklen_t length);
  ~ClientEndpoint();

  const std::string& key() const { return key_; }
  const struct EndpointParams& params() const { return params_; }
  enum TransportType transport() const { return transport_; }
  bool is_tls() const { return is_tls_; }
  const struct sockaddr* address() const {
    return reinterpret_cast<const struct sockaddr*>(&address_);
  }
  socklen_t address_length() const { return address_length_; }
  const std::string& tunnel_request() const { return tunnel_request_; }

  enum class Acquire {
    kUnderWay,  // a connection, or the wait for one, has the session now
    kFailed,    // the session stays the caller's
    kRetired    // the same; there may be another endpoint for the address
  };
  // Finds or makes a connection for the session, or has it wait for one. `fresh`: a new one; if
  // there are as many as may be an idle one is closed to make room for it.
  Acquire acquire(ClientSession* session, bool fresh, ClientFailure* failure);

  // Of connections, on the poller's thread. An idle one is for the next session.
  void returned(ClientConnection* connection, RunnableList& finished);
  // It will close soon: gone() will be called. Any thread.
  void closes(ClientConnection* connection);
  // It closes.
  void gone(ClientConnection* connection);

  // The session, which may be gone, ends if it waits for a connection. On a handler.
  void interrupt(const EarlyEnd* early_end);

  // Makes a connected stream one over TLS; resumes the last session. False without memory.
  bool begin_tls(Stream& stream);
  // Not under the connection's lock.
  void keep_tls_session(TlsSessions::Kept kept);
  // It may be why a handshake failed.
  void forget_tls_session();

  // The runtime stops: everything ends as aborted.
  void abort_all();
  void end_with_runtime();

  ClientHub& hub() const { return hub_; }
  // Then no time limit can be set any more.
  bool runtime_stops() const;

  // When nothing is connected or waits: nothing will be any more.
  bool retire_if_unused();

 private:
  // A session's place in the queue, and its time limit. Whoever takes it out of the queue, under E,
  // owns the session; who of the timer's end and the taker comes second frees it.
  class Waiter;
  struct Wait {
    int64_t until_ns;
  };

  // As the public one. With `wait`, of a session that was the first in the queue, and got a
  // connection that has closed: it is the first again, for what is left of its time.
  Acquire acquire(ClientSession* session, bool fresh, const Wait* wait, ClientFailure* failure);
  // open_ counts the new connection already.
  Acquire connect(ClientSession* session, ClientFailure* failure);
  // False without memory. `*closed`: the runtime stops.
  bool add(ClientConnection* connection, bool* closed);
  // `displaced`: an idle connection to be closed for it, with a reference, or null.
  Acquire enqueue(ClientSession* session, bool fresh, const Wait* wait,
                  ClientConnection** displaced, ClientFailure* failure) WF_REQUIRES(mutex_);
  // `wait`, if not null: how long it would have gone on waiting.
  ClientSession* take(SessionPlace* place, Wait* wait = nullptr) WF_REQUIRES(mutex_);
  // False when it is in the queue no more.
  bool leave_queue(SessionPlace* place) WF_REQUIRES(mutex_);
  void note_closing(ClientConnection* connection) WF_REQUIRES(mutex_);
  // A connection less, or none made: the next session's turn.
  void connect_next(RunnableList& finished);

  ClientHub& hub_;
  const std::string key_;
  const struct EndpointParams params_;
  struct sockaddr_storage address_ = {};
  const socklen_t address_length_;
  const enum TransportType transport_;
  const bool is_tls_;
  SSL_CTX* const tls_context_;  // a reference
  const std::string tls_host_;
  const std::string alpn_;  // as SSL_set_alpn_protos(3) takes it
  const std::string tunnel_request_;

  mutable Mutex mutex_;                                        // E
  std::vector<ClientConnection*> idle_ WF_GUARDED_BY(mutex_);  // the last used last
  std::unordered_set<ClientConnection*> all_ WF_GUARDED_BY(mutex_);
  size_t open_ WF_GUARDED_BY(mutex_) = 0;
  SessionQueue waiting_ WF_GUARDED_BY(mutex_);
  // Of all_, those that are known to close soon. No fewer than what is promised in waiting_.
  size_t closing_ WF_GUARDED_BY(mutex_) = 0;
  bool closed_ WF_GUARDED_BY(mutex_) = false;
  bool retired_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
