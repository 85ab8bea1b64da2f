#pragma once

#include <ares.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/DnsMessage.h"
#include "kernel/Poller.h"
#include "kernel/ResolvConf.h"
#include "kernel/ResolveRequest.h"

namespace workflow {

// The search for one name's addresses at name servers. All requests for the same name and family
// wait for the same look-up.
//
// c-ares decides which server is asked, how often and for how long. It changes to TCP, and finds
// the message that answers the question. The look-up provides the sockets, their events and the
// time, and keeps these decisions for itself:
// - It reads the messages (DnsMessage). c-ares would not tell an answer without addresses from one
//   whose records make no sense, takes every alias for one of the name, and needs 20 ms for some
//   messages of 64 KiB.
// - Each family is a question of its own, because one may be answered while the other fails.
// - The search list is walked here, for both families together. c-ares would walk it for each
//   question, and the addresses of two families might then belong to two different hosts.
// - The look-up has a c-ares channel of its own, and therefore ports of its own. A channel sends
//   all its questions to a server from one port, until none is unanswered.
//
// Owned by the resolver. After start() the resolver's end() is called exactly once. A look-up that
// was not started may be destroyed without it. Used on the poller's thread only, except for
// `requests`, which the resolver's mutex guards, and the constant members. c-ares has no locks.
//
// The channels of c-ares read no files except /dev/urandom.
//
// Invariants:
// 1. Callbacks of c-ares only note what has happened. proceed() uses it after c-ares has returned,
//    and does nothing after end(). So the channel is never destroyed inside a call of c-ares.
// 2. While a question is unanswered and no member function runs, the timer is in the poller's
//    queue. So the look-up ends in time, and it ends when the poller stops its timers.
// 3. A socket that c-ares has closed stays open until the poller has retired it, so no event meets
//    another socket of the same number.
class DnsLookup final : public Runnable, private TimerNode {
 public:
  class Owner {
   public:
    // The posted look-up has arrived at the poller's thread.
    virtual void begin(DnsLookup& lookup) = 0;
    // The look-up has ended; may destroy it. The error is EAI_CANCELED if the poller has stopped,
    // or if there was no memory to queue the timer.
    virtual void end(DnsLookup& lookup, DnsAnswer answer) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  // `host` must be in lower case. `key` is for the owner's use.
  DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host, int family);
  ~DnsLookup() override;

  const std::string& key() const { return key_; }
  const std::string& host() const { return host_; }
  int family() const { return family_; }
  const ResolvConf* conf() const { return conf_.get(); }
  // Whether this family was asked for, and no server has answered for it.
  bool is_open(int family) const;

  // To be called once. The servers are tried in the order of `conf`, beginning with number
  // `first_server`. The look-up may end before this returns.
  void start(std::shared_ptr<const ResolvConf> conf, size_t first_server);

  ResolveRequestList requests;

 private:
  class Socket;
  struct Question {
    DnsLookup* lookup;
    int family;
    bool unanswered = false;
    bool broken = false;  // a message that may have been its answer was broken
    DnsAnswer answer = {};
  };

  // The longest time for which the addresses of one family are valid if the other could not be
  // found out.
  static constexpr int64_t kPartialTtlNs = 30 * kNsPerSec;

  void run_queued() override { owner_.begin(*this); }
  void left_queue(bool stopped, RunnableList& finished) override;

  bool open_channel(size_t first_server);
  bool set_servers(size_t first_server);
  // Asks for the current candidate.
  void ask();
  // Goes on after c-ares has been called. The look-up may end in it.
  void proceed();
  // Returns true if the next candidate must be asked for. Otherwise the look-up waits, or has
  // ended.
  bool use_answers();
  void wait(bool found);
  void end(DnsAnswer answer);

  // Called by c-ares.
  static ares_socket_t open_socket(int domain, int type, int protocol, void* self);
  static int close_socket(ares_socket_t fd, void* self);
  static int connect_socket(ares_socket_t fd, const struct sockaddr* to, ares_socklen_t length,
                            void* self);
  static ares_ssize_t receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                              struct sockaddr* from, ares_socklen_t* length, void* self);
  static ares_ssize_t send(ares_socket_t fd, const struct iovec* parts, int count, void* self);
  static void socket_state(void* self, ares_socket_t fd, int readable, int writable);
  static void answered(void* question, int status, int timeouts, unsigned char* message, int size);

  void process(ares_socket_t fd, uint32_t events);
  Socket* find(ares_socket_t fd) const;
  // Whether c-ares may see a message. May change its response code.
  bool admit(unsigned char* bytes, size_t size, bool is_datagram);
  // Whether a message without a failure's code is broken all the same. Notes it with its question.
  bool is_broken(const DnsMessage& message);
  DnsAnswer error_of(const Question& question, int status) const;

  Poller& poller_;
  Owner& owner_;
  const std::string key_;
  const std::string host_;
  const int family_;
  std::shared_ptr<const ResolvConf> conf_;
  ares_channel channel_ = nullptr;
  std::vector<Socket*> sockets_;     // not yet closed by c-ares
  int system_error_ = 0;             // errno of the last failure to create a socket
  std::vector<Question> questions_;  // one for each family; does not change
  std::vector<std::string> candidates_;
  size_t candidate_ = 0;
  bool exists_ = false;   // a candidate exists, but has no such addresses
  int64_t asked_ns_ = 0;  // when the current candidate was asked for
};

}  // namespace workflow
