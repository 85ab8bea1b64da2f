#include "kernel/DnsLookup.h"

#include <netdb.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
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
  // How much of a message by TCP c-ares has not taken yet.
  size_t left() const { return left_; }

  // False with errno.
  bool watch(uint32_t events) {
    if (events == events_) return true;
    Poller& poller = lookup_->poller_;
    if (events_ != 0) {
      poller.remove(fd());
    }
    events_ = poller.add(fd(), events, this) == 0 ? events : 0;
    return events_ != 0;
  }

  // As recvfrom(2). A message that is not admitted is dropped, and EAGAIN returned. This does not
  // keep c-ares from what stands behind it: the socket is level-triggered.
  ssize_t receive(unsigned char* buffer, size_t size, int flags, struct sockaddr* from,
                  socklen_t* length) {
    if (!has_datagrams_) return receive_stream(buffer, size, flags);
    const ssize_t n = receive_some(buffer, size, flags, from, length);
    if (n >= 0 && !lookup_->admit(buffer, static_cast<size_t>(n), true)) {
      errno = EAGAIN;
      return -1;
    }
    return n;
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

  ssize_t receive_some(void* buffer, size_t size, int flags, struct sockaddr* from,
                       socklen_t* length) {
    ssize_t n;
    do {
      n = ::recvfrom(fd(), buffer, size, flags, from, length);
    } while (n < 0 && errno == EINTR);
    return n;
  }

  // c-ares takes a message in two parts, its length and its bytes. It gets none before the whole
  // has arrived and is admitted.
  ssize_t receive_stream(unsigned char* buffer, size_t size, int flags) {
    if (left_ == 0) {
      const ssize_t n = read_more(flags);
      if (n <= 0) return n;
    }
    const size_t taken = std::min(size, left_);
    std::copy_n(message_.end() - static_cast<std::ptrdiff_t>(left_), taken, buffer);
    left_ -= taken;
    if (left_ == 0) {
      message_.clear();
    }
    return static_cast<ssize_t>(taken);
  }

  // Above 0 if a message is complete and admitted. Otherwise as recvfrom(2).
  ssize_t read_more(int flags) {
    const size_t had = message_.size();
    const size_t wanted = had < kLengthSize ? kLengthSize : whole_size();
    try {
      message_.resize(wanted);
    } catch (const std::bad_alloc&) {
      lookup_->system_error_ = errno = ENOMEM;
      return -1;
    }
    const ssize_t n = receive_some(&message_[had], wanted - had, flags, nullptr, nullptr);
    message_.resize(n > 0 ? had + static_cast<size_t>(n) : had);
    if (n <= 0) return n;
    if (message_.size() >= kLengthSize && message_.size() == whole_size()) {
      if (lookup_->admit(message_.data() + kLengthSize, message_.size() - kLengthSize, false)) {
        left_ = message_.size();
        return n;
      }
      message_.clear();
    }
    errno = EAGAIN;
    return -1;
  }

  // The size of a message with the length in front of it (RFC 1035, 4.2.2).
  size_t whole_size() const {
    return kLengthSize + (static_cast<size_t>(message_[0]) << 8 | message_[1]);
  }

  static constexpr size_t kLengthSize = 2;

  DnsLookup* lookup_;  // null once closed
  const UniqueFd fd_;
  const bool has_datagrams_;
  uint32_t events_ = 0;
  std::vector<unsigned char> message_;  // by TCP, with its length; what has arrived of it
  size_t left_ = 0;  // of a complete message, the bytes that c-ares has not taken
};

namespace {

// Names below "onion" belong to another network, and must not be sent to name servers (RFC 7686,
// 2).
bool is_onion(std::string_view name) {
  if (name.ends_with('.')) {
    name.remove_suffix(1);
  }
  return name == "onion" || name.ends_with(".onion");
}

bool is_shortage(int error) {
  return error == EAI_MEMORY || error == EAI_SYSTEM;
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

}  // namespace

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
    // Nor does such a name leave the machine as a part of another one.
    if (candidates_.empty() || is_onion(host_)) {
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
  // An answer may come before ares_query() returns.
  for (Question& question : questions_) {
    question.unanswered = true;
    question.broken = false;
    question.answer = {.error = EAI_AGAIN};
  }
  for (Question& question : questions_) {
    ::ares_query(channel_, name.c_str(), DnsMessage::kClassIn, DnsMessage::type_of(question.family),
                 answered, &question);
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
  // What the socket has read already makes no further event.
  size_t before = SIZE_MAX;
  for (const Socket* socket = find(fd); socket && socket->left() != 0 && socket->left() < before;
       socket = find(fd)) {
    before = socket->left();
    ::ares_process_fd(channel_, fd, ARES_SOCKET_BAD);
  }
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

ares_ssize_t DnsLookup::receive(ares_socket_t fd, void* buffer, size_t size, int flags,
                                struct sockaddr* from, ares_socklen_t* length, void* self) {
  Socket* const socket = static_cast<DnsLookup*>(self)->find(fd);
  if (!socket) {
    errno = EBADF;
    return -1;
  }
  return socket->receive(static_cast<unsigned char*>(buffer), size, flags, from, length);
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

// c-ares does not check these things itself. A datagram that is not the response to a query need
// not come from the server. Every failure is given the response code 2, after which c-ares asks the
// next server: it would not do so after other codes. A broken answer is a failure, too.
bool DnsLookup::admit(unsigned char* bytes, size_t size, bool is_datagram) {
  constexpr int kServFail = 2;
  constexpr int kNxDomain = 3;
  if (size < DnsMessage::kHeaderSize) return false;
  const DnsMessage message(bytes, size);
  if (!message.is_response()) return false;
  const int code = message.code();
  // A datagram that was cut off will be asked for by TCP.
  const bool will_be_whole = is_datagram && message.is_truncated();
  if (code == 0 ? !will_be_whole && is_broken(message) : code != kNxDomain) {
    bytes[3] = static_cast<unsigned char>((bytes[3] & 0xf0) | kServFail);
  }
  return true;
}

// Whoever forges a datagram without knowing its identifier can change the error of a look-up that
// fails anyway, and nothing else.
bool DnsLookup::is_broken(const DnsMessage& message) {
  try {
    const int family = message.family();
    for (Question& question : questions_) {
      if (question.family == family &&
          message.read(candidates_[candidate_], family).error == EAI_FAIL) {
        question.broken = true;
        return true;
      }
    }
  } catch (const std::bad_alloc&) {
    // It is read again in answered(), which says so.
  }
  return false;
}

void DnsLookup::answered(void* which, int status, int, unsigned char* message, int size) {
  auto& question = *static_cast<Question*>(which);
  const DnsLookup& lookup = *question.lookup;
  question.unanswered = false;
  if (!message || size < static_cast<int>(DnsMessage::kHeaderSize)) {
    question.answer = lookup.error_of(question, status);
    return;
  }
  try {
    question.answer = DnsMessage(message, static_cast<size_t>(size))
                          .read(lookup.candidates_[lookup.candidate_], question.family);
  } catch (const std::bad_alloc&) {
    question.answer = {.error = EAI_MEMORY};
  }
}

DnsAnswer DnsLookup::error_of(const Question& question, int status) const {
  switch (status) {
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:  // too long, with a domain behind it
      return {.error = EAI_NONAME};
    case ARES_EBADRESP:
      return {.error = EAI_FAIL};
    case ARES_ENOMEM:
      return {.error = EAI_MEMORY};
    default:
      if (question.broken) return {.error = EAI_FAIL};
      return {.error = system_error_ ? EAI_SYSTEM : EAI_AGAIN, .system_error = system_error_};
  }
}

}  // namespace workflow
