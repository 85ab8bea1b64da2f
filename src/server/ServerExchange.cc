#include <utility>

#include "server/LeaveHook.h"
#include "server/ServerConnection.h"
#include "server/ServerPeer.h"
#include "workflow/WFServerTask.h"

namespace workflow {

const char ServerExchange::kHostKey[] = "workflow server";

void ServerExchange::call_when_closed(std::function<void()> hook) {
  if (leave_hook_) {
    leave_hook_->end();
  }
  leave_hook_ = std::make_shared<LeaveHook>(std::move(hook));
  peer_->watch_leaving(leave_hook_, false);
}

void ServerExchange::end_timers_when_closed() {
  peer_->watch_leaving(nullptr, true);
}

void ServerExchange::send_reply(const Reply& reply) {
  if (leave_hook_) {
    leave_hook_->end();
  }
  peer_->send_reply(this, reply);
}

void ServerExchange::drop() {
  if (leave_hook_) {
    leave_hook_->end();
  }
  peer_->drop();
}

bool ServerExchange::connection_is_closing() const {
  return peer_->shutting_down();
}

int ServerExchange::peer_addr(struct sockaddr* addr, socklen_t* addrlen) const {
  return peer_->peer_addr(addr, addrlen);
}

int ServerExchange::push_bytes(const void* buf, size_t size) {
  return peer_->push(buf, size);
}

bool ServerExchange::peer_closed() const {
  return peer_->peer_closed();
}

WFConnection* ServerExchange::user_connection() const {
  return peer_->user();
}

void ServerExchange::retain(ServerPeer* peer) {
  peer->retain();
}

void ServerExchange::release(ServerPeer* peer) {
  peer->release();
}

void* ServerExchange::host_of(ServerPeer* peer) {
  return &peer->host();
}

}  // namespace workflow
