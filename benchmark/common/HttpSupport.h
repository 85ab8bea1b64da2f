// Shared by the HTTP programs: descriptors enough, a loopback listener, and waiting for the end.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace bench {

inline constexpr char kReplyBody[] = "hello, world";

// The small one, or of so many bytes.
inline std::string reply_body(size_t size) {
  return size == 0 ? std::string(kReplyBody) : std::string(size, 'x');
}

inline void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

inline sockaddr_in loopback(unsigned short port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Tells the script that started us where to connect.
inline void print_port(const sockaddr_in& address) {
  std::printf("port=%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
}

// To be called before any thread starts, so that none of them takes the signals.
inline void hold_end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

inline void await_end_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  int signal_number = 0;
  sigwait(&signals, &signal_number);
}

[[noreturn]] inline void fail_errno(const char* what) {
  std::perror(what);
  _exit(1);
}

}  // namespace bench
