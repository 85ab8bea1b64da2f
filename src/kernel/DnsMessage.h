#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernel/HostAddress.h"

namespace workflow {

// The result of a query for the addresses of one name.
struct DnsAnswer {
  // 0: there are addresses. EAI_NONAME, EAI_NODATA: the server says that there are none. EAI_AGAIN:
  // no answer, or the server could not find out. EAI_FAIL: the server refuses, or its message is
  // broken. EAI_MEMORY, EAI_SYSTEM (with `system_error`): this process is short of memory,
  // descriptors or the like.
  int error = 0;
  int system_error = 0;
  std::vector<HostAddress> addresses = {};  // ports are 0
  int64_t ttl_ns = 0;                       // how long the addresses are valid

  // Whether the server has answered the query, with addresses or with the statement that there are
  // none.
  bool is_verdict() const;
};

// Reads the messages of name servers (RFC 1035). Pure functions.
//
// A message is read up to the end of its answer section, and counts as broken if anything in this
// part is malformed. The rest, such as the authority section, is ignored.
class DnsMessage {
 public:
  // The most addresses that are taken from one message. Others are left out.
  static constexpr size_t kMaxAddresses = 32;
  // The most aliases (CNAME) that are followed from the name that was asked for to its addresses.
  static constexpr size_t kMaxAliases = 16;
  // A message is broken if its names have more labels and pointers than this, where each part
  // counts every time that it is read. A message of 64 KiB that is full of addresses of one name of
  // ten labels has fewer; a hostile one, whose names all lead along the same labels, would have
  // half a million.
  static constexpr int kMaxNameParts = 50'000;

  // Whether `message` is marked as a response to a query (RFC 1035, 7.3). If it is not, it may not
  // come from the server.
  static bool is_response(std::string_view message);

  // Reads the answer of `message` to a query for the addresses of `name` of one family, AF_INET or
  // AF_INET6.
  //
  // Only records that belong to the name count, directly or along a chain of aliases that begins at
  // it (RFC 1034, 5.3.3), whatever their order. Names are not case-sensitive. All other records are
  // ignored. If the chain leads to a name that has no address in this message the answer is
  // EAI_NODATA: a server that resolves for others has followed the chain itself. If the chain is a
  // circle, or longer than kMaxAliases, the answer is EAI_FAIL.
  //
  // May throw std::bad_alloc. Costs microseconds, and for a hostile message of 64 KiB less than two
  // milliseconds.
  static DnsAnswer read(std::string_view message, std::string_view name, int family);
};

}  // namespace workflow
