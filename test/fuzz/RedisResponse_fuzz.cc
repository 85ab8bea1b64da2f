#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "Fuzzing.h"
#include "workflow/RedisMessage.h"

// Whatever bytes come: a reply is what the grammar of RESP says, read here the obvious way,
// wherever the bytes are cut; and a reply that is sent on is received as the same value.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::RedisResponse;
using protocol::RedisValue;

namespace {

// Small enough for the fuzzer to reach.
constexpr size_t kSizeLimit = 300;
constexpr int kMaxDepth = 8;  // of values; seven arrays may enclose each other

// Which error it is may depend on the cuts: both may hold, and the first to be seen counts.
struct Outcome {
  int result = 0;
  size_t consumed = 0;
  std::string value;

  bool operator==(const Outcome&) const = default;
};

// Reads one value from `*bytes`. Returns as append() does.
class ObviousReader {
 public:
  explicit ObviousReader(std::string_view bytes) : bytes_(bytes) {}

  size_t taken() const { return at_; }

  int read(RedisValue* value, int depth = 0) {
    if (at_ == bytes_.size()) return 0;
    const char mark = bytes_[at_++];
    if (std::string_view("+-:$*").find(mark) == std::string_view::npos) return -1;
    if (mark == '*' && depth == kMaxDepth) return -1;
    std::string_view line;
    const size_t end = bytes_.find("\r\n", at_);
    const size_t length = (end == std::string_view::npos ? bytes_.size() : end) - at_;
    const bool is_number = mark != '+' && mark != '-';
    if (end == std::string_view::npos) return is_number && length >= 32 ? -1 : 0;
    line = bytes_.substr(at_, length);
    at_ = end + 2;
    int64_t number = 0;
    if (is_number && !parse(line, &number)) return -1;
    switch (mark) {
      case '+':
        value->set_status(std::string(line));
        return 1;
      case '-':
        value->set_error(std::string(line));
        return 1;
      case ':':
        value->set_int(number);
        return 1;
      case '$':
        return read_bulk(number, value);
      default:
        return read_array(number, value, depth);
    }
  }

 private:
  static bool parse(std::string_view text, int64_t* number) {
    try {
      *number = std::stoll(std::string(text));
    } catch (const std::exception&) {
      return false;
    }
    return std::to_string(*number) == text;
  }

  int read_bulk(int64_t length, RedisValue* value) {
    value->set_nil();
    if (length < 0) return length == -1 ? 1 : -1;
    if (at_ > kSizeLimit || static_cast<uint64_t>(length) > kSizeLimit - at_) return -1;
    const auto size = static_cast<size_t>(length);
    if (bytes_.size() - at_ < size + 2) return 0;
    if (bytes_.substr(at_ + size, 2) != "\r\n") return -1;
    value->set_string(std::string(bytes_.substr(at_, size)));
    at_ += size + 2;
    return 1;
  }

  int read_array(int64_t count, RedisValue* value, int depth) {
    value->set_nil();
    if (count < 0) return count == -1 ? 1 : -1;
    if (at_ > kSizeLimit || static_cast<uint64_t>(count) > (kSizeLimit - at_) / 3) return -1;
    value->set_array(static_cast<size_t>(count));
    for (size_t i = 0; i < value->arr_size(); ++i) {
      if (const int result = read(&(*value)[i], depth + 1); result != 1) return result;
    }
    return 1;
  }

  const std::string_view bytes_;
  size_t at_ = 0;
};

Outcome expect(std::string_view bytes) {
  ObviousReader reader(bytes);
  RedisValue value;
  const int result = reader.read(&value);
  if (result == 0 && bytes.size() > kSizeLimit) return {-1, 0, {}};
  if (result == 1 && reader.taken() > kSizeLimit) return {-1, 0, {}};
  if (result != 1) return {result, 0, {}};
  return {1, reader.taken(), value.debug_string()};
}

// With `moving`, the message is another object at each piece.
Outcome feed(std::string_view bytes, const Cuts& cuts, bool moving) {
  std::optional<RedisResponse> response(std::in_place);
  response->set_size_limit(kSizeLimit);
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    if (moving) {
      RedisResponse other(std::move(*response));
      response.emplace(std::move(other));
    }
    return response->append(piece, size);
  });
  RedisValue value;
  require(response->get_result(value) == (outcome.result == 1));
  if (outcome.result < 0) require(errno == EMSGSIZE || errno == EBADMSG);
  if (outcome.result > 0) {
    outcome.consumed = consumed;
    outcome.value = value.debug_string();
    // What is sent on is the same value.
    RedisResponse sent;
    sent.set_result(value);
    iovec vector;
    require(sent.encode(&vector, 1) == 1);
    RedisResponse received;
    size_t size = vector.iov_len;
    require(received.append(vector.iov_base, &size) == 1 && size == vector.iov_len);
    RedisValue again;
    require(received.get_result(again));
    std::string before = outcome.value;
    require(again.arr_size() == value.arr_size() && again.get_type() == value.get_type());
    // In a line, CR and LF have become spaces.
    std::string after = again.debug_string();
    const auto blur = [](std::string* text) {
      for (const char* escape : {"\\r", "\\n"}) {
        for (size_t at = 0; (at = text->find(escape, at)) != std::string::npos;)
          text->replace(at, 2, " ");
      }
    };
    blur(&before);
    blur(&after);
    require(before == after);
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome expected = expect(bytes);
  require(feed(bytes, {}, false) == expected);
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
    require(feed(bytes, cuts, false) == expected);
    require(feed(bytes, cuts, true) == expected);
  });
  return 0;
}
