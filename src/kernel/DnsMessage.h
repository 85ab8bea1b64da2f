#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernel/HostAddress.h"

namespace workflow {

// What became of the question for the addresses of one name.
struct DnsAnswer {
  // 0: there are addresses. EAI_NONAME, EAI_NODATA: the server says that there are none. EAI_AGAIN:
  // no answer, or the server could not find out. EAI_FAIL: the server refuses, or its message is
  // broken. EAI_MEMORY, EAI_SYSTEM (with `system_error`): this process is short of something.
  int error = 0;
  int system_error = 0;
  std::vector<HostAddress> addresses = {};  // ports are 0
  int64_t ttl_ns = 0;                       // how long the addresses may be believed

  // Whether the server has answered the question, be it with addresses or without.
  bool is_verdict() const;
};

// Reads the messages of name servers (RFC 1035). Pure functions.
//
// A message is read to the end of its answer section, and is broken if anything up to there is not
// as it has to be. What follows, such as the authority section, is not looked at.
class DnsMessage {
 public:
  // At most so many addresses are taken from one message; the rest is left out.
  static constexpr size_t kMaxAddresses = 32;
  // So many aliases (CNAME) are followed from the name that was asked for to its addresses.
  static constexpr size_t kMaxAliases = 16;
  // A message is broken if its names have more labels and pointers than this, counted each time
  // that they are read. A message of 64 KiB that is full of addresses of one name of ten labels has
  // fewer; a hostile one, whose names all lead along the same labels, would have half a million.
  static constexpr int kMaxNameParts = 50'000;

  // Whether `message` says that it is a response to a query (RFC 1035, 7.3): if not, somebody else
  // may have sent it.
  static bool is_response(std::string_view message);

  // What `message` answers to the question for the addresses of `name` of one family, AF_INET or
  // AF_INET6.
  //
  // Only records that belong to the name count, directly or along a chain of aliases that begins at
  // it (RFC 1034, 5.3.3), whatever their order. Names are the same in any case of letters. All
  // others are left out, as if they were not there. If the chain leads to a name that has no
  // address in this message the answer is EAI_NODATA: a server that resolves for others has
  // followed the chain itself. A chain that is a circle or longer than kMaxAliases is EAI_FAIL.
  //
  // May throw std::bad_alloc. Costs microseconds, and for a hostile message of 64 KiB less than two
  // milliseconds.
  static DnsAnswer read(std::string_view message, std::string_view name, int family);
};

}  // namespace workflow
