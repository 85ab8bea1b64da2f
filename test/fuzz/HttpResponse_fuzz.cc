#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "Fuzzing.h"
#include "support/HttpFeeding.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"

// Whatever bytes a server sends in answer to GET, HEAD or CONNECT: the outcome does not depend on
// how they are cut, a message ends where RFC 9112, 6.3 says, and what is accepted means the same
// when it is written out and read again.

using fuzzing::Cuts;
using fuzzing::require;
using protocol::HttpResponse;

namespace {

enum class Answers { kGet, kHead, kConnect };

// Small enough for the fuzzer to reach.
constexpr size_t kSizeLimit = 600;

class Renewals : public protocol::MessageChannel {
 public:
  int write_now(const void*, size_t) override { std::abort(); }
  void restart_receive() override { ++count; }
  int count = 0;
};

struct Outcome {
  http_feeding::Outcome fed;
  int renewals = 0;
  int error = 0;
  int end = 0;         // of end_of_input()
  std::string at_end;  // what it completed

  bool operator==(const Outcome&) const = default;
};

Outcome feed(HttpResponse& response, Answers answers, std::string_view bytes, const Cuts& cuts) {
  Renewals renewals;
  response.set_channel(&renewals);
  response.set_size_limit(kSizeLimit);
  if (answers == Answers::kHead) response.parse_zero_body();
  if (answers == Answers::kConnect) response.parse_connect_reply();
  Outcome outcome;
  outcome.fed = http_feeding::feed_pieces(response, bytes, cuts);
  if (outcome.fed.result < 0) outcome.error = errno;
  outcome.renewals = renewals.count;
  outcome.end = response.end_of_input();
  if (outcome.end > 0) outcome.at_end = http_feeding::describe(response);
  response.set_channel(nullptr);
  return outcome;
}

bool has_no_body(const HttpResponse& response, Answers answers) {
  const std::string_view status = response.get_status_code();
  return answers == Answers::kHead || status == "101" || status == "204" || status == "304" ||
         (answers == Answers::kConnect && status[0] == '2');
}

// Checked without the parser's help. `ended` says that the message ended with the input.
void check_accepted(const HttpResponse& response, Answers answers, bool ended) {
  const std::string_view version = response.get_http_version();
  const std::string_view status = response.get_status_code();
  require(version == "HTTP/1.1" || version == "HTTP/1.0");
  require(status.size() == 3 && status[0] >= '1' && (status[0] != '1' || status == "101"));
  const protocol::HttpHeaderMap map(&response);
  const size_t lengths = map.get_strict("Content-Length").size();
  const size_t codings = map.get_strict("Transfer-Encoding").size();
  const void* body;
  size_t size;
  require(response.get_parsed_body(&body, &size));
  require(size <= 2 * kSizeLimit + 20000);
  if (has_no_body(response, answers)) {
    require(size == 0 && !ended);
    return;
  }
  require(lengths + codings <= 1);
  require(ended == (lengths + codings == 0));
  require(response.is_chunked() == (codings == 1));
  if (lengths == 1) require(std::stoull(map.get("Content-Length")) == size);
}

void check_sent_on(HttpResponse& response, Answers answers, bool ended) {
  const void* body;
  size_t size;
  require(response.get_parsed_body(&body, &size));
  require(response.append_output_body_nocopy(body, size));
  iovec vectors[4];
  const int count = response.encode(vectors, 4);
  require(count > 0);
  std::string sent;
  for (int i = 0; i < count; ++i)
    sent.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  HttpResponse again;
  if (answers == Answers::kHead) again.parse_zero_body();
  if (answers == Answers::kConnect) again.parse_connect_reply();
  size_t taken = sent.size();
  require(again.append(sent.data(), &taken) == (ended ? 0 : 1));
  require(taken == sent.size());
  require(again.end_of_input() == 1);
  require(http_feeding::describe(again) == http_feeding::describe(response));
}

void check_all(std::string_view rest, Answers answers) {
  // Several, as on a connection that is kept.
  while (!rest.empty()) {
    HttpResponse whole;
    const Outcome outcome = feed(whole, answers, rest, {});
    fuzzing::for_each_cutting(rest, [&](const Cuts& cuts) {
      HttpResponse pieces;
      require(feed(pieces, answers, rest, cuts) == outcome);
    });
    const bool refused = outcome.fed.result == -1;
    require(refused == (outcome.fed.status != 0));
    require(outcome.error == (refused ? outcome.error : 0));
    require(!refused || outcome.error == EBADMSG || outcome.error == EMSGSIZE);
    require(outcome.end == (refused ? -1 : outcome.end));
    if (outcome.end == 1) {
      const bool ended = outcome.fed.result == 0;
      check_accepted(whole, answers, ended);
      check_sent_on(whole, answers, ended);
    }
    if (outcome.fed.result != 1) return;
    rest.remove_prefix(outcome.fed.consumed);
  }
}

// Any bytes as a body, ended in each way: they come out again.
void check_carried(std::string_view body) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  for (const std::string& head : {ok + length, ok + "\r\n"}) {
    std::string bytes = head;
    bytes += body;
    fuzzing::for_each_cutting(bytes, [&](const Cuts& cuts) {
      HttpResponse response;
      http_feeding::feed_pieces(response, bytes, cuts);
      require(response.end_of_input() == 1 && http_feeding::body_of(response) == body);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (Answers answers : {Answers::kGet, Answers::kHead, Answers::kConnect})
    check_all(bytes, answers);
  check_carried(bytes);
  return 0;
}
