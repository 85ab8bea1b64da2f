#include "kernel/Datagram.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace workflow {

namespace {

// Has the alignment and the size of one cmsghdr with either kind of address.
union Control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};
static_assert(sizeof(Control) >= CMSG_SPACE(sizeof(struct in_pktinfo)));

void note_local_address(struct msghdr* message, DatagramAddress* from) {
  for (struct cmsghdr* each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each)) {
    if (each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_PKTINFO) {
      struct in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(each), sizeof info);
      from->local_family = AF_INET;
      from->local.v4 = info.ipi_spec_dst;
    } else if (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_PKTINFO) {
      struct in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(each), sizeof info);
      // A reply to a datagram that was sent to a group comes from an address that the system
      // chooses.
      if (!IN6_IS_ADDR_MULTICAST(&info.ipi6_addr)) {
        from->local_family = AF_INET6;
        from->local.v6 = info.ipi6_addr;
      }
    }
  }
}

template <class Info>
void set_control(struct msghdr* message, Control* control, int level, int type, const Info& info) {
  message->msg_control = control;
  message->msg_controllen = CMSG_SPACE(sizeof info);
  struct cmsghdr* const header = CMSG_FIRSTHDR(message);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
}

void set_local_address(struct msghdr* message, Control* control, const DatagramAddress& to) {
  if (to.local_family == AF_INET) {
    struct in_pktinfo info = {};
    info.ipi_spec_dst = to.local.v4;
    set_control(message, control, IPPROTO_IP, IP_PKTINFO, info);
  } else if (to.local_family == AF_INET6) {
    struct in6_pktinfo info = {};
    info.ipi6_addr = to.local.v6;
    set_control(message, control, IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
}

int send_message(int fd, const struct msghdr& message) {
  ssize_t n;
  do {
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n >= 0 ? 0 : errno == EWOULDBLOCK ? EAGAIN : errno;
}

}  // namespace

void learn_local_addresses(int fd) {
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length) < 0) return;
  const int on = 1;
  const auto* v4 = reinterpret_cast<const struct sockaddr_in*>(&address);
  const auto* v6 = reinterpret_cast<const struct sockaddr_in6*>(&address);
  if (address.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
    ::setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  } else if (address.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  }
}

ssize_t receive_datagram(int fd, void* buffer, size_t size, DatagramAddress* from) {
  Control control;
  struct iovec vector = {buffer, size};
  struct msghdr message = {};
  ssize_t n;
  do {
    message.msg_name = &from->peer;
    message.msg_namelen = sizeof from->peer;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    n = ::recvmsg(fd, &message, 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return n;
  if (message.msg_flags & MSG_TRUNC) {
    errno = EMSGSIZE;
    return -1;
  }
  from->peer_length = std::min<socklen_t>(message.msg_namelen, sizeof from->peer);
  from->local_family = AF_UNSPEC;
  note_local_address(&message, from);
  return n;
}

int send_datagram(int fd, const struct iovec* vectors, int count, const DatagramAddress* to) {
  Control control = {};
  struct msghdr message = {};
  message.msg_iov = const_cast<struct iovec*>(vectors);
  message.msg_iovlen = static_cast<size_t>(count);
  if (to) {
    message.msg_name = const_cast<struct sockaddr_storage*>(&to->peer);
    message.msg_namelen = to->peer_length;
    set_local_address(&message, &control, *to);
  }
  int error = send_message(fd, message);
  if (error == ECONNREFUSED) {
    // On a connected socket this is the error of an earlier datagram. This one was not sent.
    error = send_message(fd, message);
  }
  if (message.msg_control && (error == EINVAL || error == EADDRNOTAVAIL)) {
    // The address cannot be a source (it is a broadcast address), or no longer belongs to this
    // machine.
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    error = send_message(fd, message);
  }
  return error;
}

}  // namespace workflow
