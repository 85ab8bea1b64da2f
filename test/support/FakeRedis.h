#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "support/RawServer.h"
#include "workflow/RedisMessage.h"

namespace redis_test {

using client_test::Peer;
using client_test::RawServer;

// Reads the commands that a client sends, as words. Bytes that follow a command are kept for the
// next call.
class CommandReader {
 public:
  explicit CommandReader(Peer& peer) : peer_(peer) {}

  // Returns no words at the end of input.
  std::vector<std::string> next() {
    protocol::RedisRequest request;
    for (;;) {
      size_t size = input_.size();
      const int result = request.append(input_.data(), &size);
      input_.erase(0, size);
      if (result == 1) {
        std::vector<std::string> words = {request.command()};
        words.insert(words.end(), request.params().begin(), request.params().end());
        return words;
      }
      char buffer[65536];
      const ssize_t n = ::recv(peer_.fd(), buffer, sizeof buffer, 0);
      if (n <= 0) return {};
      input_.assign(buffer, static_cast<size_t>(n));
    }
  }

 private:
  Peer& peer_;
  std::string input_;
};

// Answers each command of each connection with what `answer` returns, until that is empty: then it
// closes the connection.
using Answer = std::function<std::string(const std::vector<std::string>& words, int connection)>;

inline std::function<void(Peer&, int)> answering(Answer answer) {
  return [answer = std::move(answer)](Peer& peer, int connection) {
    CommandReader commands(peer);
    for (;;) {
      const std::vector<std::string> words = commands.next();
      if (words.empty()) return;
      const std::string bytes = answer(words, connection);
      if (bytes.empty() || !peer.send(bytes)) return;
    }
  };
}

inline std::string url_of(const RawServer& server, const std::string& userinfo = "") {
  return "redis://" + userinfo + "127.0.0.1:" + std::to_string(server.port()) + "/";
}

inline std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

}  // namespace redis_test
