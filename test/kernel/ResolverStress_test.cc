#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "kernel/Resolver.h"
#include "kernel/ResolverKit.h"
#include "kernel/ThreadContext.h"
#include "support/TestSeed.h"

using namespace test_support;
using workflow::HostAddresses;
using workflow::kNsPerMs;
using workflow::Resolver;
using workflow::ResolveRequest;
using workflow::Runtime;

namespace {

// Asks again and again, and counts how each of its requests ended.
class Repeated final : public ResolveRequest {
 public:
  bool waits() const { return waits_.load(std::memory_order_acquire); }

  void ask(Resolver& resolver, const std::string& host, int family) {
    asked_++;
    waits_.store(true, std::memory_order_relaxed);
    resolver.resolve(host, family, this);
  }
  void cancel(Resolver& resolver) {
    if (resolver.cancel(this)) {
      cancelled_++;
      end();
    }
  }
  void resolved(int error, HostAddresses addresses) override {
    if ((error == 0) != (addresses && !addresses->empty())) {
      wrong_++;
    }
    told_++;
    end();
  }

  size_t asked() const { return asked_; }
  size_t ended() const { return told_ + cancelled_; }
  size_t cancelled() const { return cancelled_; }
  size_t wrong() const { return wrong_; }

 private:
  void end() {
    if (!waits_.exchange(false, std::memory_order_acq_rel)) {
      wrong_++;  // it had ended before
    }
  }

  std::atomic<bool> waits_{false};
  std::atomic<size_t> asked_{0};
  std::atomic<size_t> told_{0};
  std::atomic<size_t> cancelled_{0};
  std::atomic<size_t> wrong_{0};
};

void set_names(FakeDnsServer& server) {
  using How = DnsReply::How;
  server.set("n0.test", {.v4 = {"192.0.2.1"}, .v6 = {"2001:db8::1"}});
  server.set("n1.test", {.v4 = {"192.0.2.1"}, .ttl_s = 0});
  server.set("n2.test", {.rcode = 2});
  server.set("n3.test", {.how = How::kDrop});
  server.set("n4.test", {.v4 = {"192.0.2.1"}, .how = How::kDropV6});
  server.set("n5.test", {.v4 = {"192.0.2.1"}, .only_tcp = true});
  server.set("n6.test", {.v4 = {"192.0.2.1"}, .how = How::kGarbage});
  server.set("n7.test", {.v4 = {"192.0.2.1"}, .how = How::kCutMessage});
  server.set("n8.test", test_support::kDnsA, {.rcode = 2});
  server.set("n8.test", test_support::kDnsAaaa, {});
  server.set("n9.test", test_support::kDnsA, {.v4 = {"192.0.2.1"}, .ttl_s = 0});
  server.set("n9.test", test_support::kDnsAaaa, {.rcode = 5});
}

constexpr size_t kThreads = 4;
constexpr size_t kRequests = 24;
using Requests = std::array<Repeated, kRequests>;

void ask_at_random(Resolver& resolver, Requests& requests, TestRandom random,
                   const std::atomic<bool>& over) {
  constexpr int kFamilies[] = {AF_UNSPEC, AF_INET, AF_INET6};
  while (!over.load(std::memory_order_relaxed)) {
    Repeated& request = requests[random.below(kRequests)];
    const std::string host = "n" + std::to_string(random.below(12)) + ".test";
    const int family = kFamilies[random.below(3)];
    if (!request.waits()) {
      request.ask(resolver, host, family);
    } else if (random.one_in(3)) {
      request.cancel(resolver);
    }
    if (random.one_in(20)) {
      resolver.forget(host, family);
    }
    if (random.one_in(50)) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

// Threads that ask for and cancel the same names and others, of servers that answer, fail and say
// nothing, while answers run out, and the runtime stops under them.
TEST(ResolverStress, EachRequestEndsOnce) {
  const uint64_t seed = test_seed();
  const int64_t rounds = test_support::env_number("WORKFLOW_TEST_ROUNDS", 100);
  FakeDnsServer server;
  set_names(server);
  TempDir files;
  size_t asked = 0;
  size_t cancelled = 0;
  for (int64_t round = 0; round < rounds; round++) {
    TestRandom random(seed, static_cast<uint64_t>(round) * 100);
    test_support::write_file(files.path("hosts"), "192.0.2.1 n11.test\n");
    const Resolver::Options options{.files = {.hosts_path = files.path("hosts"),
                                              .resolv_conf_path = files.path("resolv.conf"),
                                              .servers = {server.address()},
                                              .timeout_ms = static_cast<int>(random.between(1, 4)),
                                              .attempts = 2},
                                    .cache = {.max_names = random.below(12) + 1,
                                              .ttl_max_ns = random.between(0, 2) * kNsPerMs,
                                              .negative_ttl_ns = random.between(0, 2) * kNsPerMs,
                                              .stale_ns = random.between(0, 3) * kNsPerMs,
                                              .stale_retry_ns = kNsPerMs},
                                    .max_asking = random.below(6) + 1};
    Runtime runtime({.poller_threads = 2, .handler_threads = 2, .compute_threads = 1});
    ASSERT_TRUE(runtime.start());
    Resolver::configure(options);
    workflow::ThreadContext::current().runtime = &runtime;
    Resolver& resolver = runtime.part<Resolver>();
    std::array<Requests, kThreads> requests;
    std::atomic<bool> over{false};
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; i++) {
      threads.emplace_back([&, i] {
        ask_at_random(resolver, requests[i],
                      TestRandom(seed, static_cast<uint64_t>(round) * 100 + i + 1), over);
      });
    }
    // Any moment may be the one of the stop.
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 15'000)));
    runtime.stop();
    over = true;
    threads.clear();  // joins them
    workflow::ThreadContext::current().runtime = nullptr;
    for (const Requests& of_thread : requests) {
      for (const Repeated& request : of_thread) {
        ASSERT_EQ(request.asked(), request.ended()) << "round " << round;
        ASSERT_EQ(request.wrong(), 0U) << "round " << round;
        ASSERT_FALSE(request.waits()) << "round " << round;
        asked += request.asked();
        cancelled += request.cancelled();
      }
    }
  }
  std::printf("%zu asked, %zu cancelled\n", asked, cancelled);
  EXPECT_GT(asked, cancelled);
}
