#include <gtest/gtest.h>
#include <netdb.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "http/CaseFile.h"
#include "http/Echo.h"
#include "support/HttpFeeding.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"

// Plays the cases of cases/*.txt: each over real connections, in several ways of cutting it into
// writes, which must all end the same. Behind each case goes a sentinel, a further request: when
// the case is refused it must never be seen; else it must be the next one. Server and client that
// disagree about where a request ends do not pass that. All of that once in the clear and once over
// TLS, where "closed" means with a close_notify before it. The parser alone must make the same of
// the bytes, too, cut at every place.
//
// With WORKFLOW_CONFORMANCE_TARGET=host:port the cases are played against that server instead
// (script/conformance), and only what can be seen of any server is checked.

namespace http_conformance {
namespace {

using namespace server_test;
using Kind = Expectation::Kind;

constexpr const char* kSentinel = "GET /sentinel HTTP/1.1\r\nHost: sentinel\r\n\r\n";

const char* target_address() {
  return std::getenv("WORKFLOW_CONFORMANCE_TARGET");
}

// A way of cutting a case's bytes into writes.
struct Feeding {
  std::string name;
  bool byte_by_byte = false;
  std::set<size_t> cuts;  // places in all that the case sends
};

std::vector<Feeding> feedings(const Case& played) {
  constexpr int kCuts = 4;
  std::vector<Feeding> all = {{"whole", false, {}}, {"byte by byte", true, {}}};
  size_t size = played.sentinel ? std::string_view(kSentinel).size() : 0;
  for (const Block& block : played.blocks) {
    size += block.bytes.size();
  }
  test_support::TestRandom random(test_support::test_seed(), std::hash<std::string>()(played.id));
  for (int i = 0; i < kCuts && size > 1; i++) {
    const size_t cut = 1 + static_cast<size_t>(random.below(size - 1));
    all.push_back({"cut at byte " + std::to_string(cut), false, {cut}});
  }
  return all;
}

// What came of a case fed in one way.
struct Outcome {
  std::vector<HttpReply> replies;  // without the interim ones that may come or not
  Ending ending = Ending::kStillOpen;
  int requests = 0;  // that the service was given; unknown of a foreign server

  std::string description() const {
    std::string text;
    for (const HttpReply& reply : replies) {
      text += reply.head + "\n\n" + reply.body + "\n";
    }
    static constexpr const char* kEndings[] = {"closed", "reset", "more data", "still open"};
    return text + "(" + kEndings[static_cast<int>(ending)] + ", " + std::to_string(requests) +
           " requests)";
  }
};

// The client's side of one case.
class Player {
 public:
  Player(const Case& played, const Feeding& feeding, RawClient& client)
      : played_(played), feeding_(feeding), client_(client) {}

  Outcome play() {
    Outcome outcome;
    size_t awaited = 0;
    for (const Block& block : played_.blocks) {
      const bool is_last = &block == &played_.blocks.back();
      for (const Expectation& expected : block.expected) {
        awaited += expected.kind == Kind::kClose ? 0 : 1;
        expected_.push_back(&expected);
      }
      send(block.bytes + (is_last && played_.sentinel ? kSentinel : ""));
      if (is_last && played_.half_close) {
        client_.half_close();
      }
      read_until(awaited + (is_last && played_.sentinel ? 1 : 0), outcome);
    }
    const bool sentinel_answered = played_.sentinel && outcome.replies.size() > awaited;
    if (!expects_end() || sentinel_answered) {
      client_.half_close();
    }
    outcome.ending = client_.ending();
    client_.close();
    return outcome;
  }

 private:
  bool expects_end() const {
    const Expectation& last = *expected_.back();
    return last.kind == Kind::kRefuse || last.kind == Kind::kClose || last.closes;
  }

  // What the server does not take any more, it has no use for: what it answered will tell.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t size = next_piece(bytes.size());
      if (!client_.send(bytes.substr(0, size))) return;
      bytes.remove_prefix(size);
      sent_ += size;
      if (!bytes.empty()) {
        // So that the pieces arrive as such.
        std::this_thread::sleep_for(std::chrono::microseconds(feeding_.byte_by_byte ? 10 : 1000));
      }
    }
  }

  size_t next_piece(size_t left) const {
    constexpr size_t kSingleBytes = 4096;  // further ones would take too long
    if (feeding_.byte_by_byte && sent_ < kSingleBytes) return 1;
    const auto cut = feeding_.cuts.upper_bound(sent_);
    return cut == feeding_.cuts.end() ? left : std::min(left, *cut - sent_);
  }

  void read_until(size_t count, Outcome& outcome) {
    while (outcome.replies.size() < count) {
      const size_t at = outcome.replies.size();
      const Expectation* expected = at < expected_.size() ? expected_[at] : nullptr;
      std::optional<HttpReply> reply = client_.reply(expected && expected->method == "HEAD");
      if (!reply) return;
      const bool optional_interim =
          reply->status == 100 && played_.may_continue && expected->kind != Kind::kInterim;
      if (!optional_interim) {
        outcome.replies.push_back(std::move(*reply));
      }
    }
  }

  const Case& played_;
  const Feeding& feeding_;
  RawClient& client_;
  std::vector<const Expectation*> expected_;
  size_t sent_ = 0;
};

// What says that the request itself was not accepted, whatever the service behind the server is.
bool is_refusal(int status) {
  static const std::set<int> kRefusals = {400, 408, 411, 413, 414, 417, 431, 501, 505};
  return kRefusals.count(status) > 0;
}
bool is_echo(const HttpReply& reply) {
  return reply.body.compare(0, kEchoTitle.size(), kEchoTitle) == 0;
}

bool has_field(const std::string& echo, const std::string& name) {
  return echo.find("\n" + name + ": ") != std::string::npos;
}

void expect_echo(const Expectation& expected, const HttpReply& reply) {
  const std::string start =
      start_of_echo(expected.method, expected.target, expected.version, expected.body);
  EXPECT_EQ(reply.body.substr(0, start.size()), start);
  size_t from = 0;
  for (const auto& [name, value] : expected.fields) {
    const std::string line = "\n" + name + ": " + value + "\n";
    const size_t at = reply.body.find(line, from);
    EXPECT_NE(at, std::string::npos) << "not understood: " << line;
    from = at == std::string::npos ? from : at + line.size() - 1;
  }
  for (const std::string& name : expected.absent_fields) {
    EXPECT_FALSE(has_field(reply.body, name)) << name;
  }
}

void expect_accepted(const Expectation& expected, const HttpReply& reply, bool foreign) {
  const bool tunnel = expected.method == "CONNECT" && expected.status / 100 == 2;
  const bool bodiless =
      expected.method == "HEAD" || expected.status == 204 || expected.status == 304 || tunnel;
  if (foreign) {
    EXPECT_FALSE(is_refusal(reply.status)) << reply.status;
    if (!is_echo(reply)) return;
  }
  EXPECT_EQ(reply.status, expected.status);
  if (bodiless) {
    EXPECT_EQ(reply.body, "");
  } else {
    expect_echo(expected, reply);
  }
  for (const auto& [name, value] : expected.reply_fields) {
    EXPECT_EQ(reply.field(name), value) << name;
  }
  EXPECT_EQ(reply.field("Connection") == "close", expected.closes) << reply.head;
}

void expect_sentinel(const HttpReply& reply, bool foreign) {
  Expectation sentinel;
  sentinel.kind = Kind::kAccept;
  sentinel.status = 200;
  sentinel.method = "GET";
  sentinel.target = "/sentinel";
  sentinel.version = "HTTP/1.1";
  sentinel.fields = {{"Host", "sentinel"}};
  expect_accepted(sentinel, reply, foreign);
}

// Whatever the answer: what was not accepted is the end, else the sentinel is the next request.
void expect_no_desync(const Case& played, size_t expected, const Outcome& outcome) {
  const std::vector<HttpReply>& replies = outcome.replies;
  const bool ended = outcome.ending == Ending::kClosed || outcome.ending == Ending::kReset;
  EXPECT_TRUE(ended);
  for (size_t i = 0; i < replies.size(); i++) {
    if (is_refusal(replies[i].status)) {
      EXPECT_EQ(i + 1, replies.size()) << "answers behind a refusal";
      return;
    }
  }
  if (played.sentinel && replies.size() > expected) {
    expect_sentinel(replies.back(), true);
  }
}

void expect_outcome(const Case& played, const Outcome& outcome, bool foreign) {
  const std::vector<HttpReply>& replies = outcome.replies;
  size_t at = 0;
  int accepted = 0;
  bool ends = false;
  for (const Block& block : played.blocks) {
    for (const Expectation& expected : block.expected) {
      ends = expected.kind == Kind::kRefuse || expected.kind == Kind::kClose || expected.closes;
      if (expected.kind == Kind::kClose) continue;
      if (at == replies.size()) {
        // Another server may close without an answer where we have one.
        EXPECT_TRUE(foreign && expected.kind == Kind::kRefuse) << "no answer";
        break;
      }
      const HttpReply& reply = replies[at++];
      SCOPED_TRACE("answer " + std::to_string(at));
      if (expected.kind == Kind::kAccept) {
        accepted++;
        expect_accepted(expected, reply, foreign);
      } else if (!(foreign && expected.kind == Kind::kRefuse)) {
        // A foreign service may have answered before the fault came; nothing may follow that.
        EXPECT_EQ(reply.status, expected.status);
        EXPECT_EQ(reply.field("Connection"), expected.kind == Kind::kRefuse ? "close" : "");
      }
    }
  }
  if (played.sentinel && !ends) {
    ASSERT_LT(at, replies.size()) << "the request behind was not answered";
    accepted++;
    expect_sentinel(replies[at++], foreign);
  }
  EXPECT_EQ(at, replies.size()) << "more answers than requests";
  if (foreign) {
    EXPECT_TRUE(outcome.ending == Ending::kClosed || outcome.ending == Ending::kReset);
  } else {
    EXPECT_EQ(outcome.ending, Ending::kClosed);
    EXPECT_EQ(outcome.requests, accepted);
  }
}

std::vector<Case> cases_to_play(Transport transport) {
  if (target_address() == nullptr) return read_cases(CONFORMANCE_CASES);
  if (transport != Transport::kPlain) return {};
  // A foreign server has its own limits and times.
  std::vector<Case> common;
  for (Case& each : read_cases(CONFORMANCE_CASES)) {
    if (each.settings.empty()) {
      common.push_back(std::move(each));
    }
  }
  return common;
}

class ForeignServer {
 public:
  explicit ForeignServer(const std::string& address) {
    const size_t colon = address.rfind(':');
    struct addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    if (colon != std::string::npos) {
      ::getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints,
                    &found_);
    }
  }
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;
  ~ForeignServer() {
    if (found_ != nullptr) {
      ::freeaddrinfo(found_);
    }
  }

  RawClient client() const {
    if (found_ == nullptr) return RawClient();
    RawClient client(found_->ai_addr, found_->ai_addrlen);
    client.set_patience(std::chrono::seconds(5));
    return client;
  }

 private:
  struct addrinfo* found_ = nullptr;
};

class Conformance : public testing::TestWithParam<Case> {
 protected:
  void play(Transport transport);

  static void play_against_foreign(const Case& played, const Feeding& feeding) {
    ForeignServer server(target_address());
    RawClient client = server.client();
    ASSERT_TRUE(client.connected()) << target_address();
    const Outcome outcome = Player(played, feeding, client).play();
    SCOPED_TRACE(outcome.description());
    if (played.never_desync) {
      size_t expected = 0;
      for (const Block& block : played.blocks) {
        expected += block.expected.size();
      }
      expect_no_desync(played, expected, outcome);
    } else {
      expect_outcome(played, outcome, true);
    }
  }

  static void play_against_ours(const Case& played, const Feeding& feeding, TestServer& server) {
    const int before = server.requests();
    RawClient client = server.client();
    ASSERT_TRUE(client.connected());
    Outcome outcome = Player(played, feeding, client).play();
    EXPECT_TRUE(server.has_connections(0));
    outcome.requests = server.requests() - before;
    SCOPED_TRACE(outcome.description());
    expect_outcome(played, outcome, false);
  }
};

struct WFServerParams params_of(const Case& played) {
  struct WFServerParams params = server_test::http_params();
  // A busy machine may take longer than the defaults to send a request byte by byte.
  for (int* timeout : {&params.peer_response_timeout, &params.keep_alive_timeout,
                       &params.ssl_accept_timeout, &params.header_timeout, &params.body_timeout,
                       &params.send_timeout, &params.linger_timeout}) {
    *timeout = 3600 * 1000;
  }
  for (const auto& [name, value] : played.settings) {
    settings().at(name)(params, value);
  }
  return params;
}

void Conformance::play(Transport transport) {
  const Case& played = GetParam();
  ASSERT_EQ(played.error, "");
  std::optional<TestServer> server;
  if (target_address() == nullptr) {
    server.emplace(echo, params_of(played), transport);
  }
  for (const Feeding& feeding : feedings(played)) {
    SCOPED_TRACE(played.where + ", " + feeding.name);
    if (server) {
      play_against_ours(played, feeding, *server);
    } else {
      play_against_foreign(played, feeding);
    }
    if (HasFailure()) {
      return;  // each further way would take its time to fail as well
    }
  }
}

class ConformanceOverTls : public Conformance {};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.test_name();
}

// What the parser alone makes of a case must not depend on the pieces in which its bytes come.
void expect_parsed(const Case& played) {
  const std::string& bytes = played.blocks[0].bytes;
  const std::string all = bytes + (played.sentinel ? kSentinel : "");
  const auto whole = http_feeding::feed<protocol::HttpRequest>(all);
  const Expectation& first = played.blocks[0].expected[0];
  EXPECT_EQ(whole.result, first.kind == Kind::kAccept ? 1 : first.kind == Kind::kRefuse ? -1 : 0);
  EXPECT_EQ(whole.status, first.kind == Kind::kRefuse ? first.status : 0);
  if (first.kind == Kind::kAccept && played.blocks[0].expected.size() == 1 && !played.half_close) {
    ASSERT_LE(whole.consumed, bytes.size());
    EXPECT_EQ(bytes.find_first_not_of("\r\n", whole.consumed), std::string::npos);
  }
  const std::vector<size_t> everywhere = http_feeding::cut_everywhere(all.size());
  EXPECT_EQ(http_feeding::feed<protocol::HttpRequest>(all, everywhere), whole);
  const size_t step = 1 + all.size() / 512;
  for (size_t cut = 0; cut <= all.size(); cut += step) {
    ASSERT_EQ(http_feeding::feed<protocol::HttpRequest>(all, {cut}), whole) << "cut at " << cut;
  }
}

}  // namespace

TEST_P(Conformance, Case) {
  play(Transport::kPlain);
}

TEST_P(ConformanceOverTls, Case) {
  play(Transport::kTls);
}

INSTANTIATE_TEST_SUITE_P(Rfc, Conformance, testing::ValuesIn(cases_to_play(Transport::kPlain)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Rfc, ConformanceOverTls, testing::ValuesIn(cases_to_play(Transport::kTls)),
                         name_of);

TEST(ConformanceCases, EndAlikeInTheParserHoweverTheyAreCut) {
  int parsed = 0;
  for (const Case& each : read_cases(CONFORMANCE_CASES)) {
    const bool simple = each.settings.empty() && each.blocks.size() == 1 &&
                        each.blocks[0].expected[0].kind != Kind::kInterim;
    if (!simple) continue;
    SCOPED_TRACE(each.where);
    expect_parsed(each);
    parsed++;
  }
  EXPECT_GE(parsed, 300);
}

TEST(ConformanceCases, AreManyAndEachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const Case& each : read_cases(CONFORMANCE_CASES)) {
    EXPECT_TRUE(names.insert(each.test_name()).second) << each.where;
  }
  EXPECT_GE(names.size(), 150u);
}

}  // namespace http_conformance
