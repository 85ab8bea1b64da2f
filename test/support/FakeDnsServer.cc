#include "support/FakeDnsServer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "support/Tally.h"

using workflow::UniqueFd;

namespace test_support {

namespace {

constexpr int kTypeA = 1;
constexpr int kTypeAlias = 5;
constexpr int kTypeAaaa = 28;
constexpr size_t kHeader = 12;

void put16(std::string& to, uint32_t value) {
  to += static_cast<char>(value >> 8 & 0xff);
  to += static_cast<char>(value & 0xff);
}

void put32(std::string& to, uint32_t value) {
  put16(to, value >> 16);
  put16(to, value & 0xffff);
}

void put_name(std::string& to, const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    to += static_cast<char>(dot - begin);
    to.append(name, begin, dot - begin);
    begin = dot + 1;
  }
  to += '\0';
}

struct Asked {
  std::string name;  // in lower case
  int type = 0;
  size_t end = 0;  // of the question in the message
};

std::optional<Asked> parse(const std::string& query) {
  Asked asked;
  size_t at = kHeader;
  while (at < query.size() && query[at] != '\0') {
    const size_t length = static_cast<unsigned char>(query[at]);
    asked.name += (asked.name.empty() ? "" : ".") + query.substr(at + 1, length);
    at += length + 1;
  }
  if (at + 5 > query.size()) {
    return std::nullopt;
  }
  asked.type =
      static_cast<unsigned char>(query[at + 1]) << 8 | static_cast<unsigned char>(query[at + 2]);
  asked.end = at + 5;
  for (char& c : asked.name) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return asked;
}

void put_record(std::string& to, const std::string& owner, int type, uint32_t ttl_s,
                const std::string& data) {
  put_name(to, owner);
  put16(to, static_cast<uint32_t>(type));
  put16(to, 1);
  put32(to, ttl_s);
  put16(to, static_cast<uint32_t>(data.size()));
  to += data;
}

// The records of the answer; `count` of them.
std::string records(const DnsReply& reply, const Asked& asked, uint32_t& count) {
  std::string bytes;
  std::string owner = asked.name;
  if (!reply.alias.empty()) {
    std::string target;
    put_name(target, reply.alias);
    put_record(bytes, owner, kTypeAlias, reply.alias_ttl_s, target);
    owner = reply.alias;
    count++;
  }
  const bool v6 = asked.type == kTypeAaaa;
  if (v6 || asked.type == kTypeA) {
    for (const std::string& address : v6 ? reply.v6 : reply.v4) {
      std::string data(v6 ? 16 : 4, '\0');
      if (::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), data.data()) != 1) {
        std::abort();
      }
      put_record(bytes, owner, asked.type, reply.ttl_s, data);
      count++;
    }
  }
  return bytes;
}

UniqueFd bind_to(int type, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

uint16_t port_of(int fd) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

}  // namespace

FakeDnsServer::FakeDnsServer() : wake_(::eventfd(0, EFD_CLOEXEC)) {
  // The same port for both, which another program may have for one of them.
  while (!tcp_.valid()) {
    udp_ = bind_to(SOCK_DGRAM, 0);
    port_ = port_of(udp_.get());
    tcp_ = bind_to(SOCK_STREAM, port_);
  }
  ::listen(tcp_.get(), 16);
  thread_ = std::thread([this] { run(); });
}

FakeDnsServer::~FakeDnsServer() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void FakeDnsServer::set(const std::string& name, DnsReply reply) {
  std::lock_guard<std::mutex> lock(mutex_);
  replies_[name] = std::move(reply);
}

void FakeDnsServer::set_others(DnsReply reply) {
  std::lock_guard<std::mutex> lock(mutex_);
  others_ = std::move(reply);
}

void FakeDnsServer::hold() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = true;
}

void FakeDnsServer::release() {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = false;
  ::eventfd_write(wake_.get(), 1);
}

size_t FakeDnsServer::asked(const std::string& name, int type) const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t sum = 0;
  for (const auto& [question, count] : asked_) {
    if (question.first == name && (type == 0 || question.second == type)) {
      sum += count;
    }
  }
  return sum;
}

size_t FakeDnsServer::asked_in_all() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t sum = 0;
  for (const auto& entry : asked_) {
    sum += entry.second;
  }
  return sum;
}

size_t FakeDnsServer::asked_by_tcp() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return by_tcp_;
}

std::vector<uint16_t> FakeDnsServer::ports() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ports_;
}

bool FakeDnsServer::wait_for_questions(const std::string& name, size_t n) const {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto handled = [&] {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = handled_.find(name);
    return found == handled_.end() ? 0 : found->second;
  };
  while (handled() < n) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    // Nobody tells when a datagram arrives.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void FakeDnsServer::run() {
  std::vector<UniqueFd> streams;
  for (;;) {
    std::vector<struct pollfd> fds = {
        {udp_.get(), POLLIN, 0}, {tcp_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    for (const UniqueFd& stream : streams) {
      fds.push_back({stream.get(), POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    if (fds[0].revents) {
      on_datagram();
    }
    for (size_t i = streams.size(); i-- > 0;) {
      if (fds[3 + i].revents && !on_stream(streams[i].get())) {
        streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (fds[1].revents) {
      streams.emplace_back(::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    if (fds[2].revents) {
      eventfd_t ignored;
      ::eventfd_read(wake_.get(), &ignored);
      std::vector<Question> released;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_) {
          return;
        }
        released.swap(kept_);
      }
      for (const Question& question : released) {
        answer(question);
      }
    }
  }
}

void FakeDnsServer::on_datagram() {
  char buffer[4096];
  struct sockaddr_in from = {};
  socklen_t length = sizeof from;
  const ssize_t n = ::recvfrom(udp_.get(), buffer, sizeof buffer, 0,
                               reinterpret_cast<struct sockaddr*>(&from), &length);
  if (n < static_cast<ssize_t>(kHeader)) {
    return;
  }
  const Question question{std::string(buffer, static_cast<size_t>(n)),
                          std::string(reinterpret_cast<const char*>(&from), sizeof from)};
  const auto asked = parse(question.bytes);
  bool held = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ports_.push_back(ntohs(from.sin_port));
    if (asked) {
      asked_[{asked->name, asked->type}]++;
    }
    held = held_;
    if (held) {
      kept_.push_back(question);
    }
  }
  if (!held) {
    answer(question);
  }
  if (asked) {
    std::lock_guard<std::mutex> lock(mutex_);
    handled_[asked->name]++;
  }
}

void FakeDnsServer::answer(const Question& question) {
  const std::string reply = reply_to(question.bytes, false);
  if (!reply.empty()) {
    ::sendto(udp_.get(), reply.data(), reply.size(), 0,
             reinterpret_cast<const struct sockaddr*>(question.from.data()),
             static_cast<socklen_t>(question.from.size()));
  }
}

bool FakeDnsServer::on_stream(int fd) {
  unsigned char size[2];
  if (::recv(fd, size, sizeof size, MSG_WAITALL) != sizeof size) {
    return false;
  }
  std::string query(static_cast<size_t>(size[0]) << 8 | size[1], '\0');
  if (::recv(fd, query.data(), query.size(), MSG_WAITALL) != static_cast<ssize_t>(query.size())) {
    return false;
  }
  const std::string reply = reply_to(query, true);
  if (reply.empty()) {
    return false;
  }
  std::string message;
  put16(message, static_cast<uint32_t>(reply.size()));
  message += reply;
  ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
  return true;
}

// Mostly behind the question, or the answer would not even be looked at.
void FakeDnsServer::corrupt(std::string& message, size_t question_end) {
  for (uint64_t i = random_.below(4) + 1; i-- > 0;) {
    const size_t begin = random_.one_in(10) ? 2 : question_end;
    message[begin + random_.below(message.size() - begin)] =
        static_cast<char>(random_.one_in(3) ? 0xc0 : random_.below(256));
  }
  if (random_.one_in(4)) {
    message.resize(question_end + random_.below(message.size() - question_end));
  }
}

std::string FakeDnsServer::reply_to(const std::string& query, bool by_tcp) {
  const auto asked = parse(query);
  if (!asked) {
    return {};
  }
  DnsReply reply;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = replies_.find(asked->name);
    reply = found == replies_.end() ? others_ : found->second;
    if (by_tcp) {
      asked_[{asked->name, asked->type}]++;
      by_tcp_++;
    }
  }
  using How = DnsReply::How;
  if (reply.how == How::kDrop || (reply.how == How::kDropV6 && asked->type == kTypeAaaa)) {
    return {};
  }
  if (reply.how == How::kGarbage) {
    return "\xff\xff garbage that is no message at all";
  }
  const bool no_stream = reply.how == How::kCloseStream;
  if (no_stream && by_tcp) {
    return {};
  }
  const bool cut_off = (reply.only_tcp || no_stream) && !by_tcp;
  uint32_t count = 0;
  const std::string data = cut_off || reply.rcode != 0 ? "" : records(reply, *asked, count);
  std::string message = query.substr(0, 2);
  put16(message, 0x8180U | (cut_off ? 0x0200U : 0U) | static_cast<uint32_t>(reply.rcode));
  put16(message, 1);
  put16(message, count);
  put32(message, 0);
  message += query.substr(kHeader, asked->end - kHeader);
  message += data;
  if (reply.how == How::kWrongId) {
    message[0] = static_cast<char>(message[0] ^ 0x55);
  } else if (reply.how == How::kWrongQuestion) {
    message[kHeader + 1] = static_cast<char>(message[kHeader + 1] ^ 0x03);
  } else if (reply.how == How::kCorrupted) {
    corrupt(message, asked->end);
  } else if (reply.how == How::kCutMessage) {
    message.resize(asked->end + data.size() / 2);
  }
  return message;
}

}  // namespace test_support
