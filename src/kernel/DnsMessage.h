#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/HostAddress.h"

namespace workflow {

// What name servers say about a name.
struct DnsAnswer {
  // 0: there are addresses. EAI_NONAME, EAI_NODATA: the server says that there are none. EAI_AGAIN:
  // no answer, or no server could find out. EAI_FAIL: the answer is broken. EAI_MEMORY, EAI_SYSTEM
  // (with `system_error`): this process is short of memory, descriptors or the like.
  int error = 0;
  int system_error = 0;
  std::vector<HostAddress> addresses = {};  // ports are 0
  int64_t ttl_ns = 0;                       // how long the addresses are valid

  // Whether a server has answered, with addresses or with the statement that there are none.
  bool is_verdict() const;
};

// Reads the response to a question for the addresses of a name (RFC 1035, 4). It refers to the
// bytes, which must stay, and changes nothing.
//
// The cost is linear in the size of the message, and bounded by kMaxRecords names of 255 bytes: a
// message of 64 KiB that is made to be expensive takes about a millisecond.
class DnsMessage {
 public:
  // The most addresses that are taken from one message. Others are left out.
  static constexpr size_t kMaxAddresses = 32;
  // The most records that are read. What stands behind them is not looked at.
  static constexpr size_t kMaxRecords = 256;
  static constexpr size_t kHeaderSize = 12;
  static constexpr int kClassIn = 1;
  // The type of the records that are addresses of a family.
  static constexpr int type_of(int family) { return family == AF_INET ? 1 : 28; }

  // `size` must be at least kHeaderSize.
  DnsMessage(const unsigned char* bytes, size_t size) : bytes_(bytes), size_(size) {}

  bool is_response() const { return (bytes_[2] & 0xf8) == 0x80; }  // opcode QUERY
  bool is_truncated() const { return bytes_[2] & 0x02; }
  int code() const { return bytes_[3] & 0x0f; }
  // The family whose addresses the only question asks for, or AF_UNSPEC.
  int family() const;

  // What the message says about the addresses of `name`, a name without a dot at its end. They are
  // those of the name itself and of every name that its aliases lead to, wherever in the answer
  // section the records stand.
  //
  // Other records are skipped. But if there is no address, then records that do not belong to the
  // name, aliases in a circle, several aliases of one name, and records that were not read make the
  // message a broken one: it does not say that there is no address. EAI_FAIL also if a record or a
  // name is malformed or cut off, EAI_AGAIN if the code is that of a failure.
  DnsAnswer read(std::string_view name, int family) const;

 private:
  // A name as it is written in a message, without compression and in lower case.
  using WireName = std::string;
  struct Alias {
    WireName target;
    uint32_t ttl_s = 0;
  };
  struct Address {
    WireName owner;
    HostAddress address;
    uint32_t ttl_s = 0;
  };
  struct Records {
    std::multimap<WireName, Alias> aliases;
    std::vector<Address> addresses;
    bool all_read = true;
  };

  static WireName wire_name(std::string_view name);
  // Finds out what the records say about `name`.
  static DnsAnswer choose(const Records& records, const WireName& name);

  uint32_t get16(size_t at) const {
    return static_cast<uint32_t>(bytes_[at] << 8 | bytes_[at + 1]);
  }
  uint32_t get32(size_t at) const { return get16(at) << 16 | get16(at + 2); }
  // The name at `at`, which is moved behind it; or nothing if the name is malformed.
  std::optional<WireName> read_name(size_t& at) const;
  // Nothing if something is malformed or cut off.
  std::optional<Records> read_records(int family) const;
  // The record at `at`, which is moved behind it. False if it is malformed or cut off.
  bool read_record(size_t& at, int family, Records& records) const;

  const unsigned char* const bytes_;
  const size_t size_;
};

}  // namespace workflow
