#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "RedisStoreKit.h"
#include "support/RedisServer.h"

namespace store_test {
namespace {

using redis_test::RedisServer;
using redis_test::run;

constexpr uint64_t kSession = 7;

// What layout 2 kept of two remembered requests: each has a place in `order`.
constexpr const char* kRequestsOfLayout2 = R"lua(
local session = '0000000000000007'
for place = 1, 2 do
  local number = string.format('%020d', place)
  redis.call('HSET', '{app:0}:order', session .. place, number)
  redis.call('HSET', '{app:0}:answers', session .. number,
             cmsgpack.pack('schedule', '', string.format('%019d', place), 0))
end
redis.call('HSET', '{app:0}:sessions', session, cmsgpack.pack(2, 2, ''))
redis.call('ZADD', '{app:0}:used', 1, session)
return redis.call('HSET', '{app:0}:meta', 'layout', '2')
)lua";

std::unique_ptr<workflow::StoreBackend> open_store(const RedisServer& server) {
  workflow::StoreBackendOptions options;
  options.session = kSession;
  options.remembered = 2;
  std::string why;
  auto backend = try_to_open(url_of(server, "&namespace=app&shards=1"), options, &why);
  EXPECT_NE(backend, nullptr) << why;
  return backend;
}

workflow::StoreRequest execute(workflow::StoreBackend& backend, workflow::StoreRequest request) {
  workflow::StoreRequest* const requests[] = {&request};
  EXPECT_TRUE(backend.execute(requests)) << request.failure.message;
  return request;
}

workflow::AskRequest ask_for(workflow::StoreBackend& backend, uint64_t number, int* error) {
  workflow::StoreRequest request;
  request.what = workflow::AskRequest{.asked = {kSession, number}};
  request = execute(backend, std::move(request));
  *error = request.failure.error;
  return std::get<workflow::AskRequest>(request.what);
}

TEST(RedisStoreLayout, RequestsOfLayout2AreRememberedAndForgottenInTheirOrder) {
  RedisServer server;
  ASSERT_TRUE(open_store(server));
  run(server.url(), {"EVAL", kRequestsOfLayout2, "0"});
  const auto backend = open_store(server);
  EXPECT_EQ(run(server.url(), {"HGET", "{app:0}:meta", "layout"}).text, "3");

  int error = 0;
  EXPECT_TRUE(ask_for(*backend, 1, &error).found);
  EXPECT_EQ(ask_for(*backend, 2, &error).result.timer, 2U);

  // A third one is remembered in the place of the first.
  workflow::StoreRequest third;
  third.id = {kSession, 3};
  third.what = timer("new", workflow::kNeverUs);
  EXPECT_EQ(execute(*backend, third).failure.error, 0);
  EXPECT_FALSE(ask_for(*backend, 1, &error).found);
  EXPECT_EQ(error, ENODATA);
  EXPECT_TRUE(ask_for(*backend, 2, &error).found);
  EXPECT_TRUE(ask_for(*backend, 3, &error).found);
}

// What is remembered by one call has one place, of which a part may have to be forgotten.
TEST(RedisStoreLayout, APartOfWhatOneCallHasRememberedIsForgotten) {
  RedisServer server;
  const auto backend = open_store(server);
  std::vector<workflow::StoreRequest> schedules(5);
  std::vector<workflow::StoreRequest*> requests;
  for (uint64_t i = 0; i < schedules.size(); i++) {
    schedules[i].id = {kSession, i + 1};
    schedules[i].what = timer("a", workflow::kNeverUs);
    requests.push_back(&schedules[i]);
  }
  const std::span<workflow::StoreRequest* const> all(requests);
  EXPECT_TRUE(backend->execute(all.first(2)));
  EXPECT_TRUE(backend->execute(all.subspan(2, 1)));
  int error = 0;
  EXPECT_FALSE(ask_for(*backend, 1, &error).found);
  EXPECT_EQ(error, ENODATA);
  EXPECT_TRUE(ask_for(*backend, 2, &error).found);
  EXPECT_TRUE(ask_for(*backend, 3, &error).found);
  EXPECT_TRUE(backend->execute(all.subspan(3)));
  EXPECT_FALSE(ask_for(*backend, 3, &error).found);
  EXPECT_TRUE(ask_for(*backend, 5, &error).found);
  EXPECT_EQ(run(server.url(), {"HLEN", "{app:0}:answers"}).text, "2");
}

}  // namespace
}  // namespace store_test
