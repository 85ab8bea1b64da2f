#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace workflow {

// Who sent a datagram, and to which of this machine's addresses: a reply has to come from there, or
// the peer would not know it for one. A plain value.
struct DatagramAddress {
  struct sockaddr_storage peer;
  socklen_t peer_length;  // 0: the sender has no address (unix sockets)
  // As ipi_spec_dst and ipi6_addr; AF_UNSPEC: unknown, or there is but one.
  sa_family_t local_family;
  union {
    struct in_addr v4;
    struct in6_addr v6;
  } local;
};

// Has receive_datagram() learn the local address, if the socket is bound to all of them.
void learn_local_addresses(int fd);

// One datagram: its size, perhaps 0; -1 with errno: EAGAIN when there is none, EMSGSIZE for one
// that is larger than `size`, which is gone then; others are errors that an earlier datagram has
// met.
ssize_t receive_datagram(int fd, void* buffer, size_t size, DatagramAddress* from);

// Sends one datagram of all the vectors, or nothing: 0 or an errno (EAGAIN: no room now; EMSGSIZE:
// too large for one). Without an address, to the socket's peer.
int send_datagram(int fd, const struct iovec* vectors, int count, const DatagramAddress* to);

}  // namespace workflow
