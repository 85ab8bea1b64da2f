#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace workflow {

// The sender of a datagram, and the address of this machine to which it was sent. A reply must be
// sent from that address, or the peer would not recognise it. A plain value.
struct DatagramAddress {
  struct sockaddr_storage peer;
  socklen_t peer_length;  // 0: the sender has no address (unix sockets)
  // The values of ipi_spec_dst and ipi6_addr. AF_UNSPEC: unknown, or there is only one.
  sa_family_t local_family;
  union {
    struct in_addr v4;
    struct in6_addr v6;
  } local;
};

// Makes receive_datagram() report the local address, if the socket is bound to all local addresses.
void learn_local_addresses(int fd);

// Receives one datagram. Returns its size, which may be 0, or -1 with errno: EAGAIN if there is
// none; EMSGSIZE if it is larger than `size`, and then it is lost. Other values are errors that an
// earlier datagram has caused.
ssize_t receive_datagram(int fd, void* buffer, size_t size, DatagramAddress* from);

// Sends the contents of all vectors as one datagram, or nothing. Returns 0 or an errno (EAGAIN: no
// room now; EMSGSIZE: too large for one datagram). If `to` is null, sends to the socket's peer.
int send_datagram(int fd, const struct iovec* vectors, int count, const DatagramAddress* to);

}  // namespace workflow
