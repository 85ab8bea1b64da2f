#include "kernel/DnsMessage.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "util/Time.h"

namespace workflow {

namespace {

constexpr int kTypeCname = 5;
constexpr int kNxDomain = 3;
constexpr size_t kQuestionTail = 4;   // type and class
constexpr size_t kRecordHeader = 10;  // type, class, time to live, size of the data
constexpr size_t kMaxName = 255;
constexpr int kMaxLabels = 127;  // of such a name, each of which may be behind a pointer

// RFC 2181, 8: a value with the highest bit counts as zero.
int64_t ttl_of(uint32_t seconds) {
  return seconds > INT32_MAX ? 0 : seconds * kNsPerSec;
}

char lower_case_byte(unsigned char c) {
  return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

HostAddress address_of(const unsigned char* bytes, int family) {
  if (family == AF_INET) {
    struct in_addr v4;
    std::memcpy(&v4, bytes, sizeof v4);
    return HostAddress::of(v4);
  }
  struct in6_addr v6;
  std::memcpy(&v6, bytes, sizeof v6);
  return HostAddress::of(v6);
}

}  // namespace

bool DnsAnswer::is_verdict() const {
  return error == 0 || error == EAI_NONAME || error == EAI_NODATA;
}

int DnsMessage::family() const {
  size_t at = kHeaderSize;
  if (get16(4) != 1 || !read_name(at) || size_ - at < kQuestionTail) return AF_UNSPEC;
  const int type = static_cast<int>(get16(at));
  return type == type_of(AF_INET) ? AF_INET : type == type_of(AF_INET6) ? AF_INET6 : AF_UNSPEC;
}

DnsAnswer DnsMessage::read(std::string_view name, int family) const {
  if (code() == kNxDomain) return {.error = EAI_NONAME};
  if (code() != 0) return {.error = EAI_AGAIN};
  const std::optional<Records> records = read_records(family);
  return records ? choose(*records, wire_name(name)) : DnsAnswer{.error = EAI_FAIL};
}

DnsMessage::WireName DnsMessage::wire_name(std::string_view name) {
  WireName wire;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    wire += static_cast<char>(end - begin);
    for (const char c : name.substr(begin, end - begin)) {
      wire += lower_case_byte(static_cast<unsigned char>(c));
    }
    begin = end + 1;
  }
  return wire;
}

DnsAnswer DnsMessage::choose(const Records& records, const WireName& name) {
  DnsAnswer answer{.error = EAI_NODATA, .ttl_ns = kNever};
  bool makes_sense = records.all_read;
  std::set<std::string_view> names = {name};
  std::vector<std::string_view> to_follow = {name};
  size_t followed = 0;
  while (!to_follow.empty()) {
    const auto [begin, end] = records.aliases.equal_range(WireName(to_follow.back()));
    to_follow.pop_back();
    for (auto one = begin; one != end; ++one) {
      followed++;
      makes_sense &= one == begin;
      answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(one->second.ttl_s));
      if (names.insert(one->second.target).second) {
        to_follow.push_back(one->second.target);
      } else {
        makes_sense = false;
      }
    }
  }
  makes_sense &= followed == records.aliases.size();
  for (const Address& one : records.addresses) {
    if (!names.contains(one.owner)) {
      makes_sense = false;
    } else if (answer.addresses.size() < kMaxAddresses) {
      answer.error = 0;
      answer.addresses.push_back(one.address);
      answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(one.ttl_s));
    }
  }
  if (answer.error != 0 && !makes_sense) {
    answer.error = EAI_FAIL;
  }
  return answer;
}

std::optional<DnsMessage::WireName> DnsMessage::read_name(size_t& at) const {
  WireName name;
  size_t position = at;
  size_t limit = size_;  // every pointer leads to before the part that it ends, so this terminates
  bool moved = false;
  int pointers = 0;
  for (size_t part = position;;) {
    if (position >= limit) return std::nullopt;
    const size_t length = bytes_[position];
    if (length >= 0xc0) {
      if (limit - position < 2) return std::nullopt;
      const size_t target = get16(position) & 0x3fff;
      at = moved ? at : position + 2;
      moved = true;
      if (target >= part || ++pointers > kMaxLabels) return std::nullopt;
      limit = part;
      part = position = target;
      continue;
    }
    position++;
    if (length == 0) {
      at = moved ? at : position;
      return name;
    }
    if (length >= 0x40 || length > limit - position || name.size() + length + 2 > kMaxName) {
      return std::nullopt;
    }
    name += static_cast<char>(length);
    for (size_t i = 0; i < length; i++) {
      name += lower_case_byte(bytes_[position + i]);
    }
    position += length;
  }
}

std::optional<DnsMessage::Records> DnsMessage::read_records(int family) const {
  size_t at = kHeaderSize;
  for (uint32_t i = get16(4); i > 0; i--) {
    if (!read_name(at) || size_ - at < kQuestionTail) return std::nullopt;
    at += kQuestionTail;
  }
  Records records;
  const size_t count = get16(6);
  records.all_read = count <= kMaxRecords;
  for (size_t i = std::min(count, kMaxRecords); i > 0; i--) {
    if (!read_record(at, family, records)) return std::nullopt;
  }
  return records;
}

bool DnsMessage::read_record(size_t& at, int family, Records& records) const {
  std::optional<WireName> owner = read_name(at);
  if (!owner || size_ - at < kRecordHeader) return false;
  const int type = static_cast<int>(get16(at));
  const int klass = static_cast<int>(get16(at + 2));
  const uint32_t ttl_s = get32(at + 4);
  const size_t size = get16(at + 8);
  size_t data = at + kRecordHeader;
  if (size > size_ - data) return false;
  at = data + size;
  if (klass != kClassIn) return true;
  if (type == kTypeCname) {
    std::optional<WireName> target = read_name(data);
    if (!target || data != at) return false;
    records.aliases.emplace(std::move(*owner), Alias{std::move(*target), ttl_s});
  } else if (type == type_of(family)) {
    if (size != (family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr))) {
      return false;
    }
    records.addresses.push_back({std::move(*owner), address_of(bytes_ + data, family), ttl_s});
  }
  return true;
}

}  // namespace workflow
