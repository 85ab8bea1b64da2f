#include <cerrno>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "Fuzzing.h"
#include "workflow/PackageWrapper.h"
#include "workflow/TLVMessage.h"

// Whatever bytes come: a TLV message is what its head says, wherever it is cut, and is written as
// it was read; a package of them takes exactly its messages.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::TLVMessage;

namespace {

// Small enough for the fuzzer to reach.
constexpr size_t kSizeLimit = 200;
constexpr size_t kHead = 8;

struct Outcome {
  int result = 0;
  int error = 0;
  size_t consumed = 0;
  int type = 0;
  std::string value;

  bool operator==(const Outcome&) const = default;
};

// The format, read the obvious way.
Outcome expect(std::string_view bytes, size_t size_limit) {
  Outcome outcome;
  if (bytes.size() < kHead) return outcome;
  uint32_t numbers[2] = {};
  for (size_t i = 0; i < kHead; ++i) {
    numbers[i / 4] = numbers[i / 4] << 8 | static_cast<unsigned char>(bytes[i]);
  }
  const uint64_t size = kHead + uint64_t{numbers[1]};
  if (size > size_limit) {
    outcome.result = -1;
    outcome.error = EMSGSIZE;
  } else if (bytes.size() >= size) {
    outcome.result = 1;
    outcome.consumed = static_cast<size_t>(size);
    outcome.type = static_cast<int>(numbers[0]);
    outcome.value = bytes.substr(kHead, numbers[1]);
  }
  return outcome;
}

// With `moving`, the message is another object at each piece.
Outcome feed(std::string_view bytes, const Cuts& cuts, bool moving) {
  std::optional<TLVMessage> message(std::in_place);
  message->set_size_limit(kSizeLimit);
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    if (moving) {
      TLVMessage other(std::move(*message));
      message.emplace(std::move(other));
    }
    return message->append(piece, size);
  });
  if (outcome.result < 0) outcome.error = errno;
  if (outcome.result > 0) {
    outcome.consumed = consumed;
    outcome.type = message->get_type();
    outcome.value = *message->get_value();
  }
  return outcome;
}

std::string encode(protocol::ProtocolMessage& message, int max) {
  iovec vectors[16];
  const int count = message.encode(vectors, max);
  require(count > 0 && count <= max);
  std::string bytes;
  for (int i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  return bytes;
}

// Messages follow as long as their types are odd.
class Package : public protocol::PackageWrapper {
 public:
  Package() : PackageWrapper(&first_) { set_size_limit(kSizeLimit); }
  size_t count() const { return 1 + rest_.size(); }

 private:
  ProtocolMessage* next_in(ProtocolMessage* last) override {
    if (static_cast<TLVMessage*>(last)->get_type() % 2 == 0) return nullptr;
    return &rest_.emplace_back();
  }
  ProtocolMessage* next_out(ProtocolMessage* last) override {
    if (last == &first_) sent_ = 0;
    return sent_ < rest_.size() ? &rest_[sent_++] : nullptr;
  }

  TLVMessage first_;
  std::deque<TLVMessage> rest_;
  size_t sent_ = 0;
};

Outcome feed_package(std::string_view bytes, const Cuts& cuts, std::string* encoded) {
  Package package;
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    return package.append(piece, size);
  });
  if (outcome.result < 0) outcome.error = errno;
  if (outcome.result > 0) {
    outcome.consumed = consumed;
    outcome.type = static_cast<int>(package.count());
    *encoded = encode(package, 3);
  }
  return outcome;
}

Outcome expect_package(std::string_view bytes) {
  Outcome outcome;
  size_t at = 0;
  int count = 0;
  do {
    Outcome one = expect(bytes.substr(at), kSizeLimit - at);
    // A head that is not there yet may be too much already.
    if (one.result == 0 && bytes.size() > kSizeLimit) one = {-1, EMSGSIZE, 0, 0, {}};
    if (one.result != 1) return {one.result, one.error, 0, 0, {}};
    at += one.consumed;
    outcome = std::move(one);
    ++count;
  } while (outcome.type % 2 != 0);
  return {1, 0, at, count, {}};
}

void check_one(std::string_view bytes) {
  const Outcome expected = expect(bytes, kSizeLimit);
  require(feed(bytes, {}, false) == expected);
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
    require(feed(bytes, cuts, false) == expected);
    require(feed(bytes, cuts, true) == expected);
  });
  if (expected.result != 1) return;
  TLVMessage message;
  message.set_type(expected.type);
  message.set_value(expected.value);
  require(encode(message, 2) == bytes.substr(0, expected.consumed));
  require(encode(message, 1) == bytes.substr(0, expected.consumed));
}

void check_package(std::string_view bytes) {
  const Outcome expected = expect_package(bytes);
  auto check = [&](const Cuts& cuts) {
    std::string encoded;
    require(feed_package(bytes, cuts, &encoded) == expected);
    require(encoded == bytes.substr(0, expected.consumed));
  };
  check({});
  fuzzing::for_each_cutting(bytes, check);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_one(bytes);
  check_package(bytes);
  return 0;
}
