#include "kernel/DnsLookup.h"

#include <netdb.h>
#include <strings.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "util/UniqueFd.h"

namespace workflow {

// A socket of c-ares, registered level-triggered: c-ares may leave something to read.
// Deletes itself when the poller has retired it.
class DnsLookup::Socket final : public IoHandler {
 public:
  Socket(DnsLookup& lookup, UniqueFd fd, bool datagrams)
      : lookup_(&lookup), fd_(std::move(fd)), has_datagrams_(datagrams) {}

  int fd() const { return fd_.get(); }
  bool has_datagrams() const { return has_datagrams_; }

  // False with errno.
  bool watch(uint32_t events) {
    if (events == events_) {
      return true;
    }
    Poller& poller = lookup_->poller_;
    if (events_ != 0) {
      poller.remove(fd());
    }
    events_ = poller.add(fd(), events, this) == 0 ? events : 0;
    return events_ != 0;
  }

  // To be called when c-ares no longer needs the socket.
  void close() { std::exchange(lookup_, nullptr)->poller_.retire(fd(), this); }

 private:
  void on_events(uint32_t events, RunnableList&) override {
    if (lookup_) {
      lookup_->process(fd(), events);
    }
  }
  void on_retired() override { delete this; }

  DnsLookup* lookup_;  // null once closed
  const UniqueFd fd_;
  const bool has_datagrams_;
  uint32_t events_ = 0;
};

namespace {

// Names below "onion" belong to another network, and must not be sent to name servers (RFC 7686,
// 2).
bool is_onion(std::string_view name) {
  return name == "onion" || name.ends_with(".onion");
}

bool is_shortage(int error) {
  return error == EAI_MEMORY || error == EAI_SYSTEM;
}

int64_t ttl_of(int seconds) {
  return std::max(seconds, 0) * kNsPerSec;  // a value above 2^31 - 1 has come as a negative one
}

bool library_is_ready() {
  static const bool ready = ::ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS;
  return ready;
}

struct ares_addr_port_node node_of(const HostAddress& server) {
  struct ares_addr_port_node node = {};
  node.family = server.family();
  uint16_t port = 0;
  if (node.family == AF_INET) {
    const auto& v4 = reinterpret_cast<const struct sockaddr_in&>(server.address);
    std::memcpy(&node.addr.addr4, &v4.sin_addr, sizeof v4.sin_addr);
    port = ntohs(v4.sin_port);
  } else {
    const auto& v6 = reinterpret_cast<const struct sockaddr_in6&>(server.address);
    std::memcpy(&node.addr.addr6, &v6.sin6_addr, sizeof v6.sin6_addr);
    port = ntohs(v6.sin6_port);
  }
  node.udp_port = port;
  node.tcp_port = port;
  return node;
}

// Whether c-ares may see a datagram, which it does not check for these things itself. A datagram
// that is not the response to a query need not come from the server. Every failure is given the
// response code 2: c-ares would take some codes for an empty answer, and asks no other server after
// code 1.
bool admit_datagram(unsigned char* message, size_t size) {
  constexpr size_t kHeaderSize = 12;
  constexpr int kServFail = 2;
  constexpr int kNxDomain = 3;
  const bool is_response = size >= kHeaderSize && (message[2] & 0xf8) == 0x80;  // opcode QUERY
  if (is_response) {
    const int code = message[3] & 0x0f;
    const bool fails = code != 0 && code != kNxDomain;
    message[3] = static_cast<unsigned char>((message[3] & 0xf0) | (fails ? kServFail : code));
  }
  return is_response;
}

}  // namespace

bool DnsAnswer::is_verdict() const {
  return error == 0 || error == EAI_NONAME || error == EAI_NODATA;
}

DnsLookup::DnsLookup(Poller& poller, Owner& owner, std::string key, std::string_view host,
                     int family)
    : poller_(poller), owner_(owner), key_(std::move(key)), host_(host), family_(family) {
  for (const int one : {AF_INET, AF_INET6}) {
    if (family == AF_UNSPEC || family == one) {
      questions_.push_back({.lookup = this, .family = one});
    }
  }
}

DnsLookup::~DnsLookup() {
  if (channel_) {
    ::ares_destroy(channel_);
  }
}

bool DnsLookup::is_open(int family) const {
  return std::any_of(questions_.begin(), questions_.end(), [family](const Question& question) {
    return question.family == family && !question.answer.is_verdict();
  });
}

void DnsLookup::end(DnsAnswer answer) {
  poller_.timers().unschedule(this);
  owner_.end(*this, std::move(answer));
}

void DnsLookup::start(std::shared_ptr<const ResolvConf> conf, size_t first_server) {
  conf_ = std::move(conf);
  try {
    candidates_ = conf_->candidates(host_);
    std::erase_if(candidates_, is_onion);
    if (candidates_.empty()) {
      end({.error = EAI_NONAME});
      return;
    }
    if (open_channel(first_server)) {
      ask();
      proceed();
      return;
    }
  } catch (const std::bad_alloc&) {
    // end() is called below, outside the catch block.
  }
  end({.error = EAI_MEMORY});
}

void DnsLookup::ask() {
  const std::string name = candidates_[candidate_] + ".";  // so that c-ares adds no domain
  asked_ns_ = poller_.clock().now_ns();
  // An answer may come before ares_getaddrinfo() returns.
  for (Question& question : questions_) {
    question.unanswered = true;
    question.answer = {.error = EAI_AGAIN};
  }
  for (Question& question : questions_) {
    struct ares_addrinfo_hints hints = {};
    hints.ai_family = question.family;
    hints.ai_flags = ARES_AI_NOSORT;
    ::ares_getaddrinfo(channel_, name.c_str(), nullptr, &hints, answered, &question);
  }
}

void DnsLookup::proceed() {
  try {
    while (use_answers()) {
      ask();
    }
    return;
  } catch (const std::bad_alloc&) {
    // end() is called below, outside the catch block.
  }
  end({.error = EAI_MEMORY});
}

bool DnsLookup::use_answers() {
  bool complete = true;
  bool found = false;
  for (const Question& question : questions_) {
    complete &= !question.unanswered;
    found |= question.answer.error == 0;
  }
  const bool late = poller_.clock().now_ns() >= saturating_add(asked_ns_, conf_->timeout_ns);
  if (!complete && !(found && late)) {
    wait(found);
    return false;
  }
  DnsAnswer all{.ttl_ns = kNever};
  int failure = 0;
  for (const Question& question : questions_) {
    const DnsAnswer& one = question.answer;
    if (one.error == 0) {
      all.addresses.insert(all.addresses.end(), one.addresses.begin(), one.addresses.end());
      all.ttl_ns = std::min(all.ttl_ns, one.ttl_ns);
    } else if (!one.is_verdict() &&
               (failure == 0 || failure == EAI_FAIL || is_shortage(one.error))) {
      failure = one.error;
      all.system_error = one.system_error;
    }
    exists_ |= one.error == EAI_NODATA;
  }
  if (found) {
    all.ttl_ns = failure == 0 ? all.ttl_ns : std::min(all.ttl_ns, kPartialTtlNs);
  } else if (failure != 0) {
    all.error = failure;
  } else if (++candidate_ < candidates_.size()) {
    return true;
  } else {
    all.error = exists_ ? EAI_NODATA : EAI_NONAME;
  }
  end(std::move(all));
  return false;
}

// c-ares goes by a monotonic clock of its own. If the poller's clock is moved by hand, the timer
// may expire before c-ares thinks that the time has passed. Then it is queued again.
void DnsLookup::wait(bool found) {
  const int64_t now_ns = poller_.clock().now_ns();
  int64_t left_ns = conf_->timeout_ns;
  struct timeval left;
  if (::ares_timeout(channel_, nullptr, &left)) {
    // It is rounded down to milliseconds.
    left_ns = left.tv_sec * kNsPerSec + left.tv_usec * kNsPerUs + kNsPerMs;
  }
  int64_t deadline_ns = saturating_add(now_ns, left_ns);
  if (found) {
    deadline_ns = std::min(deadline_ns, saturating_add(asked_ns_, conf_->timeout_ns));
  }
  if (!poller_.timers().schedule(this, deadline_ns)) {
    end({.error = EAI_CANCELED});
  }
}

void DnsLookup::left_queue(bool stopped, RunnableList&) {
  if (stopped) {
    end({.error = EAI_CANCELED});
    return;
  }
  process(ARES_SOCKET_BAD, 0);
}

void DnsLookup::process(ares_socket_t fd, uint32_t events) {
  const bool failed = events & (EPOLLERR | EPOLLHUP);
  const bool readable = failed || (events & EPOLLIN);
  const bool writable = failed || (events & EPOLLOUT);
  ::ares_process_fd(channel_, readable ? fd : ARES_SOCKET_BAD, writable ? fd : ARES_SOCKET_BAD);
  proceed();
}

bool DnsLookup::open_channel(size_t first_server) {
  // With all of these given c-ares reads no files.
  char lookups[] = "b";  // name servers only
  struct ares_options options = {};
  options.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES;
  options.timeout = static_cast<int>(conf_->timeout_ns / kNsPerMs);
  options.tries = conf_->attempts;
  options.ndots = 1;
  options.lookups = lookups;
  options.sock_state_cb = socket_state;
  options.sock_state_cb_data = this;
  struct in_addr unused = {htonl(INADDR_LOOPBACK)};  // set_servers() replaces it
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
  return set_servers(first_server);
}

bool DnsLookup::set_servers(size_t first_server) {
  const size_t count = conf_->servers.size();
  std::vector<struct ares_addr_port_node> nodes;
  for (size_t i = 0; i < count; i++) {
    nodes.push_back(node_of(conf_->servers[(first_server + i) % count]));
  }
  for (size_t i = 1; i < count; i++) {
    nodes[i - 1].next = &nodes[i];
  }
  return ::ares_set_servers_ports(channel_, nodes.data()) == ARES_SUCCESS;
}

DnsLookup::Socket* DnsLookup::find(ares_socket_t fd) const {
  const auto found = std::find_if(sockets_.begin(), sockets_.end(),
                                  [fd](const Socket* socket) { return socket->fd() == fd; });
  return found == sockets_.end() ? nullptr : *found;
}

ares_socket_t DnsLookup::open_socket(int domain, int type, int protocol, void* self) {
  auto& lookup = *static_cast<DnsLookup*>(self);
  UniqueFd fd(::socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (!fd.valid()) {
    // A machine may lack one of the families. Then other servers may still be asked.
    lookup.system_error_ = errno == EAFNOSUPPORT ? lookup.system_error_ : errno;
    return ARES_SOCKET_BAD;
  }
  const int number = fd.get();
  try {
    lookup.sockets_.reserve(lookup.sockets_.size() + 1);
    lookup.sockets_.push_back(new Socket(lookup, std::move(fd), type == SOCK_DGRAM));
  } catch (const std::bad_alloc&) {
    lookup.system_error_ = errno = ENOMEM;
    return ARES_SOCKET_BAD;
  }
  if (!lookup.sockets_.back()->watch(EPOLLIN)) {
    lookup.system_error_ = errno;
    close_socket(number, self);
    return ARES_SOCKET_BAD;
  }
  return number;
}

int DnsLookup::close_socket(ares_socket_t fd, void* self) {
  auto& lookup = *static_cast<DnsLookup*>(self);
  if (Socket* socket = lookup.find(fd)) {
    std::erase(lookup.sockets_, socket);
    socket->close();
  }
  return 0;
}

// Adds the scope of the server's address, which c-ares does not keep.
int DnsLookup::connect_socket(ares_socket_t fd, const struct sockaddr* to, ares_socklen_t length,
                              void* self) {
  std::optional<HostAddress> address = HostAddress::of(to, length);
  if (!address) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  auto& v6 = reinterpret_cast<struct sockaddr_in6&>(address->address);
  for (const HostAddress& server : static_cast<DnsLookup*>(self)->conf_->servers) {
    const auto& known = reinterpret_cast<const struct sockaddr_in6&>(server.address);
    if (address->family() == AF_INET6 && server.family() == AF_INET6 &&
        known.sin6_port == v6.sin6_port &&
        std::memcmp(&known.sin6_addr, &v6.sin6_addr, sizeof v6.sin6_addr) == 0) {
      v6.sin6_scope_id = known.sin6_scope_id;
    }
  }
  const int result =
      ::connect(fd, reinterpret_cast<const struct sockaddr*>(&address->address), address->length);
  if (result < 0 && errno == EINTR) {
    errno = EINPROGRESS;  // it goes on all the same, which c-ares does not know
  }
  return result;
}

// A datagram that is dropped does not keep c-ares from the one behind it: the socket is
// level-triggered.
ares_ssize_t DnsLookup::receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                                struct sockaddr* from, ares_socklen_t* length, void* self) {
  ares_ssize_t n;
  do {
    n = ::recvfrom(fd, buffer, size, flags, from, length);
  } while (n < 0 && errno == EINTR);
  const Socket* const socket = static_cast<DnsLookup*>(self)->find(fd);
  if (n >= 0 && socket && socket->has_datagrams() &&
      !admit_datagram(static_cast<unsigned char*>(buffer), static_cast<size_t>(n))) {
    errno = EAGAIN;
    return -1;
  }
  return n;
}

ares_ssize_t DnsLookup::send(ares_socket_t fd, const struct iovec* parts, int count, void*) {
  struct msghdr message = {};
  message.msg_iov = const_cast<struct iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  ares_ssize_t n;
  do {
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

void DnsLookup::socket_state(void* self, ares_socket_t fd, int readable, int writable) {
  auto& lookup = *static_cast<DnsLookup*>(self);
  const uint32_t events = (readable ? EPOLLIN : 0U) | (writable ? EPOLLOUT : 0U);
  Socket* socket = lookup.find(fd);
  // A socket without events is about to be closed. A socket that cannot be watched receives
  // nothing, and then the time limit ends the question.
  if (socket && events != 0 && !socket->watch(events)) {
    lookup.system_error_ = errno;
  }
}

void DnsLookup::answered(void* which, int status, int, struct ares_addrinfo* result) {
  auto& question = *static_cast<Question*>(which);
  question.unanswered = false;
  try {
    question.answer = question.lookup->read(question, status, result);
  } catch (const std::bad_alloc&) {
    question.answer = {.error = EAI_MEMORY};
  }
  if (result) {
    ::ares_freeaddrinfo(result);
  }
}

DnsAnswer DnsLookup::read(const Question& question, int status,
                          const struct ares_addrinfo* result) const {
  if (status != ARES_SUCCESS || !result) {
    return read_error(status);
  }
  DnsAnswer answer{.error = EAI_NODATA, .ttl_ns = kNever};
  // c-ares takes every alias for one of the name. The aliases must be a chain that begins there.
  const char* owner = candidates_[candidate_].c_str();
  for (const auto* alias = result->cnames; alias; alias = alias->next) {
    if (!alias->alias || !alias->name || ::strcasecmp(alias->alias, owner) != 0) {
      return {.error = EAI_FAIL};
    }
    owner = alias->name;
    answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(alias->ttl));
  }
  for (const auto* node = result->nodes; node; node = node->ai_next) {
    const auto address = HostAddress::of(node->ai_addr, node->ai_addrlen);
    if (address && address->family() == question.family &&
        answer.addresses.size() < kMaxAddresses) {
      answer.error = 0;
      answer.addresses.push_back(*address);
      answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(node->ai_ttl));
    }
  }
  return answer;
}

DnsAnswer DnsLookup::read_error(int status) const {
  switch (status) {
    case ARES_ENODATA:
      return {.error = EAI_NODATA};
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:  // too long, with a domain behind it
      return {.error = EAI_NONAME};
    case ARES_EBADRESP:
    case ARES_EFORMERR:
      return {.error = EAI_FAIL};
    case ARES_ENOMEM:
      return {.error = EAI_MEMORY};
    default:
      return {.error = system_error_ ? EAI_SYSTEM : EAI_AGAIN, .system_error = system_error_};
  }
}

}  // namespace workflow
