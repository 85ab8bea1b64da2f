#include "kernel/DnsMessage.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "util/Time.h"

namespace workflow {

namespace {

constexpr size_t kHeaderSize = 12;
constexpr size_t kMaxNameSize = 255;
constexpr size_t kMaxLabelSize = 63;
// A name has at most one pointer for each label, unless it was made to keep the reader busy.
constexpr int kMaxPointers = 127;

constexpr uint32_t kResponseFlag = 0x8000;
constexpr uint32_t kOpcodeMask = 0x7800;
constexpr uint32_t kTruncatedFlag = 0x0200;
constexpr uint32_t kResponseCodeMask = 0x000f;

constexpr uint32_t kTypeA = 1;
constexpr uint32_t kTypeCname = 5;
constexpr uint32_t kTypeAaaa = 28;
constexpr uint32_t kClassInternet = 1;

// A name in the form of messages: a length before each label, without the empty label at the end,
// and with ASCII letters in lower case. Unlike the text form, two names have the same form only if
// they are the same name.
using WireName = std::string;

WireName wire_name(std::string_view text) {
  WireName name;
  while (!text.empty()) {
    const std::string_view label = text.substr(0, text.find('.'));
    name += static_cast<char>(label.size());
    name += label;
    text.remove_prefix(std::min(label.size() + 1, text.size()));
  }
  return lower_case(name);  // lengths are not changed: they are below 64, so none is a letter
}

// Reads a message piece by piece. Once something was missing or wrong, its results are meaningless.
class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}

  bool failed() const { return failed_; }
  size_t position() const { return position_; }

  std::string_view bytes(size_t size) {
    if (failed_ || size > message_.size() - position_) {
      failed_ = true;
      return {};
    }
    position_ += size;
    return message_.substr(position_ - size, size);
  }

  uint32_t number16() {
    const std::string_view taken = bytes(2);
    return failed_ ? 0 : byte(taken[0]) << 8 | byte(taken[1]);
  }

  uint32_t number32() {
    const uint32_t high = number16();
    return high << 16 | number16();
  }

  // A pointer leads to an earlier name, so it leads backwards (RFC 1035, 4.1.4).
  WireName name() {
    WireName name;
    size_t begin = position_;
    std::optional<size_t> end;  // behind the first pointer
    for (int pointers = 0; !failed_;) {
      failed_ = ++name_parts_ > DnsMessage::kMaxNameParts;
      const std::string_view taken = bytes(1);
      const uint32_t length = failed_ ? 0 : byte(taken[0]);
      if (length == 0) {
        break;
      }
      if (length <= kMaxLabelSize) {
        name += static_cast<char>(length);
        name += bytes(length);
        failed_ |= name.size() + 1 > kMaxNameSize;
        continue;
      }
      const size_t target = (length & 0x3f) << 8 | byte(bytes(1));
      failed_ |=
          length < 0xc0 || target < kHeaderSize || target >= begin || ++pointers > kMaxPointers;
      end = end.value_or(position_);
      begin = target;
      position_ = target;
    }
    position_ = end.value_or(position_);
    return lower_case(name);
  }

 private:
  static uint32_t byte(char c) { return static_cast<unsigned char>(c); }
  static uint32_t byte(std::string_view taken) { return taken.empty() ? 0 : byte(taken[0]); }

  const std::string_view message_;
  size_t position_ = 0;
  int name_parts_ = 0;
  bool failed_ = false;
};

struct Header {
  uint32_t flags;
  uint32_t questions;
  uint32_t answers;
};

Header read_header(Reader& reader) {
  reader.number16();  // the identifier
  const Header header{reader.number16(), reader.number16(), reader.number16()};
  reader.number32();  // records of the other sections
  return header;
}

// A record that may matter: an alias or an address.
struct Record {
  WireName owner;
  uint32_t ttl_s;
  std::optional<WireName> target;  // of an alias
  std::string_view address;        // else
};

DnsAnswer no(int error) {
  return {.error = error};
}

// The error of a response code that is neither 0 (no error) nor 3 (no such name).
int failure_of(uint32_t response_code) {
  constexpr uint32_t kServerFailure = 2;
  return response_code == kServerFailure ? EAI_AGAIN : EAI_FAIL;
}

// The aliases and the addresses of the type in the answer section. Null if the section is broken.
std::optional<std::vector<Record>> read_records(Reader& reader, uint32_t count, uint32_t type) {
  const size_t address_size = type == kTypeA ? sizeof(struct in_addr) : sizeof(struct in6_addr);
  std::vector<Record> records;
  for (uint32_t i = 0; i < count && !reader.failed(); i++) {
    Record record;
    record.owner = reader.name();
    const uint32_t record_type = reader.number16();
    const bool internet = reader.number16() == kClassInternet;
    record.ttl_s = reader.number32();
    const uint32_t size = reader.number16();
    if (internet && record_type == kTypeCname) {
      const size_t begin = reader.position();
      record.target = reader.name();
      if (reader.position() != begin + size) {
        return std::nullopt;
      }
      records.push_back(std::move(record));
    } else if (internet && record_type == type) {
      record.address = reader.bytes(size);
      if (record.address.size() != address_size) {
        return std::nullopt;
      }
      records.push_back(std::move(record));
    } else {
      reader.bytes(size);
    }
  }
  return reader.failed() ? std::nullopt : std::optional(std::move(records));
}

HostAddress address_of(std::string_view bytes) {
  if (bytes.size() == sizeof(struct in_addr)) {
    struct in_addr v4;
    std::memcpy(&v4, bytes.data(), sizeof v4);
    return HostAddress::of(v4);
  }
  struct in6_addr v6;
  std::memcpy(&v6, bytes.data(), sizeof v6);
  return HostAddress::of(v6);
}

// The most significant bit set means none (RFC 2181, 8).
int64_t ttl_of(const Record& record) {
  return record.ttl_s > INT32_MAX ? 0 : record.ttl_s * kNsPerSec;
}

DnsAnswer follow_chain(WireName name, const std::vector<Record>& records) {
  DnsAnswer answer{.ttl_ns = INT32_MAX * kNsPerSec};
  for (size_t aliases = 0; aliases <= DnsMessage::kMaxAliases; aliases++) {
    const Record* alias = nullptr;
    for (const Record& record : records) {
      if (record.owner != name) {
        continue;
      }
      if (record.target) {
        alias = alias ? alias : &record;
        continue;
      }
      answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(record));
      if (answer.addresses.size() < DnsMessage::kMaxAddresses) {
        answer.addresses.push_back(address_of(record.address));
      }
    }
    if (!answer.addresses.empty()) {
      return answer;
    }
    if (!alias) {
      return no(EAI_NODATA);
    }
    answer.ttl_ns = std::min(answer.ttl_ns, ttl_of(*alias));
    name = *alias->target;
  }
  return no(EAI_FAIL);
}

}  // namespace

bool DnsAnswer::is_verdict() const {
  return error == 0 || error == EAI_NODATA || error == EAI_NONAME;
}

bool DnsMessage::is_response(std::string_view message) {
  Reader reader(message);
  const Header header = read_header(reader);
  return !reader.failed() && (header.flags & (kResponseFlag | kOpcodeMask)) == kResponseFlag;
}

DnsAnswer DnsMessage::read(std::string_view message, std::string_view name, int family) {
  constexpr uint32_t kNoSuchName = 3;
  const uint32_t type = family == AF_INET6 ? kTypeAaaa : kTypeA;
  const WireName wanted = wire_name(name);
  Reader reader(message);
  const Header header = read_header(reader);
  const bool same_name = header.questions == 1 && reader.name() == wanted;
  const bool same_type = reader.number16() == type && reader.number16() == kClassInternet;
  if (!is_response(message) || !same_name || !same_type || reader.failed()) {
    return no(EAI_FAIL);
  }
  const uint32_t code = header.flags & kResponseCodeMask;
  if (code != 0 && code != kNoSuchName) {
    return no(failure_of(code));
  }
  const auto records = read_records(reader, header.answers, type);
  if (!records) {
    return no(EAI_FAIL);
  }
  if (code == kNoSuchName) {
    return no(EAI_NONAME);
  }
  DnsAnswer answer = follow_chain(wanted, *records);
  // The missing records may have been cut off.
  if (answer.error == EAI_NODATA && (header.flags & kTruncatedFlag)) {
    answer.error = EAI_FAIL;
  }
  return answer;
}

}  // namespace workflow
