// WFTaskFactory.h alone brings settings, error strings, resource pools, and what the system offers
// for addresses and their names.
#include "workflow/WFTaskFactory.h"

const char* error_of(const WFHttpTask* task) {
  return WFGlobal::get_error_string(task->get_state(), task->get_error());
}

WFConditional* when_one_is_free(WFResourcePool* pool, SubTask* task) {
  return pool->get(task);
}

bool is_loopback(const struct addrinfo* found) {
  if (found->ai_family != AF_INET) {
    return false;
  }
  const auto* address = reinterpret_cast<const struct sockaddr_in*>(found->ai_addr);
  return address->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

int look_up(const char* host, struct addrinfo** found) {
  return getaddrinfo(host, nullptr, nullptr, found);
}
