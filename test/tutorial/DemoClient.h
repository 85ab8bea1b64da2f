#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/RawClient.h"
#include "support/TutorialProgram.h"

namespace tutorial_test {

using nlohmann::json;
using server_test::HttpReply;
using server_test::RawClient;

inline std::string request_for(const std::string& method, const std::string& target) {
  return method + " " + target + " HTTP/1.1\r\nHost: demo\r\n\r\n";
}

// The demo on a port of its own, and what its clients do.
class Demo {
 public:
  explicit Demo(std::vector<std::string> arguments = {}) : program(started_with(arguments)) {
    port = program.port();
  }

  // One exchange on a connection of its own; status 0 when there is no reply.
  HttpReply ask(const std::string& method, const std::string& target) const {
    RawClient client(port);
    const bool to_head = method == "HEAD";
    return client.ask(request_for(method, target), to_head).value_or(HttpReply());
  }
  json get(const std::string& target) const { return parsed(ask("GET", target)); }
  json post(const std::string& target) const { return parsed(ask("POST", target)); }

  // Asks for a delay and leaves the reply to come.
  RawClient begin_delay(const std::string& query) const {
    RawClient client(port);
    client.send(request_for("GET", "/delay?" + query));
    return client;
  }

  static json parsed(const HttpReply& reply) { return json::parse(reply.body, nullptr, false); }
  static json reply_of(RawClient& client) { return parsed(client.reply().value_or(HttpReply())); }

  // The delays outstanding of that name; of those without one if it is empty.
  size_t outstanding(const std::string& name) const {
    const json timers = get("/timers");
    return name.empty() ? timers["unnamed"].get<size_t>() : timers["names"].value(name, size_t{0});
  }
  // Requests arrive when they do: there is nothing to wait for but to ask again.
  bool comes_to(const std::string& name, size_t count) const {
    const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
    while (outstanding(name) != count) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  Program program;
  uint16_t port = 0;

 private:
  static Program started_with(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "0");
    return Program("tutorial-demo", arguments);
  }
};

}  // namespace tutorial_test
