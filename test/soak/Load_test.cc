#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "soak/LoadClients.h"
#include "support/ResidentMemory.h"
#include "support/Sanitizers.h"
#include "support/TestSeed.h"
#include "support/TestServer.h"

// 10,000 idle connections, 1000 slow ones and 200 active clients at once, from another process: the
// active ones are answered soon. script/load measures it for longer.

namespace {

using soak::LoadPlan;
using soak::LoadResult;

constexpr int64_t kBoundUs = test_support::kSanitized ? 1'000'000 : 500'000;

// As many descriptors as this process may have.
int raise_descriptor_limit() {
  struct rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1'000'000));
}

// The clients' process. Forked before the library has threads.
class ClientProcess {
 public:
  ClientProcess() {
    int plan_ends[2];
    int result_ends[2];
    if (::pipe(plan_ends) != 0 || ::pipe(result_ends) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      LoadPlan plan = {};
      if (::read(plan_ends[0], &plan, sizeof plan) == sizeof plan) {
        const LoadResult result = soak::LoadClients(plan).run();
        ::_exit(::write(result_ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
      }
      ::_exit(1);
    }
    ::close(plan_ends[0]);
    ::close(result_ends[1]);
    plan_ = workflow::UniqueFd(plan_ends[1]);
    result_ = workflow::UniqueFd(result_ends[0]);
  }
  ~ClientProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  bool begin(const LoadPlan& plan) {
    return ::write(plan_.get(), &plan, sizeof plan) == sizeof plan;
  }
  // Waits for the end.
  bool result(LoadResult* result) {
    return ::read(result_.get(), result, sizeof *result) == sizeof *result;
  }

 private:
  pid_t pid_ = -1;
  workflow::UniqueFd plan_;
  workflow::UniqueFd result_;
};

int number(const char* name, int fallback) {
  return static_cast<int>(test_support::env_number(name, fallback));
}

}  // namespace

TEST(LoadLateness, ActiveClientsAreAnsweredSoonAmongIdleAndSlowOnes) {
  const int descriptors = raise_descriptor_limit();
  ClientProcess clients;
  constexpr int kScale = test_support::kSanitized ? 10 : 1;
  LoadPlan plan = {};
  plan.slow = number("WORKFLOW_LOAD_SLOW", 1000 / kScale);
  plan.active = number("WORKFLOW_LOAD_ACTIVE", 200 / kScale);
  // With few descriptors the claim can be tested only for fewer.
  plan.idle = std::min(number("WORKFLOW_LOAD_IDLE", 10'000 / kScale),
                       descriptors - 200 - plan.slow - plan.active);
  plan.seconds = number("WORKFLOW_LOAD_SECONDS", 3);
  const int all = plan.idle + plan.slow + plan.active;

  struct WFServerParams params = server_test::http_params();
  params.max_connections = static_cast<size_t>(all) + 100;
  params.keep_alive_timeout = (plan.seconds + 60) * 1000;
  params.header_timeout = 60'000;  // thousands connect before the first of them asks
  server_test::TestServer server(
      [](WFHttpTask* task) {
        static const std::string large(1'000'000, 'L');
        const bool is_large = std::string_view(task->get_req()->get_request_uri()) == "/large";
        is_large ? task->get_resp()->append_output_body_nocopy(large)
                 : task->get_resp()->append_output_body_nocopy("hello");
      },
      params);
  ASSERT_TRUE(server.serves());
  const long before_kib = test_support::settled_kib();
  plan.port = server.port();
  ASSERT_TRUE(clients.begin(plan));
  ASSERT_TRUE(server.has_connections(static_cast<size_t>(all)));
  // All have come; some of what they ask is under way.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const long held_kib = test_support::resident_kib();
  LoadResult got;
  ASSERT_TRUE(clients.result(&got));
  std::printf(
      "load: %d idle, %d slow, %d active, %d s: %lld replies (%lld/s), p50 %lld us, p99 %lld us, "
      "longest %lld us, %lld us from when large replies were asked for; the server has %ld KiB "
      "more for %d connections\n",
      plan.idle, plan.slow, plan.active, plan.seconds, static_cast<long long>(got.replies),
      static_cast<long long>(got.replies / plan.seconds), static_cast<long long>(got.p50_us),
      static_cast<long long>(got.p99_us), static_cast<long long>(got.longest_us),
      static_cast<long long>(got.longest_beside_large_us), held_kib - before_kib, all);
  EXPECT_EQ(got.connected, all);
  EXPECT_EQ(got.idle_answered, plan.idle);
  EXPECT_EQ(got.slow_alive, plan.slow);
  EXPECT_EQ(got.lost, 0);
  EXPECT_GT(got.slow_bytes, plan.slow);
  EXPECT_GT(got.replies, plan.active);
  // One pause of the machine delays all active clients, which in a short run are more than 1 %.
  EXPECT_LE(plan.seconds >= 30 ? got.p99_us : got.p50_us, kBoundUs);
  EXPECT_TRUE(server.has_connections(0));
}
