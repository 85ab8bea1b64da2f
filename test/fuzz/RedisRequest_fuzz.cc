#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "Fuzzing.h"
#include "workflow/RedisMessage.h"

// A command and its parameters, cut from the input, arrive as they were sent, wherever they are
// cut. And the input itself is taken for a request in one way, wherever it is cut; what is taken
// for one is written as it was read.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::RedisRequest;

namespace {

struct Outcome {
  int result = 0;
  size_t consumed = 0;
  std::string command;
  std::vector<std::string> params;

  bool operator==(const Outcome&) const = default;
};

Outcome feed(std::string_view bytes, const Cuts& cuts) {
  RedisRequest request;
  request.set_size_limit(1000);
  Outcome outcome;
  size_t consumed = 0;
  outcome.result = fuzzing::feed(bytes, cuts, &consumed, [&](const char* piece, size_t* size) {
    return request.append(piece, size);
  });
  if (outcome.result > 0) outcome.consumed = consumed;
  require(request.get_command(outcome.command) == (outcome.result == 1));
  require(request.get_params(outcome.params) == (outcome.result == 1));
  return outcome;
}

std::string encode(const Outcome& outcome) {
  RedisRequest request;
  request.set_request(outcome.command, outcome.params);
  iovec vector;
  require(request.encode(&vector, 1) == 1);
  return std::string(static_cast<const char*>(vector.iov_base), vector.iov_len);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Outcome read = feed(bytes, {});
  fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) { require(feed(bytes, cuts) == read); });
  if (read.result == 1) require(encode(read) == bytes.substr(0, read.consumed));

  // A space ends a parameter.
  Outcome sent;
  sent.result = 1;
  sent.command = "C";
  size_t from = 0;
  const std::string_view text = bytes.substr(0, 200);
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && text[at] != ' ') continue;
    sent.params.emplace_back(text.substr(from, at - from));
    from = at + 1;
  }
  const std::string wire = encode(sent);
  sent.consumed = wire.size();
  if (wire.size() > 1000) return 0;
  require(feed(wire + "rest", {}) == sent);
  fuzzing::for_each_cutting(wire, [&](const Cuts& cuts) { require(feed(wire, cuts) == sent); });
  return 0;
}
