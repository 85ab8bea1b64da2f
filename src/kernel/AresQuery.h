#pragma once

#include <ares.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/DnsMessage.h"
#include "kernel/HostAddress.h"
#include "kernel/Poller.h"

namespace workflow {

// A query for the addresses of one name, sent to one name server: one message for each family.
//
// c-ares composes and sends the messages, matches answers by server, identifier and question, and
// asks again over TCP if an answer is truncated. It does not interpret them: c-ares accepts records
// of unrelated names and takes an unknown response code for an empty answer, so DnsMessage does
// that.
//
// A query has no time limit: its owner cancels it after waiting long enough. The retries of c-ares
// are not used, for two reasons. They go by a clock of their own. And each socket would serve many
// questions, so that an attacker who forges answers would have to guess one port only, not one for
// each question.
//
// Owned by the object that asks. Used on the poller's thread only, because c-ares has no locks.
//
// Invariants:
// 1. on_answer is called at most once, outside of c-ares's calls, as the last thing the query does:
//    the owner may destroy it then. It is not called if start() has returned true, or after
//    cancel().
// 2. A socket that c-ares has closed is open until the poller has retired it, so no event meets
//    another socket of the same number.
class AresQuery {
 public:
  class Owner {
   public:
    virtual void on_answer() = 0;

   protected:
    ~Owner() = default;
  };

  AresQuery(Poller& poller, const HostAddress& server, Owner& owner);
  ~AresQuery();
  AresQuery(const AresQuery&) = delete;
  AresQuery& operator=(const AresQuery&) = delete;

  // To be called once. Asks for the addresses of exactly this `name`, of the family or of both
  // (AF_UNSPEC). Returns true if the query has ended already; then on_answer() is not called.
  bool start(const std::string& name, int family);

  // Ends the query if it has not ended. Questions that are not answered by now remain unanswered.
  void cancel();

  // To be called after the end. Returns the result for `family`, which must be one that start() has
  // asked for; EAI_AGAIN if there is no answer. May throw std::bad_alloc.
  DnsAnswer answer(int family) const;

 private:
  class Socket;
  struct Question {
    AresQuery* query = nullptr;  // null while it is being destroyed
    int status = ARES_ETIMEOUT;  // the status from c-ares; used if there is no message
    std::string message = {};
  };

  // Called by c-ares.
  static ares_socket_t open_socket(int domain, int type, int protocol, void* self);
  static int close_socket(ares_socket_t fd, void* self);
  static int connect_socket(ares_socket_t fd, const struct sockaddr*, ares_socklen_t, void* self);
  static ares_ssize_t receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                              struct sockaddr* from, ares_socklen_t* length, void* self);
  static ares_ssize_t send(ares_socket_t fd, const struct iovec* parts, int count, void* self);
  static void socket_state(void* self, ares_socket_t fd, int readable, int writable);
  static void answered(void* question, int status, int timeouts, unsigned char* message, int size);

  bool open_channel();
  bool set_server();
  void process(int fd, uint32_t events);
  Socket* find(int fd) const;

  Poller& poller_;
  const HostAddress server_;
  Owner& owner_;
  ares_channel channel_ = nullptr;
  std::vector<Socket*> sockets_;  // not yet closed by c-ares
  std::string name_;
  std::array<Question, 2> questions_;  // for IPv4 and IPv6 addresses
  size_t unanswered_ = 0;              // questions that were asked and have no answer yet
  int system_error_ = 0;               // errno of the last failure to create a socket
};

}  // namespace workflow
