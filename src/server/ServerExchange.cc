#include <sys/uio.h>

#include <cerrno>
#include <string>
#include <utility>

#include "factory/SeriesScope.h"
#include "server/LeaveHook.h"
#include "server/ReplyStream.h"
#include "server/ServerConnection.h"
#include "server/ServerPeer.h"
#include "workflow/WFServerTask.h"

namespace workflow {

const char ServerExchange::kHostKey[] = "workflow server";

void ServerExchange::call_when_closed(std::function<void()> hook) {
  if (leave_hook_) {
    leave_hook_->end();
  }
  leave_hook_ = std::make_shared<LeaveHook>(std::move(hook), series());
  peer_->watch_leaving(leave_hook_, ServerPeer::OnLeaving::kNothing);
}

void ServerExchange::cancel_when_closed() {
  peer_->watch_leaving(nullptr, ServerPeer::OnLeaving::kEndScope);
}

void ServerExchange::cancel_timers_when_closed() {
  peer_->watch_leaving(nullptr, ServerPeer::OnLeaving::kEndTimers);
}

WFScope ServerExchange::new_scope(ServerPeer* peer) {
  return WFScope(Ref<DeadlineScope>::adopt(new DeadlineScope(host_of(peer))));
}

WFScope ServerExchange::scope_of(const SeriesWork* series) {
  return WFScope(Ref<DeadlineScope>(SeriesScope::of(series)));
}

void ServerExchange::send_reply(const Reply& reply) {
  if (leave_hook_) {
    leave_hook_->end();
  }
  peer_->send_reply(this, reply);
}

std::shared_ptr<ReplyStream> ServerExchange::open_stream(const StreamForm& form, bool of_events,
                                                         const Reply& reply) {
  constexpr int kMaxVectors = 64;
  struct iovec vectors[kMaxVectors];
  errno = 0;
  const int count = response()->encode(vectors, kMaxVectors);
  if (count < 0) {
    errno = errno == 0 || errno == EAGAIN ? EBADMSG : errno;
    return nullptr;
  }
  std::string head;
  for (int i = 0; i < count; i++) {
    head.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  const ReplyStream::Form how = {form.chunked, form.discards, of_events};
  ReplyStream::append_framed(head, form.first, how);
  auto stream = std::make_shared<ReplyStream>(peer_, how);
  if (peer_->begin_stream(stream, head, reply.send_timeout) != 0) return nullptr;
  stream_ = stream;
  stream_reply_ = reply;
  return stream;
}

bool ServerExchange::can_stream() const {
  return peer_->can_stream();
}

int ServerExchange::stop_stream() {
  if (leave_hook_) {
    leave_hook_->end();
  }
  return stream_->over(ENOTCONN);
}

void ServerExchange::end_stream() {
  peer_->end_stream(this, stream_reply_, stream_->last_bytes());
}

void ServerExchange::drop() {
  if (leave_hook_) {
    leave_hook_->end();
  }
  if (stream_) {
    stream_->over(ECONNRESET);
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
