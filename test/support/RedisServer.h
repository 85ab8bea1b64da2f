#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/Certificates.h"
#include "support/Loopback.h"
#include "support/Program.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

namespace redis_test {

// A program that comes with the servers of the tests: "server", "cli" or "check-aof". They are
// those of Redis, unless WORKFLOW_TEST_REDIS_SERVER is the name or the absolute path of another
// server, such as valkey-server. Then the names of the other programs begin as that of the server
// does.
inline std::string redis_program(const std::string& kind) {
  const char* const given = std::getenv("WORKFLOW_TEST_REDIS_SERVER");
  const std::string server = given != nullptr ? given : "redis-server";
  return kind == "server" ? server : server.substr(0, server.rfind("server")) + kind;
}

// A redis-server of a test's own, with a directory of its own, which keeps nothing on disk. It has
// begun to listen when the constructor returns. The destructor ends it by its pid.
class RedisServer {
 public:
  enum class On {
    kUnixSocket,
    kTcp,
    kCluster,  // on TCP, as a node of a cluster that it knows nothing about yet
    kSentinel  // a Sentinel, on TCP
  };
  // For all connections of a server on TCP, also those between servers.
  struct Tls {
    test_support::Certificate certificate = {};
    std::string authority = {};  // empty: no TLS
  };
  struct Options {
    On on = On::kUnixSocket;
    std::vector<std::string> arguments = {};
    std::vector<std::string> environment = {};  // "NAME=value"
    Tls tls = {};
    std::string configuration = {};  // of a Sentinel
  };

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options) : options_(std::move(options)) { start(); }

  // Starts it again where it was, after stop(). If its log is cut short, the end is removed as an
  // operator would.
  void start() {
    bool started = try_to_start();
    if (!started && program_->output().find(kCutShort) != std::string::npos) {
      repair_log();
      started = try_to_start();
    }
    ASSERT_TRUE(started) << program_->output();
  }
  void stop() { program_.reset(); }
  void signal(int number) const { program_->signal(number); }
  // Removes a transaction that is not whole from the end of the log, while the server is stopped.
  void repair_log() const {
    const std::string manifest = dir_.path("appendonlydir/appendonly.aof.manifest");
    const std::string command =
        "yes | '" + redis_program("check-aof") + "' --fix '" + manifest + "' >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  uint16_t port() const { return test_support::port_of(port_.get()); }
  uint16_t bus_port() const { return test_support::port_of(bus_port_.get()); }
  const Tls& tls() const { return options_.tls; }
  std::string folder() const { return dir_.path(""); }
  std::string socket_path() const { return dir_.path("redis.sock"); }
  // The file of an append-only server to which it appends.
  std::string log_path() const { return dir_.path("appendonlydir/appendonly.aof.1.incr.aof"); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }
  // As messages of a store begin that are about this server.
  std::string in_messages() const {
    return "Redis at " + (is_on_tcp() ? address() : socket_path()) + ": ";
  }
  // `userinfo` is as in "user:password@".
  std::string url(const std::string& userinfo = "", int db = 0) const {
    const std::string number = std::to_string(db);
    if (!is_on_tcp()) return "redis+unix://" + userinfo + socket_path() + "?db=" + number;
    return (has_tls() ? "rediss://" : "redis://") + userinfo + address() + "/" + number;
  }

 private:
  bool is_on_tcp() const { return options_.on != On::kUnixSocket; }
  bool has_tls() const { return !options_.tls.authority.empty(); }
  // Names and values of settings.
  std::vector<std::pair<std::string, std::string>> transport(const std::string& port) const {
    if (!has_tls()) return {{"port", port}};
    return {{"port", "0"},
            {"tls-port", port},
            {"tls-cert-file", options_.tls.certificate.cert_file},
            {"tls-key-file", options_.tls.certificate.key_file},
            {"tls-ca-cert-file", options_.tls.authority},
            {"tls-auth-clients", "no"},
            {"tls-replication", "yes"},
            {"tls-cluster", "yes"}};
  }

  bool try_to_start() {
    if (is_on_tcp() && !port_.valid()) {
      port_ = test_support::keep_port();
    }
    if (options_.on == On::kCluster && !bus_port_.valid()) {
      bus_port_ = test_support::keep_port();
    }
    const std::string port = std::to_string(this->port());
    std::vector<std::string> arguments;
    if (options_.on == On::kSentinel) {
      const std::string file = dir_.path("sentinel.conf");
      std::ofstream lines(file);
      lines << options_.configuration;
      for (const auto& [name, value] : transport(port)) {
        lines << name << " " << value << "\n";
      }
      lines.close();
      arguments = {file, "--sentinel"};
    }
    // A replica is served at once: the server would wait for others that may come.
    const std::vector<std::string> common = {
        "--dir", dir_.path(""), "--save", "", "--bind", "127.0.0.1", "--repl-diskless-sync-delay",
        "0"};
    const auto add = [&arguments](std::vector<std::string> more) {
      arguments.insert(arguments.end(), more.begin(), more.end());
    };
    if (options_.on != On::kSentinel) {
      add(common);
      // It must not go on with a log that ends within a transaction (docs/store.md).
      add({"--aof-load-truncated", "no"});
      for (const auto& [name, value] : transport(port)) {
        add({"--" + name, value});
      }
    }
    if (options_.on == On::kUnixSocket) {
      add({"--unixsocket", socket_path()});
    } else if (options_.on == On::kCluster) {
      add({"--cluster-enabled", "yes", "--cluster-port", std::to_string(bus_port()),
           "--cluster-node-timeout", "60000"});
    }
    add(options_.arguments);
    program_ = std::make_unique<test_support::Program>(
        redis_program("server"), arguments,
        // A node of a Cluster writes a line or two about each slot that moves.
        test_support::ProgramOptions{.environment = options_.environment, .loses_output = true});
    // With a capital letter, or in the middle of a sentence.
    const char* const ready =
        options_.on == On::kSentinel ? "Sentinel ID is" : "eady to accept connections";
    return program_->started() && program_->prints(ready);
  }

  static constexpr const char* kCutShort = "Unexpected end of file reading the append only file";

  const Options options_;
  const test_support::TempDir dir_;
  // Nobody else gets the ports, also while the server is stopped.
  workflow::UniqueFd port_;
  workflow::UniqueFd bus_port_;
  std::unique_ptr<test_support::Program> program_;
};

}  // namespace redis_test
