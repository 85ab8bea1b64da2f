#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/RedisStoreBackend.h"
#include "store/RedisStoreKit.h"
#include "store/RedisStorePlace.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "support/RedisCommands.h"
#include "support/RedisServer.h"

// What is special about a store in a Redis. StoreRules, StoreVerdicts and BackendRules check the
// rules that all stores follow.

namespace {

using redis_test::RedisServer;
using redis_test::run;
using std::chrono::hours;
using std::chrono::milliseconds;
using store_test::ask;
using store_test::cancel_request;
using store_test::carry_out;
using store_test::claim_request;
using store_test::durable;
using store_test::kHourUs;
using store_test::kOneShard;
using store_test::kSecondUs;
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
using workflow::ClaimRequest;
using workflow::CountRequest;
using workflow::ExtendRequest;
using workflow::FinishRequest;
using workflow::kNeverUs;
using workflow::ListRequest;
using workflow::ScheduleRequest;
using workflow::StoreBackend;
using workflow::StoreBackendOptions;
using workflow::StoreFailure;
using workflow::StoreRequest;

TEST(RedisStore, ANameStaysInItsShard) {
  EXPECT_EQ(workflow::redis_store_shard("", 1000), 641U);
  EXPECT_EQ(workflow::redis_store_shard("order/42", 1000), 212U);
  EXPECT_EQ(workflow::redis_store_shard("order/42", 1), 0U);
}

TEST(RedisStore, TheServerIsTheClock) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  const int64_t now_us = backend->now_us();
  const int64_t wall_us = std::chrono::duration_cast<std::chrono::microseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  EXPECT_LT(std::abs(now_us - wall_us), 60'000'000);
  ask(*backend, timer("later", now_us + kHourUs));
  ask(*backend, timer("now", now_us - kSecondUs));
  const ClaimRequest claim = ask(*backend, claim_request(10));
  ASSERT_EQ(claim.claimed.size(), 1U);
  EXPECT_EQ(claim.claimed[0].spec.name, "now");
  EXPECT_EQ(claim.claimed[0].spec.payload, "payload of now");
  // Told by this machine's estimate of that clock, which the last answer may have changed a little.
  EXPECT_NEAR(static_cast<double>(claim.next_us - now_us), static_cast<double>(kHourUs), 6e7);
  EXPECT_FALSE(claim.more);
}

TEST(RedisStore, ManyShardsAreOneStore) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, "&namespace=app&shards=7"));
  const int64_t now_us = backend->now_us();
  std::vector<std::string> expected;
  for (int i = 10; i < 60; i++) {
    expected.push_back("timer " + std::to_string(i));
    ask(*backend, timer(expected.back(), now_us - 60'000'000 + i), static_cast<uint64_t>(i));
  }
  EXPECT_EQ(names(*backend), expected);

  std::vector<std::string> pages;
  ListRequest list;
  list.prefix = "timer ";
  list.max = 8;
  do {
    list.timers.clear();
    list = ask(*backend, list);
    ASSERT_FALSE(list.timers.empty());
    for (const WFStoreInfo& info : list.timers) {
      pages.push_back(info.name);
    }
    list.after_name = list.timers.back().name;
    list.after_timer = list.timers.back().timer;
  } while (list.more);
  EXPECT_EQ(pages, expected);

  CountRequest count;
  count.prefix = "timer 2";
  EXPECT_EQ(ask(*backend, count).count, 10U);

  // The oldest ones, wherever they are.
  ClaimRequest claim = ask(*backend, claim_request(20));
  EXPECT_TRUE(claim.more);
  std::vector<std::string> claimed;
  ExtendRequest extend;
  extend.lease_us = 2 * kHourUs;
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    claimed.push_back(one.spec.name);
    extend.runs.push_back(one.run);
  }
  std::sort(claimed.begin(), claimed.end());
  EXPECT_EQ(claimed, std::vector<std::string>(expected.begin(), expected.begin() + 20));
  for (const ExtendRequest::Extended& extended : ask(*backend, extend).extended) {
    EXPECT_TRUE(extended.live);
  }
  for (const workflow::RunId& run : extend.runs) {
    FinishRequest finish;
    finish.run = run;
    EXPECT_TRUE(ask(*backend, finish).accepted);
  }
  EXPECT_EQ(names(*backend), std::vector<std::string>(expected.begin() + 20, expected.end()));

  AskRequest question;
  question.asked = {1, 17};
  question = ask(*backend, question);
  EXPECT_TRUE(question.found);
  EXPECT_NE(question.result.timer, 0U);
  question.asked = {1, 99};
  EXPECT_FALSE(ask(*backend, question).found);
  ScheduleRequest late = timer("late", now_us);
  StoreFailure failure;
  carry_out(*backend, late, &failure, 99);
  EXPECT_EQ(failure.error, ECANCELED);
}

// Small payloads are kept with their timers, and large ones beside them.
TEST(RedisStore, PayloadsOfAnySizeComeBack) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  const int64_t now_us = backend->now_us();
  const std::vector<size_t> sizes = {0, 1, 200, 201, 65536};
  for (const size_t size : sizes) {
    ScheduleRequest schedule = timer(std::to_string(size), now_us - kSecondUs);
    schedule.spec.payload = std::string(size, 'p');
    ask(*backend, schedule);
  }
  EXPECT_EQ(run(server.url(), {"HLEN", "{app:0}:payloads"}).text, "2");
  const ClaimRequest claim = ask(*backend, claim_request(10));
  ASSERT_EQ(claim.claimed.size(), sizes.size());
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    EXPECT_EQ(std::to_string(one.spec.payload.size()), one.spec.name);
    // A successor, whose payload is a copy.
    workflow::RescheduleRequest move;
    move.name = one.spec.name;
    move.due_us = now_us - kSecondUs;
    ask(*backend, move);
    FinishRequest finish;
    finish.run = one.run;
    EXPECT_TRUE(ask(*backend, finish).accepted);
  }
  const ClaimRequest copies = ask(*backend, claim_request(10));
  ASSERT_EQ(copies.claimed.size(), sizes.size());
  for (const ClaimRequest::Claimed& one : copies.claimed) {
    EXPECT_EQ(std::to_string(one.spec.payload.size()), one.spec.name);
    FinishRequest finish;
    finish.run = one.run;
    EXPECT_TRUE(ask(*backend, finish).accepted);
  }
  EXPECT_EQ(run(server.url(), {"HLEN", "{app:0}:payloads"}).text, "0");
}

// Texts are packed in ways that differ with their lengths.
TEST(RedisStore, NamesAndPayloadsOfAnyBytesComeBack) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  const int64_t now_us = backend->now_us();
  std::string bytes;
  for (int byte = 0; byte < 256; byte++) {
    bytes += static_cast<char>(byte);
  }
  std::set<std::string> expected;
  for (const size_t size : {1u, 31u, 32u, 255u, 256u, 1024u}) {
    std::string name = bytes + bytes + bytes + bytes;
    name.resize(size);
    expected.insert(name);
    for (const std::string& payload : {name.substr(0, size % 200), name.substr(size / 2) + bytes}) {
      ScheduleRequest schedule = timer(name, now_us - kSecondUs);
      schedule.spec.payload = payload;
      ask(*backend, schedule);
    }
  }
  const std::vector<std::string> stored = names(*backend);
  EXPECT_EQ(std::set<std::string>(stored.begin(), stored.end()), expected);
  const ClaimRequest claim = ask(*backend, claim_request(100));
  ASSERT_EQ(claim.claimed.size(), 2 * expected.size());
  for (const ClaimRequest::Claimed& one : claim.claimed) {
    const std::string& name = one.spec.name;
    EXPECT_TRUE(one.spec.payload == name.substr(0, name.size() % 200) ||
                one.spec.payload == name.substr(name.size() / 2) + bytes);
  }
}

// What a script has stored, claimed and ended is seen by its later requests.
TEST(RedisStore, RequestsOfOneScriptSeeEachOther) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  const int64_t now_us = backend->now_us();
  std::vector<StoreRequest> batch(9);
  batch[0].what = timer("a", now_us - kSecondUs);
  batch[1].what = timer("a", now_us - kSecondUs);
  batch[2].what = cancel_request("a");
  batch[3].what = cancel_request("a");
  batch[4].what = timer("b", now_us - kSecondUs);
  batch[5].what = claim_request(10);
  batch[6].what = cancel_request("b");
  batch[7].what = timer("c", now_us + kHourUs);
  batch[8].what = cancel_request("c");
  std::vector<StoreRequest*> requests;
  for (StoreRequest& request : batch) {
    requests.push_back(&request);
    request.id = {1, requests.size()};
  }
  batch[5].id = {};
  ASSERT_TRUE(backend->execute(requests));
  using Verdicts = std::vector<WFStoreVerdict>;
  const auto verdicts = [&batch](size_t i) {
    Verdicts all;
    for (const WFStoreAnswer& answer : std::get<CancelRequest>(batch[i].what).answers) {
      all.push_back(answer.verdict);
    }
    return all;
  };
  EXPECT_EQ(verdicts(2), (Verdicts{WFStoreVerdict::kWon, WFStoreVerdict::kWon}));
  EXPECT_EQ(verdicts(3), Verdicts{WFStoreVerdict::kDone});
  ASSERT_EQ(std::get<ClaimRequest>(batch[5].what).claimed.size(), 1U);
  EXPECT_EQ(std::get<ClaimRequest>(batch[5].what).claimed[0].spec.name, "b");
  EXPECT_EQ(verdicts(6), Verdicts{WFStoreVerdict::kRunning});
  EXPECT_EQ(verdicts(8), Verdicts{WFStoreVerdict::kWon});
  EXPECT_EQ(names(*backend), std::vector<std::string>{"b"});
}

// Between the look at all shards and the claim, a timer that was fresh may become overdue.
TEST(RedisStore, ATimerThatBecomesOverdueMeanwhileIsClaimed) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  for (int i = 0; i < 50; i++) {
    ask(*backend, timer("a", backend->now_us() - kSecondUs + 10 * i));
    const ClaimRequest claim = ask(*backend, claim_request(1));
    ASSERT_EQ(claim.claimed.size(), 1U) << i;
    FinishRequest finish;
    finish.run = claim.claimed[0].run;
    EXPECT_TRUE(ask(*backend, finish).accepted);
  }
}

TEST(RedisStore, TimesThatLuaCannotCountStayExact) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  constexpr int64_t kExactUs = int64_t{1} << 53;
  for (const int64_t due_us : {kExactUs - 1, kExactUs, kExactUs + 1, kNeverUs / 1000}) {
    ask(*backend, timer(std::to_string(due_us), due_us));
  }
  ListRequest list;
  list.max = 10;
  list = ask(*backend, list);
  ASSERT_EQ(list.timers.size(), 4U);
  for (const WFStoreInfo& info : list.timers) {
    const auto due =
        std::chrono::duration_cast<std::chrono::microseconds>(info.due.time_since_epoch());
    EXPECT_EQ(std::to_string(due.count()), info.name);
  }
}

TEST(RedisStore, LargeListsCome) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  constexpr size_t kTimers = 400;
  for (size_t i = 0; i < kTimers; i++) {
    ScheduleRequest request = timer(std::to_string(1000 + i), kNeverUs);
    request.spec.payload.assign(65536, 'x');
    ask(*backend, request);
  }
  ListRequest list;
  list.max = 10000;
  size_t seen = 0;
  do {
    list.timers.clear();
    list = ask(*backend, list);
    ASSERT_FALSE(list.timers.empty());
    for (const WFStoreInfo& info : list.timers) {
      EXPECT_EQ(info.name, std::to_string(1000 + seen++));
    }
    list.after_name = list.timers.back().name;
    list.after_timer = list.timers.back().timer;
  } while (list.more);
  EXPECT_EQ(seen, kTimers);
}

TEST(RedisStore, WhatWasStoredOutlivesTheServer) {
  RedisServer server(durable());
  const auto backend = open_backend(url_of(server));
  EXPECT_EQ(backend->receipt().level, WFStoreReceipt::kFsync);
  const int64_t now_us = backend->now_us();
  ask(*backend, timer("a", now_us - kSecondUs));
  ask(*backend, timer("b", now_us + kHourUs));
  const ClaimRequest claim = ask(*backend, claim_request(1));
  ASSERT_EQ(claim.claimed.size(), 1U);
  for (int i = 0; i < 2; i++) {
    server.signal(SIGKILL);
    server.stop();
    ScheduleRequest lost = timer("lost", now_us);
    StoreFailure failure;
    EXPECT_FALSE(carry_out(*backend, lost, &failure));
    EXPECT_NE(failure.error, 0);
    std::string message;
    EXPECT_NE(backend->reopen(&message), 0);
    EXPECT_NE(message, "");
    server.start();
    ASSERT_TRUE(reopens(*backend));
    EXPECT_EQ(names(*backend), (std::vector<std::string>{"a", "b"}));
  }
  // The lease is still there. What is new has a later epoch.
  FinishRequest finish;
  finish.run = claim.claimed[0].run;
  EXPECT_TRUE(ask(*backend, finish).accepted);
  EXPECT_EQ(ask(*backend, cancel_request("b")).answers.at(0).verdict, WFStoreVerdict::kWon);
  ask(*backend, timer("a", now_us - kSecondUs));
  const ClaimRequest second = ask(*backend, claim_request(1));
  ASSERT_EQ(second.claimed.size(), 1U);
  constexpr uint64_t kEpoch = uint64_t{1} << 30;
  EXPECT_EQ(second.claimed[0].run.fence / 3 / kEpoch, 2U);
  EXPECT_EQ(claim.claimed[0].run.fence / 3 / kEpoch, 0U);
}

// As when the disk of the server was full, or has lost the last sector. Redis goes on with what is
// whole.
TEST(RedisStore, ALogThatWasCutShortIsAStoreOfAnEarlierTime) {
  RedisServer server(durable());
  const auto backend = open_backend(url_of(server, kOneShard));
  const int64_t now_us = backend->now_us();
  ask(*backend, timer("kept", now_us - kSecondUs));
  const ClaimRequest before = ask(*backend, claim_request(1));
  ASSERT_EQ(before.claimed.size(), 1U);
  ask(*backend, timer("cut", kNeverUs));
  server.signal(SIGKILL);
  server.stop();
  const std::filesystem::path log = server.log_path();
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 10);
  server.start();
  ASSERT_TRUE(reopens(*backend));
  EXPECT_EQ(names(*backend), std::vector<std::string>{"kept"});
  // What comes now is not taken for what was lost.
  ask(*backend, timer("new", now_us - kSecondUs));
  const ClaimRequest after = ask(*backend, claim_request(1));
  ASSERT_EQ(after.claimed.size(), 1U);
  EXPECT_GT(after.claimed[0].run.fence, before.claimed[0].run.fence);
  FinishRequest finish;
  finish.run = before.claimed[0].run;
  EXPECT_TRUE(ask(*backend, finish).accepted);
  EXPECT_EQ(names(*backend), std::vector<std::string>{"new"});
}

TEST(RedisStore, TheServerMayForgetTheScripts) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  for (int i = 0; i < 3; i++) {
    ask(*backend, timer(std::to_string(i), kNeverUs));
    EXPECT_EQ(run(server.url(), {"SCRIPT", "FLUSH"}).text, "OK");
  }
  EXPECT_EQ(names(*backend), (std::vector<std::string>{"0", "1", "2"}));
}

TEST(RedisStore, LostConnectionsLeaveOneTruth) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  std::atomic<bool> stop{false};
  std::atomic<int> asked{0};
  std::thread killer([&] {
    for (int killed = 0; !stop; std::this_thread::yield()) {
      if (killed < asked) {
        killed = asked;
        run(server.url(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
      }
    }
  });
  constexpr uint64_t kRequests = 3000;
  constexpr uint64_t kBatch = 50;
  std::vector<uint64_t> doubted;
  std::set<std::string> expected;
  for (uint64_t first = 1; first <= kRequests; first += kBatch) {
    std::vector<StoreRequest> batch(kBatch);
    std::vector<StoreRequest*> pointers;
    for (uint64_t i = 0; i < kBatch; i++) {
      batch[i].what = timer(std::to_string(first + i), kNeverUs);
      batch[i].id = {1, first + i};
      pointers.push_back(&batch[i]);
    }
    asked += first % (3 * kBatch) == 1 ? 1 : 0;  // while this batch is on its way, or a later one
    if (!backend->execute(pointers)) {
      EXPECT_TRUE(reopens(*backend));
    }
    for (const StoreRequest& request : batch) {
      if (request.failure.error == 0) {
        expected.insert(std::to_string(request.id.number));
      } else if (request.failure.in_doubt) {
        doubted.push_back(request.id.number);
      }
    }
  }
  stop = true;
  killer.join();
  ASSERT_TRUE(reopens(*backend));
  for (const uint64_t number : doubted) {
    AskRequest question;
    question.asked = {1, number};
    if (ask(*backend, question).found) {
      expected.insert(std::to_string(number));
    }
  }
  const std::vector<std::string> stored = names(*backend);
  EXPECT_EQ(stored, std::vector<std::string>(expected.begin(), expected.end()));
}

TEST(RedisStore, ALossOfAllDataIsNoticed) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  ask(*backend, timer("a", kNeverUs));
  run(server.url(), {"FLUSHALL"});
  ScheduleRequest request = timer("b", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, request, &failure));
  EXPECT_EQ(failure.error, EILSEQ);
  EXPECT_FALSE(failure.in_doubt);
  std::string message;
  EXPECT_EQ(backend->reopen(&message), EILSEQ);
  EXPECT_EQ(message, server.in_messages() + "the store \"app\" was removed from the server");
  // Also if another process has made a new one.
  const auto other = open_backend(url_of(server), 2);
  EXPECT_EQ(backend->reopen(&message), EILSEQ);
  EXPECT_FALSE(carry_out(*backend, request, &failure));
  EXPECT_EQ(failure.error, EILSEQ);
  EXPECT_EQ(names(*other), std::vector<std::string>());
}

TEST(RedisStore, AStoreWithoutItsFirstKeyIsNoticed) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  ask(*backend, timer("a", kNeverUs));
  EXPECT_EQ(run(server.url(), {"DEL", "{app:0}:meta"}).text, "1");
  ScheduleRequest request = timer("b", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, request, &failure));
  EXPECT_EQ(failure.error, EILSEQ);
  std::string message;
  EXPECT_EQ(backend->reopen(&message), EILSEQ);
  EXPECT_THAT(message, HasSubstr("the keys of the store \"app\" hold something else"));
}

// A large payload is apart from what else is known about its timer.
TEST(RedisStore, APayloadThatIsMissingIsNoticed) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  ScheduleRequest large = timer("a", backend->now_us() - kSecondUs);
  large.spec.payload.assign(1000, 'p');
  ask(*backend, large);
  EXPECT_EQ(run(server.url(), {"DEL", "{app:0}:payloads"}).text, "1");
  ClaimRequest claim = claim_request(1);
  StoreFailure failure;
  carry_out(*backend, claim, &failure);
  EXPECT_EQ(failure.error, EILSEQ);
  EXPECT_THAT(failure.message, HasSubstr("the payload of timer"));
  EXPECT_EQ(claim.claimed.size(), 0U);
}

TEST(RedisStore, ALostShardIsNoticed) {
  RedisServer server;
  open_backend(url_of(server));
  EXPECT_EQ(run(server.url(), {"DEL", "{app:1}:meta"}).text, "1");
  EXPECT_THAT(why_not(url_of(server)), HasSubstr(server.in_messages() + "the store \"app\""));
}

// The server has lost a part of a shard that no script looks for in advance.
TEST(RedisStore, AStoreThatMeetsDamageStartsNothingAndTakesNothing) {
  RedisServer server;
  std::string message;
  const std::unique_ptr<WFTimerStore> store(
      WFTimerStore::open(url_of(server, kOneShard), &message));
  ASSERT_TRUE(store) << message;
  const WFStoreResult stored = store->schedule({"lost", std::chrono::milliseconds(1), "kind"});
  ASSERT_TRUE(stored.ok());
  const std::string number = run(server.url(), {"HKEYS", "{app:0}:timers"}).value[0].string_value();
  const std::string record =
      run(server.url(), {"HGET", "{app:0}:timers", number}).value.string_value();
  EXPECT_EQ(run(server.url(), {"HDEL", "{app:0}:timers", number}).text, "1");
  std::atomic<int> begun{0};
  store->handle("kind", [&begun](WFStoredTimer*) { begun++; });
  WFStoreResult refused;
  EXPECT_TRUE(eventually([&] {
    refused = store->schedule({"new", std::chrono::hours(1), "kind"});
    return refused.error == EILSEQ;
  }));
  EXPECT_THAT(refused.message, HasSubstr("is missing"));
  EXPECT_EQ(begun, 0);
  EXPECT_EQ(store->schedule({"new", std::chrono::hours(1), "kind"}).error, EILSEQ);

  EXPECT_EQ(run(server.url(), {"HSET", "{app:0}:timers", number, record}).text, "1");
  EXPECT_TRUE(eventually([&] { return begun == 1; }));
  EXPECT_TRUE(eventually([&] {
    return store->schedule({"new", std::chrono::hours(1), "kind"}).ok();
  }));
}

TEST(RedisStore, AFullServerStoresNothingAndGoesOn) {
  RedisServer server;
  const auto backend = open_backend(url_of(server));
  const int64_t now_us = backend->now_us();
  ask(*backend, timer("runs", now_us - kSecondUs));
  ask(*backend, timer("waits", now_us + kHourUs));
  const ClaimRequest claim = ask(*backend, claim_request(1));
  ASSERT_EQ(claim.claimed.size(), 1U);
  EXPECT_EQ(run(server.url(), {"CONFIG", "SET", "maxmemory", "1"}).text, "OK");
  ScheduleRequest refused = timer("new", now_us);
  StoreFailure failure;
  EXPECT_TRUE(carry_out(*backend, refused, &failure, 5));
  EXPECT_EQ(failure.error, ENOSPC);
  EXPECT_FALSE(failure.in_doubt);
  EXPECT_EQ(names(*backend), (std::vector<std::string>{"runs", "waits"}));
  FinishRequest finish;
  finish.run = claim.claimed[0].run;
  EXPECT_TRUE(ask(*backend, finish).accepted);
  EXPECT_EQ(ask(*backend, cancel_request("waits")).answers.at(0).verdict, WFStoreVerdict::kWon);
  EXPECT_EQ(run(server.url(), {"CONFIG", "SET", "maxmemory", "0"}).text, "OK");
  ask(*backend, refused, 5);
  EXPECT_EQ(names(*backend), std::vector<std::string>{"new"});
}

TEST(RedisStore, AStoreOfAnotherLayoutIsRefusedAndNotChanged) {
  RedisServer server;
  const std::string url = url_of(server);
  ask(*open_backend(url), timer("a", kNeverUs));
  const std::vector<std::string> all = {"HGETALL", "{app:0}:meta"};
  for (const std::string layout : {"4", "2", "1", "none"}) {
    run(server.url(), {"HSET", "{app:0}:meta", "layout", layout});
    const std::string before = run(server.url(), all).text;
    EXPECT_EQ(why_not(url), std::to_string(ENOTSUP) + " " + server.in_messages() +
                                "the store \"app\" has the layout " + layout +
                                ", and this version of the library knows only 3");
    EXPECT_EQ(run(server.url(), all).text, before);
  }
  run(server.url(), {"HSET", "{app:0}:meta", "layout", "3"});
  EXPECT_EQ(names(*open_backend(url)), std::vector<std::string>{"a"});
}

// A later version that changes the layout of a store gives it another server as well, so that
// processes which have it open must open it again.
TEST(RedisStore, ALayoutThatChangesMeanwhileIsRefused) {
  RedisServer server;
  const auto backend = open_backend(url_of(server, kOneShard));
  run(server.url(), {"HSET", "{app:0}:meta", "layout", "4", "server", "4 of a later version"});
  ScheduleRequest refused = timer("a", kNeverUs);
  StoreFailure failure;
  EXPECT_FALSE(carry_out(*backend, refused, &failure, 1));
  EXPECT_EQ(failure.error, ENOTSUP);
  EXPECT_FALSE(failure.in_doubt);
  EXPECT_THAT(failure.message, HasSubstr("has the layout 4"));
  std::string message;
  EXPECT_EQ(backend->reopen(&message), ENOTSUP);
  EXPECT_THAT(message, HasSubstr("has the layout 4"));
}

TEST(RedisStore, TheReceiptIsThatOfTheServer) {
  RedisServer memory;
  EXPECT_EQ(open_backend(url_of(memory))->receipt().level, WFStoreReceipt::kMemory);
  RedisServer second({.arguments = {"--appendonly", "yes"}});
  EXPECT_EQ(open_backend(url_of(second))->receipt().level, WFStoreReceipt::kEverySecond);
  run(second.url(), {"CONFIG", "SET", "appendfsync", "always"});
  EXPECT_EQ(open_backend(url_of(second))->receipt().level, WFStoreReceipt::kFsync);
  run(second.url(), {"CONFIG", "SET", "appendfsync", "no"});
  EXPECT_EQ(open_backend(url_of(second))->receipt().level, WFStoreReceipt::kMemory);
  RedisServer silent({.arguments = {"--appendonly", "yes", "--rename-command", "CONFIG", ""}});
  EXPECT_EQ(open_backend(url_of(silent))->receipt().level, WFStoreReceipt::kUnknown);
}

TEST(RedisStore, OtherStoresHearOfWhatIsSoon) {
  RedisServer server;
  std::atomic<int> news{0};
  const auto one = open_backend(url_of(server), 1, [&news] { ++news; });
  const auto other = open_backend(url_of(server), 2);
  ASSERT_TRUE(eventually([&news] { return news == 1; }));  // it listens
  ask(*one, timer("its own", one->now_us() - kSecondUs));
  ask(*other, timer("late", other->now_us() + kHourUs));
  ask(*other, timer("soon", other->now_us() - kSecondUs));
  ASSERT_TRUE(eventually([&news] { return news == 2; }));
  ASSERT_EQ(ask(*one, claim_request(10)).claimed.size(), 2U);
  EXPECT_EQ(ask(*other, cancel_request("soon")).answers.at(0).verdict, WFStoreVerdict::kRunning);
  ASSERT_TRUE(eventually([&news] { return news == 3; }));
  // After a lost connection it listens again.
  run(server.url(), {"CLIENT", "KILL", "TYPE", "pubsub"});
  ASSERT_TRUE(eventually([&news, &one] {
    names(*one);
    return news == 4;
  }));
}

TEST(RedisStore, RunsTimersOfSeveralStores) {
  RedisServer server(durable());
  store_test::SeenRuns seen;
  const store_test::StorePtr one = store_test::open_store(url_of(server));
  const store_test::StorePtr other = store_test::open_store(url_of(server));
  ASSERT_EQ(one->handle("kind", seen.handler(*one)), 0);
  for (int i = 0; i < 50; i++) {
    const WFStoreResult result =
        (i % 2 == 0 ? one : other)->schedule({std::to_string(i), milliseconds(1), "kind", "text"});
    ASSERT_TRUE(result.ok()) << result.message;
    EXPECT_EQ(result.receipt.to_string(), "fsync");
  }
  ASSERT_TRUE(other->schedule({"cancelled", hours(1), "kind"}).ok());
  EXPECT_EQ(one->cancel("cancelled").verdict(), WFStoreVerdict::kWon);
  ASSERT_TRUE(seen.wait_for(50));
  ASSERT_TRUE(eventually([&other] { return other->count("").count == 0; }));
  EXPECT_EQ(seen.count(), 50U);
  for (const store_test::SeenRun& run : seen.all()) {
    EXPECT_EQ(run.payload, "text");
    EXPECT_GE(run.lateness.count(), 0);
  }
  EXPECT_EQ(other->cancel("7").verdict(), WFStoreVerdict::kDone);
}

TEST(RedisStore, AStoreGoesOnAfterARestartOfItsServer) {
  RedisServer server(durable());
  store_test::SeenRuns seen;
  const store_test::StorePtr store = store_test::open_store(url_of(server));
  ASSERT_EQ(store->handle("kind", seen.handler(*store)), 0);
  ASSERT_TRUE(store->schedule({"before", hours(1), "kind"}).ok());
  server.signal(SIGKILL);
  server.stop();
  EXPECT_FALSE(store->schedule({"meanwhile", hours(1), "kind"}).ok());
  server.start();
  ASSERT_TRUE(eventually([&store] { return store->reschedule("before", milliseconds(0)).ok(); }));
  ASSERT_TRUE(seen.wait_for(1));
  EXPECT_EQ(seen.at(0).name, "before");
}

}  // namespace
