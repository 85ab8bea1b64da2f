#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/CountingBackend.h"
#include "store/RedisStoreKit.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/FakeRedis.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"
#include "support/TestSeed.h"

// Where a store in a Redis comes to an end: numbers, what is remembered, servers that are too old,
// messages that never arrive.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using std::chrono::hours;
using std::chrono::seconds;
using store_test::ask;
using store_test::cancel_request;
using store_test::carry_out;
using store_test::claim_request;
using store_test::kEpoch;
using store_test::kHourUs;
using store_test::kOneShard;
using store_test::names;
using store_test::open_backend;
using store_test::reopens;
using store_test::timer;
using store_test::url_of;
using store_test::why_not;
using test_support::eventually;
using testing::HasSubstr;
using workflow::AskRequest;
using workflow::CancelRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::LookRequest;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreBackendOptions;
using workflow::StoreFailure;
using workflow::StoreRequest;

constexpr const char* kMeta = "{app:0}:meta";

std::string field(const RedisServer& server, const std::string& name) {
  return run(server.url(), {"HGET", kMeta, name}).value.string_value();
}
void set_field(const RedisServer& server, const std::string& name, const std::string& value) {
  EXPECT_EQ(run(server.url(), {"HSET", kMeta, name, value}).text, "0");
}

// --- numbers ---

TEST(RedisStore, NumbersThatAreUsedUpAreRefused) {
  RedisServer server;
  const std::string url = url_of(server, kOneShard);
  const auto backend = open_backend(url);
  ask(*backend, timer("a", kNeverUs));
  constexpr uint64_t kExact = uint64_t{1} << 53;
  constexpr uint64_t kLast = kExact - (uint64_t{1} << 31);
  const std::string overflow = std::to_string(EOVERFLOW) + " ";

  // The last one that is given out, and no more.
  set_field(server, "last", std::to_string(kLast));
  EXPECT_EQ(ask(*backend, timer("b", kNeverUs)).timer, kLast + 1);
  const std::string before = run(server.url(), {"HGETALL", kMeta}).text;
  for (const char* name : {"c", "d"}) {
    ScheduleRequest refused = timer(name, kNeverUs);
    StoreFailure failure;
    EXPECT_FALSE(carry_out(*backend, refused, &failure, 1));
    EXPECT_EQ(failure.error, EOVERFLOW);
    EXPECT_FALSE(failure.in_doubt);
    EXPECT_THAT(failure.message, HasSubstr("the numbers are used up"));
    std::string message;
    EXPECT_EQ(backend->reopen(&message), EOVERFLOW);
    EXPECT_THAT(message, HasSubstr("make another store"));
  }
  EXPECT_THAT(why_not(url), HasSubstr(overflow));
  EXPECT_EQ(run(server.url(), {"HGETALL", kMeta}).text, before);
  EXPECT_EQ(run(server.url(), {"ZCARD", "{app:0}:names"}).text, "2");

  // The epoch does not rise beyond that, either.
  const std::string high = std::to_string(kLast - kEpoch);
  set_field(server, "last", high);
  EXPECT_EQ(why_not(url), "open");
  set_field(server, "server", "another one");
  EXPECT_THAT(why_not(url), HasSubstr(overflow));
  EXPECT_EQ(field(server, "last"), high);
  EXPECT_EQ(field(server, "server"), "another one");

  // Only a process that knows of higher numbers minds that they are gone.
  set_field(server, "last", "10");
  std::string message;
  EXPECT_EQ(backend->reopen(&message), EOVERFLOW);
  EXPECT_EQ(names(*open_backend(url)), (std::vector<std::string>{"a", "b"}));
}

// Each rise takes as much as may have been given out meanwhile, and not much more.
TEST(RedisStore, AnEpochRisesAsFarAsItMust) {
  RedisServer server;
  const std::string url = url_of(server, kOneShard);
  open_backend(url);
  const auto risen = [&] {
    set_field(server, "server", "another one");
    const uint64_t before = std::stoull(field(server, "last"));
    EXPECT_EQ(why_not(url), "open");
    return std::stoull(field(server, "last")) - before;
  };
  for (int i = 0; i < 100; i++) {
    const uint64_t rise = risen();
    EXPECT_GE(rise, kEpoch);
    EXPECT_LT(rise, 2 * kEpoch);
  }
  // The latest state that is known is an hour old.
  constexpr uint64_t kHour = 3'600'000'000;
  set_field(server, "time", std::to_string(std::stoull(field(server, "time")) - kHour));
  const uint64_t rise = risen();
  EXPECT_GE(rise, kHour + kEpoch);
  EXPECT_LT(rise, kHour + 2 * kEpoch);
  // The clock was wrong, or goes backwards.
  constexpr uint64_t kMost = uint64_t{1} << 38;
  set_field(server, "time", "1");
  EXPECT_EQ(risen(), kMost + kEpoch);
  set_field(server, "time", "9007199254740992");
  EXPECT_EQ(risen(), kEpoch);
  // Every store has the time, so this is none.
  run(server.url(), {"HDEL", kMeta, "time"});
  EXPECT_THAT(why_not(url), HasSubstr("hold something else"));
}

TEST(RedisStore, WhatIsGivenOutIsNotedWithItsTime) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  set_field(server, "time", "1");
  names(*backend);
  EXPECT_EQ(field(server, "time"), "1");
  const int64_t before_us = backend->now_us();
  ask(*backend, timer("a", kNeverUs));
  EXPECT_NEAR(static_cast<double>(std::stoll(field(server, "time"))),
              static_cast<double>(before_us), 6e7);
}

TEST(RedisStore, ANumberThatTheServerHasLostIsNotGivenOutAgain) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  const auto other = open_backend(url_of(server, kOneShard), 2);
  set_field(server, "last", std::to_string(5 * kEpoch));
  uint64_t known = ask(*backend, timer("a", kNeverUs)).timer;
  EXPECT_EQ(known, 5 * kEpoch + 1);
  for (const bool connects_anew : {false, true}) {
    set_field(server, "last", "10");
    std::string message;
    EXPECT_TRUE(!connects_anew || backend->reopen(&message) == 0) << message;
    const uint64_t next = ask(*backend, timer("a", kNeverUs)).timer;
    EXPECT_GT(next, known);
    EXPECT_GT(ask(*other, timer("a", kNeverUs)).timer, next);
    known = next;
  }
}

// --- what is remembered ---

TEST(RedisStore, NothingIsRememberedIfNothingShallBe) {
  RedisServer server;
  StoreBackendOptions options;
  options.session = 1;
  options.remembered = 0;
  std::string why;
  const auto backend = store_test::try_to_open(url_of(server, kOneShard), options, &why);
  ASSERT_NE(backend, nullptr) << why;
  ScheduleRequest schedule = timer("a", backend->now_us() + kHourUs);
  ask(*backend, schedule, 1);
  EXPECT_EQ(ask(*backend, cancel_request("a"), 2).answers.at(0).verdict, WFStoreVerdict::kWon);
  const CancelRequest unknown = ask(*backend, cancel_request("a"), 3);
  EXPECT_EQ(unknown.answers.at(0).verdict, WFStoreVerdict::kUnknown);
  for (const char* key : {"answers", "order", "ended", "ring", "timers", "names", "queue"}) {
    EXPECT_EQ(run(server.url(), {"EXISTS", std::string("{app:0}:") + key}).text, "0") << key;
  }
}

// Answers do not show whether what is forgotten takes room still.
TEST(RedisStore, WhatIsForgottenIsRemoved) {
  RedisServer server;
  StoreBackendOptions options;
  options.session = 1;
  options.remembered = 10;
  std::string why;
  const auto backend = store_test::try_to_open(url_of(server, kOneShard), options, &why);
  ASSERT_NE(backend, nullptr) << why;
  const auto size = [&server](const char* command, const std::string& key) {
    return run(server.url(), {command, "{app:0}:" + key}).value.int_value();
  };
  uint64_t id = 0;
  const auto end_timers = [&](const std::string& prefix, int differ) {
    for (int i = 0; i < 300; i++) {
      const std::string name = prefix + std::to_string(i % differ);
      ask(*backend, timer(name, kNeverUs), ++id);
      ask(*backend, cancel_request(name), ++id);
    }
    EXPECT_LE(size("LLEN", "ring"), 11);
    EXPECT_LE(size("HLEN", "order"), 11);
    EXPECT_LE(size("HLEN", "answers"), 2);  // a hundred numbers in each
  };
  end_timers("", 300);
  EXPECT_LE(size("HLEN", "ended"), 11);
  end_timers("again", 1);
  EXPECT_EQ(size("HLEN", "ended"), 1);

  // The same where many runs end at a time.
  constexpr size_t kRuns = 300;
  std::vector<StoreRequest> batch(kRuns);
  std::vector<StoreRequest*> requests;
  for (StoreRequest& request : batch) {
    request.what = timer("run " + std::to_string(requests.size()), 0);
    requests.push_back(&request);
  }
  ASSERT_TRUE(backend->execute(requests));
  const auto claim = ask(*backend, claim_request(kRuns));
  ASSERT_EQ(claim.claimed.size(), kRuns);
  for (size_t i = 0; i < kRuns; i++) {
    FinishRequest finish;
    finish.run = claim.claimed[i].run;
    batch[i].what = finish;
  }
  ASSERT_TRUE(backend->execute(requests));
  EXPECT_LE(std::stoi(field(server, "ends")), 11);
  EXPECT_LE(size("HLEN", "ended"), 11);
  const auto ring = run(server.url(), {"LRANGE", "{app:0}:ring", "0", "-1"}).value;
  size_t bytes = 0;
  for (size_t i = 0; i < ring.arr_size(); i++) {
    bytes += ring[i].string_value().size();
  }
  EXPECT_LE(bytes, 11U * 30);
  for (const char* key : {"timers", "names", "queue", "marked", "leased", "payloads"}) {
    EXPECT_EQ(size("EXISTS", key), 0) << key;
  }
}

TEST(RedisStore, OneBatchMayAskMoreThanIsRemembered) {
  RedisServer server;
  StoreBackendOptions options;
  options.session = 1;
  options.remembered = 2;
  std::string why;
  const auto backend = store_test::try_to_open(url_of(server, kOneShard), options, &why);
  ASSERT_NE(backend, nullptr) << why;
  std::vector<StoreRequest> batch(5);
  std::vector<StoreRequest*> requests;
  for (StoreRequest& request : batch) {
    requests.push_back(&request);
    request.id = {1, requests.size()};
    request.what = timer(std::to_string(requests.size()), kNeverUs);
  }
  ASSERT_TRUE(backend->execute(requests));
  EXPECT_EQ(run(server.url(), {"HGET", "{app:0}:meta", "answers"}).value.string_value(), "2");
  for (uint64_t id = 1; id <= 5; id++) {
    AskRequest question;
    question.asked = {1, id};
    StoreFailure failure;
    carry_out(*backend, question, &failure);
    EXPECT_EQ(question.found, id > 3) << id;
    EXPECT_EQ(failure.error == 0, id > 3) << id;
  }
}

class Remembering {
 public:
  explicit Remembering(size_t remembered) {
    StoreBackendOptions options;
    options.session = 1;
    options.remembered = remembered;
    std::string why;
    backend_ = open(options, &why);
    EXPECT_NE(backend_, nullptr) << why;
  }
  std::unique_ptr<StoreBackend> open(const StoreBackendOptions& options, std::string* why) {
    return store_test::try_to_open(url_of(server_, kOneShard), options, why);
  }

  // Opens and closes the store in each of these sessions.
  void come_and_go(uint64_t first, uint64_t last) {
    for (uint64_t session = first; session <= last; session++) {
      StoreBackendOptions options;
      options.session = session;
      std::string why;
      EXPECT_NE(open(options, &why), nullptr) << why;
    }
  }
  // One request of each of these sessions, in their order.
  void ask_for(uint64_t first, uint64_t last, uint64_t number) {
    std::vector<StoreRequest> batch(last - first + 1);
    std::vector<StoreRequest*> requests;
    for (StoreRequest& request : batch) {
      request.id = {first + requests.size(), number};
      request.what = timer("a", kNeverUs);
      requests.push_back(&request);
    }
    ASSERT_TRUE(backend_->execute(requests));
    for (const StoreRequest& request : batch) {
      EXPECT_EQ(request.failure.error, 0) << request.failure.message;
    }
  }
  // 0: it is remembered. ENODATA: it is forgotten.
  int error_of(uint64_t session, uint64_t number) {
    AskRequest question;
    question.asked = {session, number};
    StoreFailure failure;
    EXPECT_TRUE(carry_out(*backend_, question, &failure));
    EXPECT_EQ(question.found, failure.error == 0);
    return failure.error;
  }
  // Asks for a request that never came.
  int error_of_ask(uint64_t session, uint64_t number) {
    AskRequest question;
    question.asked = {session, number};
    StoreFailure failure;
    EXPECT_TRUE(carry_out(*backend_, question, &failure));
    EXPECT_FALSE(question.found);
    return failure.error;
  }
  int error_of_schedule(uint64_t session, uint64_t number) {
    StoreRequest request;
    request.id = {session, number};
    request.what = timer("a", kNeverUs);
    StoreRequest* const requests[] = {&request};
    EXPECT_TRUE(backend_->execute(requests));
    return request.failure.error;
  }
  // How many answers the shard remembers, as it has counted and as they are.
  size_t answers() {
    const std::string script =
        "local count = 0 "
        "for _, packed in ipairs(redis.call('HVALS', KEYS[1])) do "
        "  count = count + #{cmsgpack.unpack(packed)} / 3 "
        "end "
        "return count";
    const std::string counted = field(server_, "answers");
    EXPECT_EQ(run(server_.url(), {"EVAL", script, "1", "{app:0}:answers"}).text, counted);
    EXPECT_EQ(count("HLEN", "answers"), count("HLEN", "order"));
    return std::stoul(counted);
  }
  StoreBackend& backend() { return *backend_; }
  std::string count(const std::string& command, const std::string& key,
                    const std::string& field = "", const std::string& value = "") {
    std::vector<std::string> words = {command, "{app:0}:" + key};
    for (const std::string& word : {field, value}) {
      if (!word.empty()) {
        words.push_back(word);
      }
    }
    return run(server_.url(), words).text;
  }

 private:
  RedisServer server_;
  std::unique_ptr<StoreBackend> backend_;
};

TEST(RedisStore, SessionsAreForgottenWhenThereAreVeryMany) {
  Remembering store(10'000);
  store.ask_for(1, 256, 1);
  store.ask_for(1, 1, 2);  // it is the latest one now
  EXPECT_EQ(store.answers(), 257U);
  store.ask_for(257, 300, 1);
  EXPECT_EQ(store.count("ZCARD", "used"), "256");
  EXPECT_EQ(store.answers(), 257U);
  EXPECT_EQ(store.count("HLEN", "sessions"), "256");
  EXPECT_EQ(store.error_of(1, 1), 0);
  EXPECT_EQ(store.error_of(1, 2), 0);
  for (uint64_t session = 2; session <= 300; session++) {
    EXPECT_EQ(store.error_of(session, 1), session <= 45 ? ENODATA : 0) << session;
  }
  // One that was forgotten comes back. What it has asked before stays forgotten.
  store.ask_for(2, 2, 5);
  EXPECT_EQ(store.error_of(2, 5), 0);
  EXPECT_EQ(store.error_of(2, 1), ENODATA);
  EXPECT_EQ(store.error_of(46, 1), ENODATA);
  EXPECT_EQ(store.count("ZCARD", "used"), "256");
}

TEST(RedisStore, ProcessesThatComeAndGoAreForgotten) {
  Remembering store(10'000);
  store.come_and_go(2, 300);
  EXPECT_EQ(store.count("ZCARD", "used"), "256");
  EXPECT_EQ(store.count("HLEN", "sessions"), "256");
  EXPECT_EQ(store.error_of_ask(44, 1), ENODATA);
  EXPECT_EQ(store.error_of_ask(300, 1), 0);
}

// Those that have asked for something are more to forget.
TEST(RedisStore, ALookForgetsSessionsThatAreTooMany) {
  Remembering store(10'000);
  store.ask_for(2, 50, 1);
  // Those that have asked for nothing are forgotten, also behind the others.
  store.come_and_go(51, 400);
  EXPECT_EQ(store.count("ZCARD", "used"), "305");
  EXPECT_EQ(store.answers(), 49U);
  for (int i = 0; i < 49; i++) {
    EXPECT_EQ(store.error_of(50, 1), 0);
    ask(store.backend(), LookRequest{});
  }
  EXPECT_EQ(store.count("ZCARD", "used"), "256");
  EXPECT_EQ(store.count("HLEN", "sessions"), "256");
  EXPECT_EQ(store.answers(), 0U);
  EXPECT_EQ(store.error_of(50, 1), ENODATA);
  ask(store.backend(), LookRequest{});
  EXPECT_EQ(store.count("ZCARD", "used"), "256");
}

// However many sessions were forgotten: a store that was just opened knows what it has asked.
TEST(RedisStore, ASessionIsKnownFromItsOpeningOn) {
  RedisServer server;
  const std::string url = url_of(server, "&namespace=app&shards=2");
  open_backend(url, 1);
  for (const char* shard : {"0", "1"}) {
    const std::string meta = std::string("{app:") + shard + "}:meta";
    EXPECT_EQ(run(server.url(), {"HSET", meta, "dropped", "1"}).text, "0");
  }
  const auto backend = open_backend(url, 2);
  AskRequest question;
  question.asked = {2, 1};
  StoreFailure failure;
  EXPECT_TRUE(carry_out(*backend, question, &failure));
  EXPECT_FALSE(question.found);
  EXPECT_EQ(failure.error, 0) << failure.message;
  // A session that nobody has opened may be one that was forgotten.
  question.asked = {3, 1};
  EXPECT_TRUE(carry_out(*backend, question, &failure));
  EXPECT_EQ(failure.error, ENODATA);
}

TEST(RedisStore, AProcessThatRemembersLessForgetsNothingOfOthers) {
  Remembering store(1000);
  store.ask_for(1, 1, 1);
  store.ask_for(1, 1, 2);
  StoreBackendOptions options;
  options.session = 9;
  options.remembered = 1;
  std::string why;
  const auto other = store.open(options, &why);
  ASSERT_NE(other, nullptr) << why;
  for (uint64_t number = 1; number <= 20; number++) {
    StoreRequest request;
    request.id = {9, number};
    request.what = timer("b", kNeverUs);
    StoreRequest* const requests[] = {&request};
    EXPECT_TRUE(other->execute(requests));
  }
  EXPECT_EQ(store.error_of(1, 1), 0);
  EXPECT_EQ(store.error_of(1, 2), 0);
  EXPECT_EQ(store.error_of(9, 19), ENODATA);
  EXPECT_EQ(store.error_of(9, 20), 0);
}

// A session's record has its highest number, so that not every request has to look for an answer.
TEST(RedisStore, ARequestOfAnyNumberGetsItsEarlierAnswer) {
  Remembering store(100);
  store.ask_for(1, 1, 5);
  store.ask_for(1, 1, 3);
  EXPECT_EQ(store.count("HLEN", "timers"), "2");
  for (const uint64_t number : {3u, 5u}) {
    store.ask_for(1, 1, number);
  }
  EXPECT_EQ(store.count("HLEN", "timers"), "2");
  // Also far away, and when it comes back to where it was.
  for (const uint64_t number : {1234567u, 6u, 1234568u, 6u, 1234567u, 6u, 1234500u, 1234500u}) {
    store.ask_for(1, 1, number);
  }
  EXPECT_EQ(store.count("HLEN", "timers"), "6");
  // A number that was asked for and not found is used up: a higher one, and those between.
  for (const uint64_t number : {1234569u, 9u, 99999u, 123456789u}) {
    EXPECT_EQ(store.error_of_ask(1, number), 0);
    EXPECT_EQ(store.error_of_ask(1, number), 0);
    EXPECT_EQ(store.error_of_schedule(1, number), ECANCELED);
  }
  EXPECT_EQ(store.count("HLEN", "timers"), "6");
  EXPECT_EQ(store.answers(), 10U);
}

// Answers are kept in buckets, which are forgotten in the order in which they were made.
TEST(RedisStore, TheLastAnswersAreRememberedWhateverTheirNumbers) {
  for (const size_t remembered : {1u, 5u, 120u}) {
    SCOPED_TRACE(remembered);
    test_support::TestRandom random(test_support::test_seed());
    Remembering store(remembered);
    std::vector<uint64_t> numbers;
    std::set<uint64_t> seen;
    uint64_t highest = 0;
    const auto check = [&] {
      EXPECT_LE(store.answers(), remembered + remembered / 100);
      for (size_t i = 0; i < numbers.size(); i += i + 20 < numbers.size() ? 7 : 1) {
        const int error = store.error_of(1, numbers[i]);
        if (i + remembered >= numbers.size()) {
          EXPECT_EQ(error, 0) << numbers[i] << " is " << numbers.size() - i << " ago";
        } else {
          EXPECT_TRUE(error == 0 || error == ENODATA);
        }
      }
    };
    while (numbers.size() < 300) {
      uint64_t number = highest + 1;
      if (random.one_in(5)) {
        number = highest + random.below(300);
      } else if (random.one_in(6)) {
        number = highest - random.below(std::min<uint64_t>(highest, 250) + 1);
      } else if (random.one_in(8)) {
        number = 1 + random.below(100);
      }
      if (number == 0 || !seen.insert(number).second) continue;
      highest = std::max(highest, number);
      store.ask_for(1, 1, number);
      numbers.push_back(number);
      if (numbers.size() % 100 == 0) check();
    }
  }
}

// Request 301 is a cancel of the 300 timers that the requests before it have stored.
constexpr size_t kTimers = 300;
constexpr const char* kLongAnswer = "000000000000000100000000000000000301";

CancelRequest cancel_300_timers(Remembering& store) {
  for (uint64_t number = 1; number <= kTimers; number++) {
    store.ask_for(1, 1, number);
  }
  CancelRequest cancel = cancel_request("a");
  StoreFailure failure;
  EXPECT_TRUE(carry_out(store.backend(), cancel, &failure, kTimers + 1));
  EXPECT_EQ(cancel.answers.size(), kTimers);
  EXPECT_EQ(store.count("HEXISTS", "answers", kLongAnswer), "1");
  return cancel;
}

// Such an answer is not written again with each that follows.
TEST(RedisStore, ALongAnswerIsKeptByItself) {
  Remembering store(10);
  const CancelRequest cancel = cancel_300_timers(store);
  ASSERT_EQ(cancel.answers.size(), kTimers);
  StoreFailure failure;
  store.ask_for(1, 1, kTimers + 2);
  // The same answer again, and when it is asked for.
  CancelRequest again = cancel_request("a");
  ASSERT_TRUE(carry_out(store.backend(), again, &failure, kTimers + 1));
  ASSERT_EQ(again.answers.size(), kTimers);
  EXPECT_EQ(again.answers.back().timer, cancel.answers.back().timer);
  AskRequest question;
  question.asked = {1, kTimers + 1};
  ASSERT_TRUE(carry_out(store.backend(), question, &failure));
  ASSERT_EQ(question.result.answers.size(), kTimers);
  EXPECT_EQ(question.result.answers.front().timer, cancel.answers.front().timer);
  // It is forgotten as the others are.
  for (uint64_t number = 1; number <= 30; number++) {
    store.ask_for(1, 1, kTimers + 2 + number);
  }
  EXPECT_EQ(store.error_of(1, kTimers + 1), ENODATA);
  EXPECT_EQ(store.answers(), 10U);
}

// A thousand of them could have many megabytes. One that cannot be read shows whether it is.
TEST(RedisStore, ALongAnswerIsForgottenUnread) {
  Remembering store(10);
  cancel_300_timers(store);
  const std::string no_answer = "\xc1";
  EXPECT_EQ(store.count("HSET", "answers", kLongAnswer, no_answer), "0");
  for (uint64_t number = 1; number <= 30; number++) {
    store.ask_for(1, 1, kTimers + 1 + number);
  }
  EXPECT_EQ(store.count("HEXISTS", "answers", kLongAnswer), "0");
  EXPECT_EQ(store.error_of(1, kTimers + 1), ENODATA);
  EXPECT_EQ(store.answers(), 10U);
}

TEST(RedisStore, AllSessionsTogetherRememberFourTimesAsMuch) {
  Remembering store(10);
  for (uint64_t session = 1; session <= 6; session++) {
    for (uint64_t number = 1; number <= 12; number++) {
      store.ask_for(session, session, number);
    }
  }
  EXPECT_EQ(store.answers(), 40U);
  EXPECT_EQ(store.count("ZCARD", "used"), "4");
  for (uint64_t session = 1; session <= 6; session++) {
    for (uint64_t number = 1; number <= 12; number++) {
      const bool is_there = session > 2 && number > 2;
      EXPECT_EQ(store.error_of(session, number), is_there ? 0 : ENODATA)
          << session << ", " << number;
    }
  }
  // The oldest one that is left loses its first answers, and keeps the others.
  store.ask_for(7, 9, 1);
  EXPECT_EQ(store.answers(), 40U);
  for (uint64_t number = 3; number <= 12; number++) {
    EXPECT_EQ(store.error_of(3, number), number > 5 ? 0 : ENODATA) << number;
  }
  EXPECT_EQ(store.error_of(4, 3), 0);
}

// --- servers ---

// Why a store does not open at a server whose INFO says this.
static std::string why_not_at(const std::string& info) {
  redis_test::RawServer server(
      redis_test::answering([&info](const std::vector<std::string>& words, int) -> std::string {
        if (words[0] == "INFO") return redis_test::bulk(info);
        return "*2\r\n" + redis_test::bulk("appendfsync") + redis_test::bulk("always");
      }));
  const std::string said = why_not(redis_test::url_of(server) + "?namespace=app");
  const std::string name = "Redis at 127.0.0.1:" + std::to_string(server.port()) + ": ";
  const size_t place = said.find(name);
  EXPECT_NE(place, std::string::npos) << said;
  return place == std::string::npos ? said
                                    : said.substr(0, place) + said.substr(place + name.size());
}

TEST(RedisStore, AServerThatIsTooOldIsNamed) {
  EXPECT_EQ(why_not_at("# Server\r\nredis_version:6.2.7\r\nredis_mode:standalone\r\n"),
            std::to_string(ENOTSUP) + " version 6.2.7 is too old: a store needs 7.0 or later");
}

// As Valkey 8 does.
TEST(RedisStore, AServerMaySayItsModeInAFieldOfAnotherName) {
  const std::string version = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n";
  EXPECT_EQ(why_not_at(version + "server_mode:cluster\r\n"),
            std::to_string(ENOTSUP) +
                " the server is part of a Cluster: say redis+cluster:// or "
                "rediss+cluster:// in the URL");
  // It has come to what is read after the mode.
  EXPECT_EQ(why_not_at(version + "server_mode:standalone\r\nrole:slave\r\n"),
            std::to_string(EROFS) + " the server is a replica: a store needs its master");
}

// --- messages that never arrive ---

// Every store looks once a second in any case.
TEST(RedisStore, ALostMessageCostsOneLookAtMost) {
  RedisServer server;
  const std::string url = url_of(server);
  store_test::CountingBackend::Counts counts;
  store_test::SeenRuns runs;
  const store_test::StorePtr other = store_test::open_store(url);
  StoreFailure failure;
  const auto make = [&](StoreBackendOptions options, StoreFailure* why) {
    options.changed = [&counts, changed = options.changed] {
      ++counts.news;
      changed();
    };
    auto backend = workflow::open_redis_backend(url, options, &why->error, &why->message);
    return std::make_unique<store_test::CountingBackend>(std::move(backend), counts);
  };
  const store_test::StorePtr store(workflow::StoreOpener::open({}, make, &failure));
  ASSERT_TRUE(store) << failure.message;
  ASSERT_EQ(store->handle("kind", runs.handler(*store)), 0);
  ASSERT_TRUE(store->schedule({"later", hours(1), "kind"}).ok());
  ASSERT_TRUE(eventually([&counts] { return counts.news > 0; }));  // it listens

  // From now on nobody may listen or publish.
  ASSERT_EQ(run(server.url(), {"ACL", "SETUSER", "default", "resetchannels"}).text, "OK");
  run(server.url(), {"CLIENT", "KILL", "TYPE", "pubsub"});
  ASSERT_TRUE(eventually([&server] {
    return run(server.url(), {"PUBSUB", "CHANNELS"}).value.arr_size() == 0;
  }));
  const int news = counts.news;
  ASSERT_TRUE(other->schedule({"now", seconds(0), "kind"}).ok());
  const int claims = counts.claims;
  ASSERT_TRUE(runs.wait_for(1));
  EXPECT_EQ(runs.at(0).name, "now");
  // The claim that was under way just then has come too early, or it has found it.
  EXPECT_LE(counts.found_at, claims + 1);
  EXPECT_EQ(counts.news, news);
}

}  // namespace
