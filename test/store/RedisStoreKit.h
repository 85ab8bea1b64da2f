#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/StoreBackend.h"
#include "support/Eventually.h"
#include "support/RedisServer.h"
#include "support/StoreUnits.h"
#include "workflow/WFTimerStore.h"

// What tests of stores in a Redis have in common: a backend that is asked one thing after the
// other.

namespace store_test {

// Between the numbers and fences of one epoch and the next.
inline constexpr uint64_t kEpoch = uint64_t{1} << 30;

// Opens a store; null with what went wrong.
inline std::unique_ptr<workflow::StoreBackend> try_to_open(
    const std::string& url, const workflow::StoreBackendOptions& options, std::string* why) {
  int error = 0;
  std::string message;
  auto backend = workflow::open_redis_backend(url, options, &error, &message);
  *why = std::to_string(error) + " " + message;
  return backend;
}
inline std::unique_ptr<workflow::StoreBackend> open_backend(
    const std::string& url, uint64_t session = 1, std::function<void()> changed = nullptr) {
  workflow::StoreBackendOptions options;
  options.session = session;
  options.changed = std::move(changed);
  std::string why;
  std::unique_ptr<workflow::StoreBackend> backend;
  // A server that was silent for a moment may have been replaced meanwhile: EAGAIN.
  test_support::eventually([&] {
    backend = try_to_open(url, options, &why);
    return backend || why.find(std::to_string(EAGAIN) + " ") != 0;
  });
  EXPECT_NE(backend, nullptr) << why;
  return backend;
}
inline std::string why_not(const std::string& url, bool create = true) {
  workflow::StoreBackendOptions options;
  options.session = 1;
  options.create = create;
  std::string why;
  return try_to_open(url, options, &why) ? "open" : why;
}

// Carries out one request. Returns what execute() has returned.
template <class WHAT>
bool carry_out(workflow::StoreBackend& backend, WHAT& what, workflow::StoreFailure* failure,
               uint64_t id = 0) {
  workflow::StoreRequest request;
  request.what = what;
  request.id = {id == 0 ? 0U : 1U, id};
  workflow::StoreRequest* const requests[] = {&request};
  const bool works = backend.execute(requests);
  what = std::get<WHAT>(request.what);
  *failure = request.failure;
  return works;
}
// Carries out a request that must succeed.
template <class WHAT>
WHAT ask(workflow::StoreBackend& backend, WHAT what, uint64_t id = 0) {
  workflow::StoreFailure failure;
  EXPECT_TRUE(carry_out(backend, what, &failure, id)) << failure.message;
  EXPECT_EQ(failure.error, 0) << failure.message;
  return what;
}
// Carries out a request of session 1 until the receipt of its answer is that one. A master may take
// a second to hear that its replica is in sync, and a busy machine takes longer. A repeat under the
// same id gets the answer of the first time.
template <class WHAT>
WHAT ask_until(workflow::StoreBackend& backend, const WHAT& what, uint64_t id,
               const std::string& receipt) {
  WHAT answered;
  EXPECT_TRUE(test_support::eventually([&] {
    answered = ask(backend, what, id);
    return backend.receipt().to_string() == receipt;
  })) << backend.receipt().to_string();
  return answered;
}
// The same for a store, and any id.
inline WFStoreResult schedule_until(WFTimerStore& store, WFStoreTimer timer, WFStoreRequestId id,
                                    const std::string& receipt) {
  timer.request = id;
  WFStoreResult result;
  EXPECT_TRUE(test_support::eventually([&] {
    result = store.schedule(timer);
    return result.ok() && result.receipt.to_string() == receipt;
  })) << result.message
      << result.receipt.to_string();
  return result;
}

inline workflow::ScheduleRequest timer(const std::string& name, int64_t due_us) {
  workflow::ScheduleRequest request;
  request.spec = {name, "kind", "payload of " + name, "", -1};
  request.due_us = due_us;
  return request;
}
inline workflow::ClaimRequest claim_request(size_t max) {
  workflow::ClaimRequest request;
  request.kinds = {{"kind", max, max}};
  request.owner = "worker";
  request.lease_us = kHourUs;
  request.fresh_us = 1'000'000;
  return request;
}
inline workflow::CancelRequest cancel_request(const std::string& name) {
  workflow::CancelRequest request;
  request.name = name;
  return request;
}
inline std::vector<std::string> names(workflow::StoreBackend& backend) {
  workflow::ListRequest list;
  list.max = 10000;
  std::vector<std::string> names;
  for (const WFStoreInfo& info : ask(backend, list).timers) {
    names.push_back(info.name);
  }
  return names;
}

inline bool reopens(workflow::StoreBackend& backend) {
  return test_support::eventually([&backend] {
    std::string message;
    return backend.reopen(&message) == 0;
  });
}

inline constexpr const char* kOneShard = "&namespace=app&shards=1";

inline std::string url_of(const redis_test::RedisServer& server,
                          const std::string& more = "&namespace=app&shards=3") {
  return server.url() + more;
}

inline redis_test::RedisServer::Options durable() {
  return {.arguments = {"--appendonly", "yes", "--appendfsync", "always"}};
}

}  // namespace store_test
