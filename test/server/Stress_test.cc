#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/Loopback.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"

// Everything at once, from a printed seed: pipelining, resets, delays, cancels, starts and stops.

namespace server_test {
namespace {

using test_support::TestRandom;

constexpr int kThreads = 4;

// "/?ms=N" waits N ms, "/kK?ms=N" does so under the name kK. Some requests do odd things.
void serve(WFHttpTask* task) {
  const std::string uri = task->get_req()->get_request_uri();
  const std::string path = uri.substr(1, uri.find('?') - 1);
  if (path == "noreply") {
    task->noreply();
  } else if (path == "cancel") {
    series_of(task)->cancel();
  } else if (path == "close") {
    task->set_keep_alive(0);
  } else if (path == "large") {
    static const std::string large(300'000, 'L');
    task->get_resp()->append_output_body_nocopy(large);
    return;
  } else if (!path.empty()) {
    WFTaskFactory::cancel_by_name(path, 2);
    series_of(task)->push_back(WFTaskFactory::create_timer_task(
        path, 0, static_cast<long>(delay_ms(task)) * 1'000'000, nullptr));
  } else if (const unsigned ms = delay_ms(task)) {
    series_of(task)->push_back(WFTaskFactory::create_timer_task(ms * 1000, nullptr));
  }
  task->get_resp()->append_output_body(uri);
}

// A request for `serve`; the body that its reply must have, "" for one that ends the connection.
std::string random_request(TestRandom& random, std::string& expected) {
  const uint64_t kind = random.below(40);
  std::string path = "/";
  if (kind < 3) {
    static const char* const kOdd[] = {"/noreply", "/cancel", "/close"};
    path = kOdd[kind];
    expected = kind == 2 ? path : "";
  } else if (kind < 6) {
    path = "/large";
    expected = std::string(300'000, 'L');
  } else {
    if (kind < 16) {
      path += "k" + std::to_string(random.below(5));
    }
    path += "?ms=" + std::to_string(kind < 20 ? random.below(4) : 0);
    expected = path;
  }
  return random.one_in(2) ? get(path) : post(path, std::string(random.below(3000), 'b'));
}

// One client's life. Returns what was wrong, if anything.
std::string live(uint16_t port, TestRandom& random) {
  RawClient client(port, random.one_in(4) ? 4096 : 0);
  if (!client.connected()) return "cannot connect";
  const uint64_t rounds = 1 + random.below(6);
  for (uint64_t round = 0; round < rounds; round++) {
    std::vector<std::string> expected(1 + random.below(8));
    std::string requests;
    for (std::string& each : expected) {
      requests += random_request(random, each);
    }
    if (random.one_in(10)) {
      requests.resize(random.below(requests.size()));
      client.send(requests);
      random.one_in(2) ? client.reset() : client.close();
      return "";
    }
    client.send(requests);
    if (random.one_in(15)) {
      client.reset();
      return "";
    }
    for (const std::string& each : expected) {
      if (each.empty()) return client.ended() ? "" : "a connection went on that must end";
      const auto got = client.reply();
      if (!got) return "no reply to " + each.substr(0, 40);
      if (got->body != each) {
        return "a wrong reply to " + each.substr(0, 40) + ": " + got->body.substr(0, 40);
      }
      if (each == "/close") return client.ended() ? "" : "a connection stayed that must close";
    }
  }
  return "";
}

// Connects and sends whatever it may until it has to end. Whether it is served does not matter. The
// test keeps the port, so that no server of another test gets it, and all this, between two rounds.
void harass(uint16_t port, const std::atomic<bool>& enough, TestRandom random) {
  while (!enough) {
    RawClient client(port);
    for (uint64_t i = random.below(4); i > 0 && client.connected(); i--) {
      std::string expected;
      client.send(random_request(random, expected));
      if (random.one_in(2) && !client.reply()) break;
    }
    if (client.connected() && random.one_in(3)) {
      client.reset();
    }
  }
}

}  // namespace

TEST(Stress, ManyClientsDoAllKindsOfThings) {
  const uint64_t seed = test_support::test_seed();
  const int64_t lives =
      test_support::env_number("WORKFLOW_TEST_ROUNDS", test_support::kSanitized ? 150 : 300);
  TestServer server(serve);
  std::vector<std::string> problems(kThreads);
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      TestRandom random(seed, t);
      for (int64_t i = 0; i < lives && problems[t].empty(); i++) {
        problems[t] = live(server.port(), random);
      }
    });
  }
  threads.clear();  // joins them
  for (const std::string& problem : problems) {
    EXPECT_EQ(problem, "");
  }
  EXPECT_TRUE(server.has_connections(0));
  EXPECT_TRUE(server.serves());
}

TEST(Stress, StopWhileClientsSendFuriously) {
  const uint64_t seed = test_support::test_seed();
  const int64_t rounds =
      test_support::env_number("WORKFLOW_TEST_ROUNDS", test_support::kSanitized ? 200 : 500);
  struct WFServerParams params = http_params();
  params.linger_timeout = 5;  // a client that stays must not hold up each round for 2 s
  const workflow::UniqueFd kept = test_support::keep_port();
  const uint16_t port = test_support::port_of(kept.get());
  std::atomic<bool> enough{false};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] { harass(port, enough, TestRandom(seed, 1 + t)); });
  }
  TestRandom random(seed);
  int requests = 0;
  for (int64_t round = 0; round < rounds; round++) {
    TestServer server(serve, params, nullptr, -1, port);
    ASSERT_TRUE(server.started());
    if (random.one_in(2)) {
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(1500)));
    }
    server->stop();
    ASSERT_EQ(server->get_conn_count(), 0u);
    requests += server.requests();
  }
  enough = true;
  threads.clear();  // joins them
  std::printf("%d requests in %lld rounds\n", requests, static_cast<long long>(rounds));
  EXPECT_GT(requests, 0);
}

TEST(Stress, OneServerStartsAndStopsManyTimes) {
  const uint64_t seed = test_support::test_seed();
  struct WFServerParams params = http_params();
  params.linger_timeout = 5;
  const workflow::UniqueFd kept = test_support::keep_port();
  const uint16_t port = test_support::port_of(kept.get());
  std::atomic<bool> enough{false};
  WFHttpServer server(&params, serve);
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 2; t++) {
    threads.emplace_back([&, t] { harass(port, enough, TestRandom(seed, 10 + t)); });
  }
  TestRandom random(seed, 2);
  for (int round = 0; round < (test_support::kSanitized ? 50 : 250); round++) {
    ASSERT_EQ(server.start("127.0.0.1", port), 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(1000)));
    server.shutdown();
    server.stop();
    ASSERT_EQ(server.get_conn_count(), 0u);
  }
  enough = true;
  threads.clear();  // joins them
}

}  // namespace server_test
