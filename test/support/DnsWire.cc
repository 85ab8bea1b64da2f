#include "support/DnsWire.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>

namespace test_support {

void put16(std::string& to, uint32_t value) {
  to += static_cast<char>(value >> 8 & 0xff);
  to += static_cast<char>(value & 0xff);
}

void put32(std::string& to, uint32_t value) {
  put16(to, value >> 16);
  put16(to, value & 0xffff);
}

void set16(std::string& message, size_t at, uint32_t value) {
  std::string bytes;
  put16(bytes, value);
  message.replace(at, bytes.size(), bytes);
}

void put_name(std::string& to, const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    to += static_cast<char>(dot - begin);
    to.append(name, begin, dot - begin);
    begin = dot + 1;
  }
  to += '\0';
}

void put_record(std::string& to, const DnsRecord& record) {
  std::string data = record.value;
  if (record.type == kDnsCname) {
    data.clear();
    put_name(data, record.value);
  } else if (record.type == kDnsA || record.type == kDnsAaaa) {
    const bool v6 = record.type == kDnsAaaa;
    data.assign(v6 ? 16 : 4, '\0');
    if (::inet_pton(v6 ? AF_INET6 : AF_INET, record.value.c_str(), data.data()) != 1) {
      std::abort();
    }
  }
  put_name(to, record.owner);
  put16(to, static_cast<uint32_t>(record.type));
  put16(to, static_cast<uint32_t>(record.klass));
  put32(to, record.ttl_s);
  put16(to, static_cast<uint32_t>(data.size()));
  to += data;
}

std::string dns_message(uint32_t id, uint32_t flags, const std::string& name, int type,
                        const std::vector<DnsRecord>& records) {
  std::string message;
  put16(message, id);
  put16(message, flags);
  put16(message, 1);
  put16(message, static_cast<uint32_t>(records.size()));
  put32(message, 0);
  put_name(message, name);
  put16(message, static_cast<uint32_t>(type));
  put16(message, 1);
  for (const DnsRecord& record : records) {
    put_record(message, record);
  }
  return message;
}

}  // namespace test_support
