#include "kernel/Listener.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace workflow {

namespace {

UniqueFd open_spare() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

bool accept_error_is_transient(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    // accept(2): pending network errors of the new socket, to be treated like EAGAIN.
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

Listener::Listener(Poller& poller, UniqueFd fd, std::function<void(UniqueFd)> on_accept,
                   std::function<void()> on_closed)
    : poller_(poller),
      fd_(std::move(fd)),
      spare_(open_spare()),
      on_accept_(std::move(on_accept)),
      on_closed_(std::move(on_closed)) {}

// Level-triggered: connections that a round leaves are reported again.
bool Listener::start() {
  return poller_.add(fd_.get(), EPOLLIN, this) == 0;
}

void Listener::on_events(uint32_t, RunnableList&) {
  for (int i = 0; i < kMaxAccepts && !closing_.load(std::memory_order_relaxed); i++) {
    UniqueFd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.valid()) {
      on_accept_(std::move(connection));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE) {
      out_of_descriptors();
      return;
    } else if (!accept_error_is_transient(errno)) {
      // ENOMEM, ENOBUFS and unexpected errors: these may be temporary, but calling again at once
      // would not help.
      pause();
      return;
    }
  }
}

void Listener::out_of_descriptors() {
  spare_.reset();
  UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
  spare_ = open_spare();
  pause();
}

void Listener::pause() {
  poller_.remove(fd_.get());
  // If there is no memory for a timer it goes on at once: calling accept(2) too often is better
  // than never calling it again.
  paused_ = poller_.timers().schedule(this, saturating_add(poller_.clock().now_ns(), kPauseNs)) ||
            !start();
}

void Listener::left_queue(bool stopped, RunnableList&) {
  if (stopped || closing_.load(std::memory_order_relaxed) || !paused_) return;
  if (!spare_.valid()) {
    spare_ = open_spare();
  }
  if (start()) {
    paused_ = false;
  } else {
    poller_.timers().schedule(this, saturating_add(poller_.clock().now_ns(), kPauseNs));
  }
}

void Listener::run_queued() {
  poller_.timers().unschedule(this);
  poller_.retire(fd_.get(), this);
}

void Listener::on_retired() {
  fd_.reset();
  on_closed_();
  delete this;
}

}  // namespace workflow
