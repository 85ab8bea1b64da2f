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

// The question for the addresses of one name, put to one name server: one message for each family.
//
// c-ares composes and sends the messages, finds the answers by server, identifier and question, and
// asks again by TCP if an answer is truncated. It does not interpret them: c-ares accepts records
// of unrelated names and takes an unknown response code for an empty answer, so DnsMessage does
// that.
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

  // Once. Asks for the addresses of `name`, as it is, of the family or of both (AF_UNSPEC). True
  // when it has ended already, in which case on_answer() is not called.
  bool start(const std::string& name, int family);

  // Waits no longer, whether it has ended or not. What is not answered by now remains unanswered.
  void cancel();

  // After the end. What came of the question for the addresses of `family`, which start() was to
  // ask for; EAI_AGAIN if there is no answer. May throw std::bad_alloc.
  DnsAnswer answer(int family) const;

 private:
  class Socket;
  struct Question {
    AresQuery* query = nullptr;  // null while it is being destroyed
    int status = ARES_ETIMEOUT;  // c-ares's; counts if there is no message
    std::string message = {};
  };

  // What c-ares calls.
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
  size_t unanswered_ = 0;              // of those that were asked
  int system_error_ = 0;               // why a socket could not be had, the last time
};

}  // namespace workflow
