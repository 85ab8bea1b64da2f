#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "client/ClientEndpoint.h"
#include "client/FailedAddresses.h"
#include "client/TlsSessions.h"
#include "kernel/Runtime.h"
#include "util/Mutex.h"

namespace workflow {

class SessionLocation;

// The clients of a runtime: its endpoints, and how many sessions are under way.
//
// Thread-safe. Order: mutex_, then the ClientEndpoint lock or the Resolver lock. A session in
// resolving_ is alive as long as mutex_ is held, because it leaves resolving_ before it goes on.
class ClientHub final : public RuntimePart, public Service {
 public:
  ClientHub();
  ~ClientHub() override { runtime_.remove_service(this); }

  Runtime& runtime() { return runtime_; }
  TlsSessions& tls_sessions() { return tls_sessions_; }
  FailedAddresses& failed_addresses() { return failed_addresses_; }
  static ClientHub& current() { return Runtime::current().part<ClientHub>(); }

  // Returns the endpoint of that address for that target. It is always the same one as long as it
  // is used. Null when the runtime stops.
  std::shared_ptr<ClientEndpoint> endpoint(const ClientTarget& target,
                                           const struct sockaddr* address, socklen_t length);
  void forget_if_unused(const std::shared_ptr<ClientEndpoint>& endpoint);

  // Called at the beginning and at the end of each session. session_begins() returns false if the
  // runtime stops: the session has to end at once, as aborted. The end is to be called then, too.
  bool session_begins();
  void session_ended();
  // Called before and after each look-up of a session. session_resolves() returns false as above,
  // or if the session has an end_reason().
  bool session_resolves(ClientSession* session);
  void session_resolved(ClientSession* session);
  // Called after the resolver was asked. Returns true if the session has to end, because the
  // runtime stops or there is an end_reason(), and is the caller's again. Otherwise the session may
  // be gone. refuse_new_work() and cancel() cannot take back what the resolver was not asked yet.
  bool take_back_if_over(ClientSession* session);

  // If the session of that location waits for addresses, it ends with `reason`. It may be gone.
  void cancel(const SessionLocation& location, ClientSession* session, int reason);

  // Service
  void refuse_new_work() override;
  bool finish_work() override;
  void runtime_stopped() override;

 private:
  std::vector<std::shared_ptr<ClientEndpoint>> all_endpoints() const;
  // Takes a session in resolving_ back from the resolver. Returns false if the resolver is just
  // calling the session.
  bool take_back(ClientSession* session) WF_REQUIRES(mutex_);

  Runtime& runtime_;
  TlsSessions tls_sessions_;
  FailedAddresses failed_addresses_;
  mutable Mutex mutex_;
  CondVar ended_;
  std::map<std::string, std::shared_ptr<ClientEndpoint>> endpoints_ WF_GUARDED_BY(mutex_);
  size_t sessions_ WF_GUARDED_BY(mutex_) = 0;
  std::unordered_set<ClientSession*> resolving_ WF_GUARDED_BY(mutex_);
  bool closed_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
