#pragma once

#include <memory>
#include <string>

#include "client/ClientConnection.h"
#include "kernel/ResolveRequest.h"
#include "workflow/ClientExchange.h"

namespace workflow {

class ClientEndpoint;
class ClientHub;
class EarlyEnd;

// One exchange on its way: finds the host's addresses, then a connection, and tries again where
// that is safe. Deletes itself when it has told the exchange its end.
//
// At any time one of these has it, and calls it next: its maker, the resolver, an endpoint's queue,
// a connection.
class ClientSession final : private ResolveRequest {
 public:
  ClientSession(ClientExchange* exchange, const ClientTarget& target, int retry_max);

  // Goes on with the next try.
  void proceed(RunnableList& finished);

  ClientExchange* exchange() { return exchange_; }

  // Null: it ends in its own time.
  EarlyEnd* early_end() const { return exchange_->early_end_; }
  // Not 0: why it shall end now.
  int early_error() const;

  // Of a connection that is about to carry the exchange.
  void use(ClientConnection* connection, long long sequence);

  // The last thing done with it by whoever has it.
  void done(RunnableList& finished);
  void failed(const ClientFailure& failure, RunnableList& finished);

 private:
  friend class ClientHub;  // cancels the look-up

  ~ClientSession() = default;

  void resolved(int error, HostAddresses addresses) override;
  void resolve(RunnableList& finished);
  std::shared_ptr<ClientEndpoint> find_endpoint();
  bool may_try_again(const ClientFailure& failure);
  void forget_addresses();
  // The one of the try under way.
  HostAddress address() const;
  bool has_choice() const { return addresses_ && addresses_->size() > 1; }
  // After a try that made no connection.
  void note_failed(const ClientFailure& failure);
  int64_t now_ns() const;
  void end(int state, int error, int timeout_reason, RunnableList& finished);

  ClientHub& hub_;
  ClientExchange* const exchange_;
  ClientTarget target_;
  int retries_left_;
  HostAddresses addresses_;
  size_t next_address_ = 0;
  bool fresh_ = false;  // a connection that was kept has failed: only a new one will do
};

}  // namespace workflow
