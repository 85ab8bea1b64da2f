#include "kernel/AresQuery.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "util/UniqueFd.h"

namespace workflow {

// A socket of c-ares, registered level-triggered: c-ares may leave something to read.
// Deletes itself when the poller has retired it.
class AresQuery::Socket final : public IoHandler {
 public:
  Socket(AresQuery& query, UniqueFd fd, bool datagrams)
      : query_(&query), fd_(std::move(fd)), has_datagrams_(datagrams) {}

  int fd() const { return fd_.get(); }
  bool has_datagrams() const { return has_datagrams_; }

  // False with errno.
  bool watch(uint32_t events) {
    if (events == events_) {
      return true;
    }
    Poller& poller = query_->poller_;
    if (events_ != 0) {
      poller.remove(fd());
    }
    events_ = poller.add(fd(), events, this) == 0 ? events : 0;
    return events_ != 0;
  }

  // To be called when c-ares no longer needs the socket.
  void close() {
    Poller& poller = query_->poller_;
    query_ = nullptr;
    poller.retire(fd(), this);
  }

 private:
  void on_events(uint32_t events, RunnableList&) override {
    if (query_) {
      query_->process(fd(), events);
    }
  }
  void on_retired() override { delete this; }

  AresQuery* query_;  // null once closed
  const UniqueFd fd_;
  const bool has_datagrams_;
  uint32_t events_ = 0;
};

namespace {

bool library_is_ready() {
  static const bool ready = ::ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS;
  return ready;
}

// Whether no other server could be asked either. (A machine may lack one of the families, and then
// other servers may still work.)
bool is_shortage(int socket_error) {
  return socket_error != 0 && socket_error != EAFNOSUPPORT;
}

// The EAI_ value of c-ares's status when there is no message.
int error_of(int status) {
  switch (status) {
    case ARES_ENOMEM:
      return EAI_MEMORY;
    case ARES_EBADNAME:  // too long, with a domain behind it
      return EAI_NONAME;
    case ARES_EBADRESP:
      return EAI_FAIL;
    default:
      return EAI_AGAIN;
  }
}

size_t index_of(int family) {
  return family == AF_INET6 ? 1 : 0;
}

}  // namespace

AresQuery::AresQuery(Poller& poller, const HostAddress& server, Owner& owner)
    : poller_(poller), server_(server), owner_(owner) {
  questions_.fill({.query = this});
}

AresQuery::~AresQuery() {
  for (Question& question : questions_) {
    question.query = nullptr;
  }
  if (channel_) {
    ::ares_destroy(channel_);
  }
}

bool AresQuery::start(const std::string& name, int family) {
  name_ = name;
  if (!open_channel()) {
    for (Question& question : questions_) {
      question.status = ARES_ENOMEM;
    }
    return true;
  }
  const std::string as_it_is = name + ".";  // so that c-ares adds no domain
  unanswered_ = family == AF_UNSPEC ? 2 : 1;
  for (const int one : {AF_INET, AF_INET6}) {
    if (family == AF_UNSPEC || family == one) {
      ::ares_query(channel_, as_it_is.c_str(), ns_c_in, one == AF_INET ? ns_t_a : ns_t_aaaa,
                   answered, &questions_[index_of(one)]);
    }
  }
  return unanswered_ == 0;
}

void AresQuery::cancel() {
  if (unanswered_ > 0) {
    ::ares_cancel(channel_);
  }
}

bool AresQuery::open_channel() {
  // With all of these given c-ares reads no files.
  constexpr int kTimeoutMs = 3'600'000;  // in effect no limit: the owner's limit is much shorter
  char lookups[] = "b";                  // name servers only
  struct ares_options options = {};
  // There is no other server to try, so the answer is wanted unchanged. (Answers to other questions
  // are not accepted in any case.)
  options.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_NOCHECKRESP;
  options.timeout = kTimeoutMs;
  options.tries = 1;
  options.ndots = 1;
  options.lookups = lookups;
  options.sock_state_cb = socket_state;
  options.sock_state_cb_data = this;
  struct in_addr unused = {htonl(INADDR_LOOPBACK)};  // set_server() replaces it
  options.servers = &unused;
  options.nservers = 1;
  const int given = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
                    ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB | ARES_OPT_SERVERS |
                    ARES_OPT_DOMAINS | ARES_OPT_SORTLIST | ARES_OPT_NOROTATE;
  if (!library_is_ready() || ::ares_init_options(&channel_, &options, given) != ARES_SUCCESS) {
    channel_ = nullptr;
    return false;
  }
  static const struct ares_socket_functions functions = {
      .asocket = open_socket,
      .aclose = close_socket,
      .aconnect = connect_socket,
      .arecvfrom = receive,
      .asendv = send,
  };
  ::ares_set_socket_functions(channel_, &functions, this);
  return set_server();
}

bool AresQuery::set_server() {
  struct ares_addr_port_node node = {};
  node.family = server_.family();
  uint16_t port = 0;
  if (node.family == AF_INET) {
    struct sockaddr_in v4;
    std::memcpy(&v4, &server_.address, sizeof v4);
    std::memcpy(&node.addr.addr4, &v4.sin_addr, sizeof v4.sin_addr);
    port = ntohs(v4.sin_port);
  } else {
    struct sockaddr_in6 v6;
    std::memcpy(&v6, &server_.address, sizeof v6);
    std::memcpy(&node.addr.addr6, &v6.sin6_addr, sizeof v6.sin6_addr);
    port = ntohs(v6.sin6_port);
  }
  node.udp_port = port;
  node.tcp_port = port;
  return ::ares_set_servers_ports(channel_, &node) == ARES_SUCCESS;
}

void AresQuery::process(int fd, uint32_t events) {
  const bool failed = events & (EPOLLERR | EPOLLHUP);
  const bool readable = failed || (events & EPOLLIN);
  const bool writable = failed || (events & EPOLLOUT);
  ::ares_process_fd(channel_, readable ? fd : ARES_SOCKET_BAD, writable ? fd : ARES_SOCKET_BAD);
  if (unanswered_ == 0) {
    owner_.on_answer();
  }
}

AresQuery::Socket* AresQuery::find(int fd) const {
  const auto found = std::find_if(sockets_.begin(), sockets_.end(),
                                  [fd](const Socket* socket) { return socket->fd() == fd; });
  return found == sockets_.end() ? nullptr : *found;
}

ares_socket_t AresQuery::open_socket(int domain, int type, int protocol, void* self) {
  auto& query = *static_cast<AresQuery*>(self);
  UniqueFd fd(::socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (!fd.valid()) {
    query.system_error_ = errno;
    return ARES_SOCKET_BAD;
  }
  const int number = fd.get();
  Socket* socket = nullptr;
  try {
    socket = new Socket(query, std::move(fd), type == SOCK_DGRAM);
    query.sockets_.push_back(socket);
  } catch (const std::bad_alloc&) {
    query.system_error_ = ENOMEM;
    errno = ENOMEM;
    if (socket) {
      socket->close();
    }
    return ARES_SOCKET_BAD;
  }
  if (!socket->watch(EPOLLIN)) {
    query.system_error_ = errno;
    close_socket(number, self);
    return ARES_SOCKET_BAD;
  }
  return number;
}

int AresQuery::close_socket(ares_socket_t fd, void* self) {
  auto& query = *static_cast<AresQuery*>(self);
  if (Socket* socket = query.find(fd)) {
    std::erase(query.sockets_, socket);
    socket->close();
  }
  return 0;
}

// Uses the server's address from the settings, because c-ares does not keep its scope.
int AresQuery::connect_socket(ares_socket_t fd, const struct sockaddr*, ares_socklen_t,
                              void* self) {
  const HostAddress& server = static_cast<AresQuery*>(self)->server_;
  const int result =
      ::connect(fd, reinterpret_cast<const struct sockaddr*>(&server.address), server.length);
  if (result < 0 && errno == EINTR) {
    errno = EINPROGRESS;  // it goes on all the same, which c-ares does not know
  }
  return result;
}

// c-ares does not check whether a message is a response at all. A datagram that is not a response
// is dropped, because it need not come from the server. The socket is level-triggered, so a
// datagram behind it is read the next time.
ares_ssize_t AresQuery::receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                                struct sockaddr* from, ares_socklen_t* length, void* self) {
  ares_ssize_t n;
  do {
    n = ::recvfrom(fd, buffer, size, flags, from, length);
  } while (n < 0 && errno == EINTR);
  const Socket* const socket = static_cast<AresQuery*>(self)->find(fd);
  if (n >= 0 && socket && socket->has_datagrams() &&
      !DnsMessage::is_response({static_cast<const char*>(buffer), static_cast<size_t>(n)})) {
    errno = EAGAIN;
    return -1;
  }
  return n;
}

ares_ssize_t AresQuery::send(ares_socket_t fd, const struct iovec* parts, int count, void*) {
  struct msghdr message = {};
  message.msg_iov = const_cast<struct iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  ares_ssize_t n;
  do {
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

void AresQuery::socket_state(void* self, ares_socket_t fd, int readable, int writable) {
  auto& query = *static_cast<AresQuery*>(self);
  const uint32_t events = (readable ? EPOLLIN : 0U) | (writable ? EPOLLOUT : 0U);
  Socket* socket = query.find(fd);
  // A socket without events is about to be closed. A socket that cannot be watched receives
  // nothing, and then the owner's time limit ends the query.
  if (socket && events != 0 && !socket->watch(events)) {
    query.system_error_ = errno;
  }
}

void AresQuery::answered(void* which, int status, int, unsigned char* message, int size) {
  auto& question = *static_cast<Question*>(which);
  if (!question.query) {  // it is being destroyed
    return;
  }
  question.query->unanswered_--;
  question.status = status;
  if (message && size > 0) {
    try {
      question.message.assign(reinterpret_cast<const char*>(message), static_cast<size_t>(size));
    } catch (const std::bad_alloc&) {
      question.status = ARES_ENOMEM;
    }
  }
}

DnsAnswer AresQuery::answer(int family) const {
  const Question& question = questions_[index_of(family)];
  if (!question.message.empty()) {
    return DnsMessage::read(question.message, name_, family);
  }
  DnsAnswer answer{.error = error_of(question.status)};
  if (answer.error == EAI_AGAIN && is_shortage(system_error_)) {
    answer.error = EAI_SYSTEM;
    answer.system_error = system_error_;
  }
  return answer;
}

}  // namespace workflow
