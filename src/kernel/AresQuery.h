#pragma once

#include <ares.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/HostAddress.h"
#include "kernel/Poller.h"

namespace workflow {

// One question to one name server: c-ares composes, sends and understands messages, asks again by
// TCP when an answer is cut off, follows aliases; its sockets live on a poller.
//
// It knows no time: its owner cancels it when it has waited enough. c-ares could retry by itself,
// but by a clock of its own; and its sockets would serve many questions, so that who wants to forge
// an answer would have one port to guess and not one for each question.
//
// Owned by whoever asks. Poller's thread only: c-ares locks nothing.
//
// Invariants:
// 1. on_answer is called at most once, outside of c-ares's calls, as the last thing the query does:
//    the owner may destroy it then. It is not called when start() or cancel() has said the end.
// 2. A socket that c-ares has closed is open until the poller has retired it, so no event meets
//    another socket of the same number.
class AresQuery {
 public:
  struct Result {
    // 0 with addresses; EAI_NONAME, EAI_NODATA: the server's word that there are none. Otherwise
    // this server could not say (EAI_AGAIN, EAI_FAIL), or the process is short of something
    // (EAI_MEMORY; EAI_SYSTEM with `system_error`).
    int error = 0;
    int system_error = 0;
    std::vector<HostAddress> addresses = {};
    int64_t ttl_ns = 0;
  };

  class Owner {
   public:
    virtual void on_answer() = 0;

   protected:
    ~Owner() = default;
  };

  // So many addresses of each family are kept of one answer.
  static constexpr size_t kMaxAddresses = 32;

  AresQuery(Poller& poller, const HostAddress& server, Owner& owner);
  ~AresQuery();
  AresQuery(const AresQuery&) = delete;
  AresQuery& operator=(const AresQuery&) = delete;

  // Once. Asks for the addresses of `name`, as it is, of the family or of both (AF_UNSPEC). True
  // when it has ended already.
  bool start(const std::string& name, int family);

  // Waits no longer, whether it has ended or not. What has come by now, perhaps of one family only,
  // is the result.
  void cancel();

  // After the end. May throw std::bad_alloc.
  Result result() const;

 private:
  class Socket;
  // What c-ares calls.
  static ares_socket_t open_socket(int domain, int type, int protocol, void* self);
  static int close_socket(ares_socket_t fd, void* self);
  static int connect_socket(ares_socket_t fd, const struct sockaddr*, ares_socklen_t, void* self);
  static ares_ssize_t receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                              struct sockaddr* from, ares_socklen_t* length, void* self);
  static ares_ssize_t send(ares_socket_t fd, const struct iovec* parts, int count, void* self);
  static void socket_state(void* self, ares_socket_t fd, int readable, int writable);
  static void answered(void* self, int status, int timeouts, struct ares_addrinfo* info);

  bool open_channel();
  bool set_server();
  void process(int fd, uint32_t events);
  Socket* find(int fd) const;

  Poller& poller_;
  const HostAddress server_;
  Owner& owner_;
  ares_channel channel_ = nullptr;
  std::vector<Socket*> sockets_;  // not yet closed by c-ares
  bool ended_ = false;
  int status_ = ARES_ETIMEOUT;
  int system_error_ = 0;  // why a socket could not be had, the last time
  struct ares_addrinfo* info_ = nullptr;
};

}  // namespace workflow
