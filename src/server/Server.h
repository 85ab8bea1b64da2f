#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/LendingCondition.h"
#include "kernel/Listener.h"
#include "kernel/OriginProcess.h"
#include "kernel/Runtime.h"
#include "kernel/TlsContext.h"
#include "server/DatagramPort.h"
#include "server/ServerConnection.h"
#include "util/Cursors.h"
#include "util/Mutex.h"
#include "util/UniqueFd.h"
#include "workflow/WFServer.h"

namespace workflow {

// The implementation of WFServerBase: its listener and its connections, or its port for datagrams.
//
// In a child of fork(2) a server of the parent counts as closed, and stays as it is for ever: it is
// neither opened nor destroyed. A start there makes another one (WFServerBase::open()).
//
// Thread-safe. While a thread holds mutex_ it calls no connection, and waits for nothing but
// changed_.
class Server final : public ServerHost, public Service {
 public:
  explicit Server(WFServerBase& interface) : interface_(interface) {}
  ~Server() = default;

  // Whether this was made before a fork(2) and this process is the child.
  bool belongs_to_parent_process() const { return origin_.is_parent(); }

  // Accepts connections on a listening socket, or reads datagrams. Uses TLS if `tls` holds a
  // context. Returns 0, or -1 with errno.
  int open(UniqueFd listen_fd, TlsContext tls);
  bool is_open() const;
  // Called before the server is destroyed. If a part of it still runs, ends the process with a
  // message.
  void require_finished() const;
  void shut_down();
  void wait();
  struct WFStopResult stop_within(int timeout_ms, enum WFStopAction action,
                                  const std::string& unavailable);

  size_t connection_count() const;
  int listen_addr(struct sockaddr* address, socklen_t* length) const;

  // ServerHost
  const WFServerParams& params() const override { return interface_.params_; }
  SSL_CTX* tls_context() const override { return tls_.get(); }
  bool may_serve(const char* host, const SSL_CTX* context) override;
  ServerExchange* new_exchange() override { return interface_.new_exchange(); }
  void connection_closed(ServerConnection* connection, Ref<DeadlineScope> still_runs) override;
  void request_gone(ServerConnection* connection) override;
  void connection_gone(WFConnection* user) override;
  WFConnection* new_user(int fd) override { return interface_.new_connection(fd); }
  void give_back(WFConnection* user) override;
  void port_closing() override;
  void port_gone() override { listener_closed(); }

  // Service
  void refuse_new_work() override { shut_down(); }
  void runtime_stopped() override;

 private:
  class Limit;

  // At the limit of connections, up to this many further ones may be open while those that make
  // room for them close.
  static constexpr size_t kMaxMakingRoom = 32;
  // look_for_idle() goes through all connections, and notes at most this many idle ones.
  static constexpr size_t kMaxIdleNoted = 64;
  // It is not called again for this long per open connection, so that a flood of clients does not
  // make it use all the time.
  static constexpr int64_t kLookRestNs = 1'000;

  bool listen(Runtime& runtime, UniqueFd fd) WF_REQUIRES(mutex_);
  int listening_fd() const WF_REQUIRES(mutex_);
  void accept(UniqueFd fd);
  // Connections that threads go through step by step; guarded by the Server lock.
  struct List {
    void add(ServerConnection* connection);
    // Returns false if the connection is in no list.
    bool remove(ServerConnection* connection);

    ServerConnection* first = nullptr;
    Cursors<ServerConnection> cursors;  // the walks of for_each()
  };

  // Adds a connection to the list of open ones. Returns false if the server has been shut down.
  bool enter(ServerConnection* connection);
  void listener_closed();
  bool inside_own_series() const;
  // If so, prints a message on stderr and sets errno.
  bool would_wait_for_itself() const;
  // Calls function(object) for each connection of a list, without mutex_. Before that,
  // get(connection) under mutex_ returns a reference to the object. May leave out connections that
  // are added meanwhile. Allocates nothing, so that a server can be stopped when memory has run
  // out.
  template <class Get, class Function>
  void for_each(List Server::*which, Get get, Function function);
  // Like for_each(), for the open connections.
  template <class Function>
  void for_each_open(Function function);
  // Ends the scopes of requests whose connections are closed while their series run.
  void end_scopes_that_still_run();
  Ref<DatagramPort> retained_port() const;
  // Whether nothing is left that would touch the server.
  bool is_finished() const WF_REQUIRES(mutex_) {
    return !listening_ && alive_ == 0 && shutting_down_ == 0;
  }
  // Returns when the condition holds, when the runtime has stopped, or after `timeout_ms`; -1 means
  // no time limit.
  using Condition = bool (Server::*)() const;
  void wait_within(int timeout_ms, Condition ended);
  // If the server is finished, or the runtime has stopped: leaves the runtime, so that the server
  // can be started again.
  void forget_runtime();
  // Returns the connection that has been idle for longest, or null.
  Ref<ServerConnection> take_oldest_idle() WF_REQUIRES(mutex_);
  void look_for_idle() WF_REQUIRES(mutex_);

  // The server whose connection this thread is giving back to the user, or null.
  static inline thread_local const Server* giving_back_for_ = nullptr;

  WFServerBase& interface_;
  const OriginProcess origin_;
  TlsContext tls_;  // constant while started
  mutable Mutex mutex_;
  LendingCondition changed_;
  Runtime* runtime_ WF_GUARDED_BY(mutex_) = nullptr;    // while started
  Listener* listener_ WF_GUARDED_BY(mutex_) = nullptr;  // until it is asked to close
  DatagramPort* port_ WF_GUARDED_BY(mutex_) = nullptr;  // until it closes
  bool runtime_stopped_ WF_GUARDED_BY(mutex_) = false;
  bool listening_ WF_GUARDED_BY(mutex_) = false;  // until the listener or port has closed
  List open_ WF_GUARDED_BY(mutex_);
  size_t open_count_ WF_GUARDED_BY(mutex_) = 0;
  List still_running_ WF_GUARDED_BY(mutex_);     // closed, but the series of the request still runs
  size_t alive_ WF_GUARDED_BY(mutex_) = 0;       // connections not yet gone
  int shutting_down_ WF_GUARDED_BY(mutex_) = 0;  // threads in shut_down()
  size_t max_connections_ WF_GUARDED_BY(mutex_) = 0;
  // Some open connections that were idle, and since when. The one idle for longest is last.
  struct Idle {
    int64_t since_ns;
    ServerConnection* connection;
  };
  std::vector<Idle> idle_ WF_GUARDED_BY(mutex_);
  int64_t next_look_ns_ WF_GUARDED_BY(mutex_) = 0;
  size_t next_poller_ WF_GUARDED_BY(mutex_) = 0;
};

template <class Get, class Function>
void Server::for_each(List Server::*which, Get get, Function function) {
  MutexLock lock(mutex_);
  List& list = this->*which;
  Cursors<ServerConnection>::Cursor walk;
  list.cursors.begin(&walk, list.first);
  while (ServerConnection* const connection = walk.next) {
    walk.next = connection->place.next;
    auto kept = get(connection);
    lock.unlock();
    function(kept.get());
    kept = nullptr;  // without the lock
    lock.lock();
  }
  list.cursors.end(&walk);
}

template <class Function>
void Server::for_each_open(Function function) {
  for_each(
      &Server::open_, [](ServerConnection* connection) { return Ref(connection); }, function);
}

}  // namespace workflow
