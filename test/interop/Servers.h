#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "support/Loopback.h"
#include "support/Program.h"
#include "support/TempDir.h"
#include "util/UniqueFd.h"

namespace interop_test {

using test_support::Program;

// A socket that listens on a free port of 127.0.0.1, for a program to inherit: nothing sent to it
// is refused while the program starts.
class LocalSocket {
 public:
  LocalSocket() : fd_(test_support::keep_port()) {
    ::listen(fd_.get(), 511);
    port_ = test_support::port_of(fd_.get());
  }

  int fd() const { return fd_.get(); }
  uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  workflow::UniqueFd fd_;
  uint16_t port_ = 0;
};

// nginx with one worker, listening on a port of its own. `http`: what the block of that name holds;
// "@listen" in it stands for the address, "@folder" for a directory of its own.
class Nginx {
 public:
  explicit Nginx(std::string http) {
    const LocalSocket socket;
    port_ = socket.port();
    replace(http, "@listen", socket.address());
    replace(http, "@folder", folder_.path("www"));
    std::filesystem::create_directory(folder_.path("www"));
    // Root's worker would become a user who cannot read the folder.
    std::string text = std::string(::geteuid() == 0 ? "user root;\n" : "") +
                       "daemon off;\nworker_processes 1;\npid " + folder_.path("pid") +
                       ";\nerror_log " + folder_.path("log") +
                       " error;\nevents { worker_connections 512; }\nhttp {\n"
                       "access_log off;\ntypes { text/plain txt; }\n";
    for (const char* each : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      text += std::string(each) + "_temp_path " + folder_.path(each) + ";\n";
    }
    std::ofstream(folder_.path("conf")) << text << http << "\n}\n";
    program_ = std::make_unique<Program>(
        "nginx",
        std::vector<std::string>{"-p", folder_.path(""), "-c", folder_.path("conf"), "-e",
                                 folder_.path("log")},
        test_support::ProgramOptions{
            .environment = {"NGINX=3;"}, .inherited = {socket.fd()}, .end_signal = SIGTERM});
  }

  ~Nginx() {
    if (testing::Test::HasFailure()) {
      std::cout << std::ifstream(folder_.path("log")).rdbuf();
    }
  }
  Nginx(const Nginx&) = delete;
  Nginx& operator=(const Nginx&) = delete;

  uint16_t port() const { return port_; }
  std::string www(const std::string& name) const { return folder_.path("www/" + name); }
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string https(const std::string& path = "/") const {
    return "https://localhost:" + std::to_string(port_) + path;
  }

 private:
  static void replace(std::string& text, const std::string& name, const std::string& by) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += by.size()) {
      text.replace(at, name.size(), by);
    }
  }

  const test_support::TempDir folder_;
  uint16_t port_ = 0;
  std::unique_ptr<Program> program_;
};

// haproxy, listening on a port of its own. `sections`: its frontends and backends, where
// "bind fd@3" is that port.
class Haproxy {
 public:
  explicit Haproxy(const std::string& sections) {
    const LocalSocket socket;
    port_ = socket.port();
    std::ofstream(folder_.path("cfg"))
        << "global\n  maxconn 256\n  nbthread 1\n  tune.ssl.default-dh-param 2048\n"
           "defaults\n  mode http\n  timeout connect 10s\n  timeout client 30s\n"
           "  timeout server 30s\n"
        << sections << "\n";
    program_ = std::make_unique<Program>(
        "haproxy", std::vector<std::string>{"-db", "-q", "-f", folder_.path("cfg")},
        test_support::ProgramOptions{.inherited = {socket.fd()}});
  }

  uint16_t port() const { return port_; }
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string https(const std::string& path = "/") const {
    return "https://localhost:" + std::to_string(port_) + path;
  }

 private:
  const test_support::TempDir folder_;
  uint16_t port_ = 0;
  std::unique_ptr<Program> program_;
};

}  // namespace interop_test
