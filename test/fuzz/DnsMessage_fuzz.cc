#include <netdb.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "Fuzzing.h"
#include "kernel/DnsMessage.h"
#include "util/Time.h"

// Whatever bytes a name server sends as its answer to the question for www.test: what is read is
// what RFC 1035 says, also of each part that may have arrived. The same rules, written the obvious
// way, find the same addresses, time and errors.

using fuzzing::require;
using workflow::DnsAnswer;
using workflow::DnsMessage;

namespace {

using Name = std::vector<std::string>;  // labels in lower case
using Bytes = std::vector<unsigned>;

struct Record {
  Name owner;
  unsigned type = 0;
  unsigned rclass = 0;
  uint64_t ttl_s = 0;
  std::string data;
  Name target;
};

struct Message {
  unsigned flags = 0;
  unsigned questions = 0;
  Name name;
  unsigned type = 0;
  unsigned qclass = 0;
  std::vector<Record> answers;
};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

// The labels from `at` on, up to the pointer, which has to lead to before `at`. False if the name
// is broken. `*next` is behind it.
bool labels_from(const Bytes& bytes, size_t at, int pointers, Name* name, size_t* next) {
  size_t end = at;
  for (;;) {
    if (end >= bytes.size()) return false;
    const unsigned length = bytes[end++];
    if (length >= 192) {
      if (end >= bytes.size()) return false;
      const size_t target = (length - 192) * 256 + bytes[end++];
      *next = end;
      size_t ignored = 0;
      return pointers < 127 && target >= 12 && target < at &&
             labels_from(bytes, target, pointers + 1, name, &ignored);
    }
    if (length > 63 || end + length > bytes.size()) return false;
    if (length == 0) {
      *next = end;
      return true;
    }
    name->emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(end),
                       bytes.begin() + static_cast<std::ptrdiff_t>(end + length));
    name->back() = lower(name->back());
    end += length;
  }
}

bool read_name(const Bytes& bytes, size_t* at, Name* name) {
  if (!labels_from(bytes, *at, 0, name, at)) return false;
  size_t size = 1;
  for (const std::string& label : *name)
    size += 1 + label.size();
  return size <= 255;
}

std::optional<uint64_t> number(const Bytes& bytes, size_t* at, size_t size) {
  if (*at + size > bytes.size()) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value = value * 256 + bytes[(*at)++];
  return value;
}

std::optional<Record> read_record(const Bytes& bytes, size_t* at, unsigned wanted_type) {
  Record record;
  if (!read_name(bytes, at, &record.owner)) return std::nullopt;
  const auto type = number(bytes, at, 2);
  const auto rclass = number(bytes, at, 2);
  const auto ttl_s = number(bytes, at, 4);
  const auto size = number(bytes, at, 2);
  if (!type || !rclass || !ttl_s || !size || *at + *size > bytes.size()) return std::nullopt;
  record.type = static_cast<unsigned>(*type);
  record.rclass = static_cast<unsigned>(*rclass);
  record.ttl_s = *ttl_s;
  const size_t begin = *at;
  *at += *size;
  for (size_t i = begin; i < *at; ++i)
    record.data += static_cast<char>(bytes[i]);
  size_t end = begin;
  if (record.rclass == 1 && record.type == 5 &&
      (!read_name(bytes, &end, &record.target) || end != *at))
    return std::nullopt;
  if (record.rclass == 1 && record.type == wanted_type && *size != (wanted_type == 1 ? 4U : 16U))
    return std::nullopt;
  return record;
}

// The header and the question. Null when they are broken.
std::optional<Message> read_head(const Bytes& bytes, size_t* at, uint64_t* answers) {
  Message message;
  *at = 12;
  if (bytes.size() < 12) return std::nullopt;
  message.flags = bytes[2] * 256 + bytes[3];
  message.questions = bytes[4] * 256 + bytes[5];
  *answers = bytes[6] * 256 + bytes[7];
  if (!read_name(bytes, at, &message.name)) return std::nullopt;
  const auto type = number(bytes, at, 2);
  const auto qclass = number(bytes, at, 2);
  if (!type || !qclass) return std::nullopt;
  message.type = static_cast<unsigned>(*type);
  message.qclass = static_cast<unsigned>(*qclass);
  return message;
}

struct Outcome {
  int error = 0;
  std::vector<std::string> addresses = {};
  int64_t ttl_s = 0;

  bool operator==(const Outcome&) const = default;
};

Outcome follow(Name name, unsigned type, const std::vector<Record>& records) {
  Outcome outcome;
  uint64_t ttl_s = INT32_MAX;
  const auto count_ttl = [&](const Record& record) {
    ttl_s = std::min(ttl_s, record.ttl_s >= 1U << 31 ? 0 : record.ttl_s);
  };
  for (int followed = 0;; ++followed) {
    for (const Record& record : records) {
      if (record.rclass != 1 || record.type != type || record.owner != name) continue;
      outcome.addresses.push_back(record.data);
      count_ttl(record);
    }
    if (!outcome.addresses.empty()) break;
    const auto alias = std::find_if(records.begin(), records.end(), [&](const Record& record) {
      return record.rclass == 1 && record.type == 5 && record.owner == name;
    });
    if (alias == records.end()) return {EAI_NODATA};
    if (followed == 16) return {EAI_FAIL};
    count_ttl(*alias);
    name = alias->target;
  }
  if (outcome.addresses.size() > 32) outcome.addresses.resize(32);
  outcome.ttl_s = static_cast<int64_t>(ttl_s);
  return outcome;
}

Outcome expect(std::string_view text, int family) {
  const Bytes bytes = [&] {
    Bytes copy;
    for (char c : text)
      copy.push_back(static_cast<unsigned char>(c));
    return copy;
  }();
  const unsigned type = family == AF_INET ? 1 : 28;
  size_t at = 0;
  uint64_t count = 0;
  auto message = read_head(bytes, &at, &count);
  if (!message || message->flags >> 11 != 16 || message->questions != 1 ||
      message->name != Name{"www", "test"} || message->type != type || message->qclass != 1)
    return {EAI_FAIL};
  const unsigned code = message->flags % 16;
  if (code == 2) return {EAI_AGAIN};
  if (code != 0 && code != 3) return {EAI_FAIL};
  while (count-- > 0) {
    auto record = read_record(bytes, &at, type);
    if (!record) return {EAI_FAIL};
    message->answers.push_back(std::move(*record));
  }
  if (code == 3) return {EAI_NONAME};
  const Outcome outcome = follow(message->name, type, message->answers);
  const bool truncated = message->flags & 0x200;
  return outcome.error == EAI_NODATA && truncated ? Outcome{EAI_FAIL} : outcome;
}

Outcome outcome_of(const DnsAnswer& answer) {
  Outcome outcome{answer.error};
  require(answer.system_error == 0);
  require(answer.error == 0 ? !answer.addresses.empty() : answer.addresses.empty());
  for (const workflow::HostAddress& address : answer.addresses) {
    const auto* bytes = reinterpret_cast<const char*>(&address.address);
    outcome.addresses.push_back(
        address.family() == AF_INET
            ? std::string(bytes + offsetof(sockaddr_in, sin_addr), sizeof(in_addr))
            : std::string(bytes + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr)));
  }
  require(answer.error == 0 || answer.ttl_ns == 0);
  require(answer.ttl_ns % workflow::kNsPerSec == 0);
  outcome.ttl_s = answer.ttl_ns / workflow::kNsPerSec;
  return outcome;
}

// In a block of exactly its size, so that a read beyond it is seen.
void check(std::string_view bytes) {
  const std::unique_ptr<char[]> block(new char[bytes.size()]);
  if (!bytes.empty()) std::memcpy(block.get(), bytes.data(), bytes.size());
  const std::string_view message(block.get(), bytes.size());
  for (const int family : {AF_INET, AF_INET6}) {
    const Outcome outcome = outcome_of(DnsMessage::read(message, "www.test", family));
    require(outcome == expect(message, family));
    // Case of letters in what was asked for does not matter.
    require(outcome_of(DnsMessage::read(message, "WWW.Test", family)) == outcome);
  }
  const bool response = bytes.size() >= 12 && static_cast<unsigned char>(bytes[2]) >> 3 == 16;
  require(DnsMessage::is_response(message) == response);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  fuzzing::for_each_cutting(bytes, [&](const fuzzing::Cuts& cuts) {
    if (!cuts.empty()) check(bytes.substr(0, cuts.front()));
  });
  return 0;
}
