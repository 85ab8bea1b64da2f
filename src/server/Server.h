#pragma once

#include <cstddef>
#include <unordered_set>

#include "kernel/LendingCondition.h"
#include "kernel/Listener.h"
#include "kernel/Runtime.h"
#include "kernel/TlsContext.h"
#include "server/ServerConnection.h"
#include "util/Mutex.h"
#include "util/UniqueFd.h"
#include "workflow/WFServer.h"

namespace workflow {

// The inside of a WFServerBase: its listener and its connections.
//
// Thread-safe. S is mutex_; no connection is called and nothing is waited for, but on changed_,
// while it is held.
class Server final : public ServerHost, public Intake {
 public:
  explicit Server(WFServerBase& face) : face_(face) {}
  ~Server() = default;

  // Accepts on a listening socket; with a context, TLS. 0, or -1 with errno.
  int open(UniqueFd listen_fd, TlsContext tls);
  bool is_open() const;
  void shut_down();
  void wait();

  size_t connection_count() const;
  int listen_addr(struct sockaddr* address, socklen_t* length) const;

  // ServerHost
  const WFServerParams& params() const override { return face_.params_; }
  SSL_CTX* tls_context() const override { return tls_.get(); }
  ServerExchange* new_exchange() override { return face_.new_exchange(); }
  void connection_closed(ServerConnection* connection) override;
  void connection_gone(WFConnection* user) override;

  // Intake
  void close_intake() override { shut_down(); }
  void runtime_stopped() override;

 private:
  void accept(UniqueFd fd);
  void listener_closed();
  bool inside_own_series() const;
  bool would_wait_for_itself() const;

  WFServerBase& face_;
  TlsContext tls_;       // constant while started
  mutable Mutex mutex_;  // S
  LendingCondition changed_;
  Runtime* runtime_ WF_GUARDED_BY(mutex_) = nullptr;    // while started
  Listener* listener_ WF_GUARDED_BY(mutex_) = nullptr;  // until it is asked to close
  bool runtime_stopped_ WF_GUARDED_BY(mutex_) = false;
  bool listening_ WF_GUARDED_BY(mutex_) = false;  // until it has closed
  std::unordered_set<ServerConnection*> open_ WF_GUARDED_BY(mutex_);
  size_t alive_ WF_GUARDED_BY(mutex_) = 0;  // connections not yet gone
  size_t max_connections_ WF_GUARDED_BY(mutex_) = 0;
  size_t next_poller_ WF_GUARDED_BY(mutex_) = 0;
};

}  // namespace workflow
