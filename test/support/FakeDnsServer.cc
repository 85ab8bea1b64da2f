#include "support/FakeDnsServer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "support/Loopback.h"
#include "support/Tally.h"

using workflow::UniqueFd;

namespace test_support {

namespace {

constexpr size_t kHeader = 12;

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
  if (at + 5 > query.size()) return std::nullopt;
  asked.type =
      static_cast<unsigned char>(query[at + 1]) << 8 | static_cast<unsigned char>(query[at + 2]);
  asked.end = at + 5;
  for (char& c : asked.name) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return asked;
}

std::vector<DnsRecord> records(const DnsReply& reply, const Asked& asked) {
  std::vector<DnsRecord> records = reply.records;
  std::string owner = asked.name;
  if (!reply.alias.empty()) {
    records.push_back({owner, kDnsCname, reply.alias, reply.alias_ttl_s});
    owner = reply.alias;
  }
  const bool v6 = asked.type == kDnsAaaa;
  if (v6 || asked.type == kDnsA) {
    for (const std::string& address : v6 ? reply.v6 : reply.v4) {
      records.push_back({owner, asked.type, address, reply.ttl_s});
    }
  }
  return records;
}

UniqueFd bind_to(int type, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  struct sockaddr_in address = loopback(port);
  if (::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

}  // namespace

FakeDnsServer::FakeDnsServer() : wake_(::eventfd(0, EFD_CLOEXEC)) {
  // Both sockets need the same port, which another program may have for one of them.
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
  replies_[{name, 0}] = std::move(reply);
}

void FakeDnsServer::set(const std::string& name, int type, DnsReply reply) {
  std::lock_guard<std::mutex> lock(mutex_);
  replies_[{name, type}] = std::move(reply);
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
    if (std::chrono::steady_clock::now() > end) return false;
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
      const int on = 1;  // so that parts of a message are sent as they are
      ::setsockopt(streams.back().get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (fds[2].revents) {
      eventfd_t ignored;
      ::eventfd_read(wake_.get(), &ignored);
      std::vector<Question> released;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (stopping_) return;
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
  if (n < static_cast<ssize_t>(kHeader)) return;
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
  for (const std::string& reply : replies_to(question.bytes, false)) {
    ::sendto(udp_.get(), reply.data(), reply.size(), 0,
             reinterpret_cast<const struct sockaddr*>(question.from.data()),
             static_cast<socklen_t>(question.from.size()));
  }
}

bool FakeDnsServer::on_stream(int fd) {
  unsigned char size[2];
  if (::recv(fd, size, sizeof size, MSG_WAITALL) != sizeof size) return false;
  std::string query(static_cast<size_t>(size[0]) << 8 | size[1], '\0');
  if (::recv(fd, query.data(), query.size(), MSG_WAITALL) != static_cast<ssize_t>(query.size())) {
    return false;
  }
  const std::vector<std::string> replies = replies_to(query, true);
  for (const std::string& reply : replies) {
    std::string message;
    put16(message, static_cast<uint32_t>(reply.size()));
    message += reply;
    const size_t part = is_sent_in_bytes(query) ? 1 : message.size();
    for (size_t at = 0; at < message.size(); at += part) {
      ::send(fd, &message[at], part, MSG_NOSIGNAL);
    }
  }
  return !replies.empty();
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

DnsReply FakeDnsServer::reply_for(const std::string& name, int type) const {
  for (const int key_type : {type, 0}) {
    if (const auto found = replies_.find({name, key_type}); found != replies_.end()) {
      return found->second;
    }
  }
  return others_;
}

bool FakeDnsServer::is_sent_in_bytes(const std::string& query) const {
  const auto asked = parse(query);
  std::lock_guard<std::mutex> lock(mutex_);
  return asked && reply_for(asked->name, asked->type).in_single_bytes;
}

std::vector<std::string> FakeDnsServer::replies_to(const std::string& query, bool by_tcp) {
  const auto asked = parse(query);
  if (!asked) return {};
  DnsReply reply;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reply = reply_for(asked->name, asked->type);
    if (by_tcp) {
      asked_[{asked->name, asked->type}]++;
      by_tcp_++;
    }
  }
  using How = DnsReply::How;
  if (reply.how == How::kDrop || (reply.how == How::kDropV6 && asked->type == kDnsAaaa)) return {};
  if (reply.how == How::kGarbage) return {"\xff\xff garbage that is no message at all"};
  const bool no_stream = reply.how == How::kCloseStream;
  if (no_stream && by_tcp) return {};
  const bool cut_off = (reply.only_tcp || no_stream) && !by_tcp;
  const bool empty = cut_off || (reply.rcode != 0 && reply.records.empty());
  std::string message = dns_message(
      0, 0x8180U | (cut_off ? kDnsTruncated : 0U) | static_cast<uint32_t>(reply.rcode), asked->name,
      asked->type, empty ? std::vector<DnsRecord>() : records(reply, *asked));
  // The identifier and the question as they were asked.
  message.replace(0, 2, query, 0, 2);
  message.replace(kHeader, asked->end - kHeader, query, kHeader, asked->end - kHeader);
  if (reply.how == How::kWrongId) {
    message[0] = static_cast<char>(message[0] ^ 0x55);
  } else if (reply.how == How::kWrongQuestion) {
    message[kHeader + 1] = static_cast<char>(message[kHeader + 1] ^ 0x03);
  } else if (reply.how == How::kCorrupted) {
    corrupt(message, asked->end);
  } else if (reply.how == How::kCutMessage) {
    message.resize(asked->end + (message.size() - asked->end) / 2);
  }
  std::vector<std::string> messages = {message};
  if (reply.edit) {
    reply.edit(messages[0]);
  }
  if (reply.then_unedited) {
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace test_support
