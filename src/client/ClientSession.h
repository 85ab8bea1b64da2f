#pragma once

#include <memory>

#include "client/ClientConnection.h"
#include "kernel/ResolveRequest.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

class ClientEndpoint;
class ClientHub;
class SessionLocation;

// Carries one exchange out: finds the host's addresses, then a connection, and tries again where
// that is safe. Deletes itself after it has ended the exchange.
//
// A session has one owner at any time, and only the owner calls it: its creator, the resolver, the
// queue of an endpoint, or a connection.
class ClientSession final : public ResolveRequest {
 public:
  ClientSession(ClientExchange* exchange, const ClientTarget& target, int retry_max);

  // Begins the first try, or the next one.
  void proceed(RunnableList& finished);

  ClientExchange* exchange() { return exchange_; }

  // Null if the exchange is in no scope.
  SessionLocation* location() const { return exchange_->location_.get(); }
  // The errno value with which the session must end now, or 0.
  int end_reason() const { return location() ? exchange_->end_reason() : 0; }

  // Called by a connection that is about to carry the exchange. `sequence`: how many exchanges the
  // connection has carried before.
  void use(ClientConnection* connection, long long sequence);

  // Report the end of a try. The owner does not touch the session afterwards.
  void done(RunnableList& finished);
  void failed(const ClientFailure& failure, RunnableList& finished);

 private:
  ~ClientSession() = default;

  void resolved(int error, HostAddresses addresses) override;
  void resolve(RunnableList& finished);
  std::shared_ptr<ClientEndpoint> find_endpoint();
  // Whether another try follows. If not, this ends the session: with the reason of the task's scope
  // if that has ended meanwhile, or else with the failure.
  bool goes_on_after(const ClientFailure& failure, RunnableList& finished);
  bool may_try_again(const ClientFailure& failure);
  void forget_addresses();
  // The address of the current try.
  HostAddress address() const;
  bool has_choice() const { return addresses_ && addresses_->size() > 1; }
  // Called after a try that made no connection.
  void note_failed(const ClientFailure& failure);
  int64_t now_ns() const;
  void end(int state, int error, int timeout_reason, RunnableList& finished);

  ClientHub& hub_;
  ClientExchange* const exchange_;
  ClientTarget target_;
  int retries_left_;
  HostAddresses addresses_;
  size_t next_address_ = 0;
  bool fresh_ = false;  // needs a new connection, because one that was kept has failed
  bool sent_ = false;   // the peer may have received a part of the request
};

}  // namespace workflow
