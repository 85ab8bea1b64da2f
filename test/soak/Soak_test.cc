#include <gtest/gtest.h>
#include <signal.h>

#include <numeric>
#include <utility>
#include <vector>

#include "soak/Traffic.h"
#include "support/Descriptors.h"
#include "support/ResidentMemory.h"
#include "workflow/WFGlobal.h"

// Everything at once for a while: WORKFLOW_SOAK_SECONDS (script/soak). Afterwards nothing is lost
// and nothing is left.

namespace {

using soak::Ledger;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test_support::TestRandom;

constexpr int kUsers = 40;

class Soak : public testing::Test {
 protected:
  // Memory under load, in KiB, 20 times at equal intervals.
  struct Samples {
    std::vector<long> used;
    std::vector<long> resident;
  };

  // Traffic of all kinds for so long, until all of it has ended. Memory is looked at meanwhile.
  Samples run(milliseconds time, uint64_t phase) {
    std::atomic<bool> enough{false};
    for (uint64_t i = 0; i < kUsers; i++) {
      (new soak::User(ledger_, enough, plain_.port(), tls_.port(), random(phase, i)))->ask();
    }
    std::vector<std::jthread> threads;
    for (uint64_t i = 0; i < 3; i++) {
      threads.emplace_back([&, i] {
        soak::harass(ledger_, enough, plain_.port(), tls_.port(), random(phase, 100 + i));
      });
    }
    threads.emplace_back([&] { soak::churn(ledger_, enough, random(phase, 200)); });
    Samples samples;
    for (int i = 0; i < 20; i++) {
      std::this_thread::sleep_for(time / 20);
      samples.used.push_back(test_support::used_kib());
      samples.resident.push_back(test_support::resident_kib());
    }
    enough = true;
    threads.clear();  // joins them
    EXPECT_TRUE(server_test::eventually([&] { return ledger_.balanced(); }));
    // The last users end with their last callbacks; connections within their keep-alive time.
    EXPECT_TRUE(plain_.has_connections(0));
    EXPECT_TRUE(tls_.has_connections(0));
    return samples;
  }

  TestRandom random(uint64_t phase, uint64_t stream) const {
    return TestRandom(seed_, phase * 1000 + stream);
  }

  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);  // of the raw clients, which write by OpenSSL's own sockets
    ASSERT_EQ(SSL_CTX_load_verify_file(WFGlobal::get_ssl_client_ctx(), authority_.file().c_str()),
              1);
    ASSERT_TRUE(plain_.started() && tls_.started());
  }

  // In the second and in the last quarter.
  static std::pair<long, long> averages(const std::vector<long>& samples) {
    const auto average = [&](size_t from) {
      const auto begin = samples.begin() + static_cast<long>(from);
      return std::accumulate(begin, begin + 5, 0L) / 5;
    };
    return {average(5), average(15)};
  }

  const uint64_t seed_ = test_support::test_seed();
  Ledger ledger_;
  test_support::Authority authority_;
  const test_support::Certificate certificate_ = authority_.issue({"IP:127.0.0.1"});
  server_test::TestServer plain_{[this](WFHttpTask* task) { soak::serve(ledger_, task); }};
  server_test::TestServer tls_{[this](WFHttpTask* task) { soak::serve(ledger_, task); },
                               server_test::http_params(), &certificate_};
};

}  // namespace

TEST_F(Soak, LosesNothingAndLeavesNothing) {
  // Under a sanitizer, where the memory says nothing, it shows only that nothing is lost.
  const milliseconds time = seconds(test_support::env_number("WORKFLOW_SOAK_SECONDS", 4));
  run(time / 5, 1);
  const long before_kib = test_support::used_kib();
  const size_t descriptors = test_support::descriptor_count();
  const Samples samples = run(time * 4 / 5, 2);
  EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
  const long after_kib = test_support::used_kib();
  ledger_.print();
  const auto [used_early_kib, used_late_kib] = averages(samples.used);
  const auto [resident_early_kib, resident_late_kib] = averages(samples.resident);
  std::printf(
      "soak: %lld s; in use at rest %ld KiB after warm-up, %ld KiB at the end; in the second and "
      "last quarter of the load in use %ld and %ld KiB, resident %ld and %ld KiB; descriptors %zu, "
      "then %zu\n",
      static_cast<long long>(time.count() / 1000), before_kib, after_kib, used_early_kib,
      used_late_kib, resident_early_kib, resident_late_kib, descriptors,
      test_support::descriptor_count());
  EXPECT_TRUE(ledger_.balanced());
  EXPECT_EQ(ledger_.wrong, 0);
  EXPECT_GT(ledger_.succeeded, 100);
  EXPECT_GT(ledger_.cancels, 100);
  EXPECT_TRUE(test_support::is_flat(before_kib, after_kib, 1024));
  EXPECT_TRUE(test_support::is_flat(used_early_kib, used_late_kib));
  // Fragmentation comes to rest after about a minute.
  if (time >= minutes(2)) {
    EXPECT_TRUE(test_support::is_flat(resident_early_kib, resident_late_kib));
  }
}
