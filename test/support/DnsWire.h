#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace test_support {

// Types of records and questions.
constexpr int kDnsA = 1;
constexpr int kDnsCname = 5;
constexpr int kDnsTxt = 16;
constexpr int kDnsAaaa = 28;

// Flags of a message's header, which are its third and fourth byte.
constexpr uint32_t kDnsResponse = 0x8000;
constexpr uint32_t kDnsTruncated = 0x0200;

struct DnsRecord {
  std::string owner;
  int type = kDnsA;
  std::string value;  // an address or, of an alias, a name as text; of other types the bytes
  uint32_t ttl_s = 300;
  int klass = 1;
};

void put16(std::string& to, uint32_t value);
void put32(std::string& to, uint32_t value);
// Overwrites two bytes of a message.
void set16(std::string& message, size_t at, uint32_t value);
// Appends a name in the form that messages have, without compression.
void put_name(std::string& to, const std::string& name);
void put_record(std::string& to, const DnsRecord& record);

// Returns a message with one question and these records as its answer. `flags` contains the
// response code.
std::string dns_message(uint32_t id, uint32_t flags, const std::string& name, int type,
                        const std::vector<DnsRecord>& records);

}  // namespace test_support
