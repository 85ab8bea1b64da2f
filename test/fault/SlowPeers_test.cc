#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "fault/Slowness.h"
#include "support/CpuTime.h"
#include "support/Descriptors.h"
#include "support/TestServer.h"
#include "support/TlsClient.h"
#include "workflow/WFGlobal.h"

// Peers that are stopped or never read, and callbacks that block: the others are served throughout.

namespace {

using fault::kLargeSize;
using fault::kSlow;
using namespace server_test;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSendTimeout{1500};
// Far more than it takes, and less than the time that the slow ones are slow while others ask, 4 s.
constexpr milliseconds kLatencyBound{3000};

// A process that requests "/large" once it gets a port, and reads all of the reply.
class Child {
 public:
  // Before the process has any other thread.
  Child() {
    int ends[2];
    if (::pipe(ends) == 0) {
      pid_ = ::fork();
      if (pid_ == 0) {
        ::close(ends[1]);
        ::_exit(live(ends[0]));
      }
      ::close(ends[0]);
      port_ = workflow::UniqueFd(ends[1]);
    }
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  bool begin(uint16_t port) { return ::write(port_.get(), &port, sizeof port) == sizeof port; }
  void signal(int number) {
    if (pid_ > 0) {
      ::kill(pid_, number);
    }
  }
  // Whether it has got everything.
  bool succeeded() {
    int status = -1;
    if (pid_ > 0) {
      ::waitpid(pid_, &status, 0);
    }
    pid_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  static int live(int port_end) {
    uint16_t port = 0;
    if (::read(port_end, &port, sizeof port) != sizeof port) return 1;
    RawClient client(port, 4096);
    if (!client.send(get("/large"))) return 2;
    size_t total = 0;
    while (const size_t n = client.take(1000)) {
      total += n;
      if (total > kLargeSize) return 0;
    }
    return 3;
  }

  pid_t pid_ = -1;
  workflow::UniqueFd port_;
};

struct Server {
  std::atomic<int> cut{0};
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<int> errors{0};

  void serve(WFHttpTask* task) {
    static const std::string large(kLargeSize, 'L');
    const std::string target = task->get_req()->get_request_uri();
    begun++;
    task->set_callback([this](WFHttpTask* done) {
      ended++;
      if (done->get_state() == WFT_STATE_SYS_ERROR && done->get_error() == ETIMEDOUT) {
        cut++;
      }
    });
    if (target == "/large" || target == "/never") {
      task->get_resp()->append_output_body_nocopy(large);
      if (target == "/never") {
        task->set_send_timeout(static_cast<int>(kSendTimeout.count()));
      }
    } else if (target == "/block") {
      std::this_thread::sleep_for(kSlow);  // user code that blocks
    }
  }
};

// Sends requests again and again until it has to end. Returns the longest time that it has waited.
template <class Ask>
milliseconds longest_wait(const std::atomic<bool>& enough, std::atomic<int>& asked,
                          std::atomic<int>& failed, Ask ask) {
  milliseconds longest{0};
  while (!enough) {
    const auto start = steady_clock::now();
    (ask() ? asked : failed)++;
    longest =
        std::max(longest, std::chrono::duration_cast<milliseconds>(steady_clock::now() - start));
    std::this_thread::sleep_for(milliseconds(2));  // a client that thinks
  }
  return longest;
}

// Others ask plain and TLS servers, on kept and on new connections, for that long.
void expect_others_served(const TestServer& plain, const TestServer& tls, milliseconds time) {
  std::atomic<bool> enough{false};
  std::atomic<int> asked{0};
  std::atomic<int> failed{0};
  std::vector<milliseconds> waits(6);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < waits.size(); i++) {
    threads.emplace_back([&, i] {
      RawClient kept = plain.client();
      TlsClient kept_tls(tls.port(), {});
      waits[i] = longest_wait(enough, asked, failed, [&] {
        switch (i % 3) {
          case 0:
            return kept.ask(get("/")).has_value();
          case 1:
            return plain.client().ask(get("/")).has_value();
          default:
            return kept_tls.send(get("/")) && kept_tls.body().empty();
        }
      });
    });
  }
  std::this_thread::sleep_for(time);
  enough = true;
  threads.clear();  // joins them
  const milliseconds longest = *std::max_element(waits.begin(), waits.end());
  std::printf("%d requests, the longest took %lld ms\n", asked.load(),
              static_cast<long long>(longest.count()));
  EXPECT_EQ(failed, 0);
  EXPECT_GT(asked, 100);
  EXPECT_LT(longest, kLatencyBound);
}

}  // namespace

TEST(SlowPeers, OthersAreServedMeanwhile) {
  Child child;
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.poller_threads = 2;
  settings.handler_threads = 2;
  WORKFLOW_library_init(&settings);
  test_support::Authority authority;
  const test_support::Certificate certificate = authority.issue({"IP:127.0.0.1"});
  Server behind;
  const auto process = [&](WFHttpTask* task) { behind.serve(task); };
  TestServer plain(process);
  TestServer tls(process, server_test::http_params(), &certificate);
  ASSERT_TRUE(TlsClient(tls.port(), {}).connected() && plain.serves());
  const size_t descriptors = test_support::descriptor_count();
  {
    // One that is stopped in the middle of a reply, some that never read theirs, over TLS, too, and
    // some whose callbacks block, more than there are handlers.
    ASSERT_TRUE(child.begin(plain.port()));
    RawClient never = plain.client();
    ASSERT_TRUE(never.send(get("/never")));
    TlsClient never_tls(tls.port(), {});
    ASSERT_TRUE(never_tls.send(get("/never")));
    std::vector<RawClient> blocking;
    for (int i = 0; i < 3; i++) {
      blocking.push_back(plain.client());
      ASSERT_TRUE(blocking.back().send(get("/block")));
    }
    std::this_thread::sleep_for(milliseconds(20));  // so that it has begun, or it stops earlier
    child.signal(SIGSTOP);
    const auto stopped_at = steady_clock::now();
    // Nobody else asks for a second, and nothing spins: the claim is about real time.
    std::this_thread::sleep_for(milliseconds(200));
    const int64_t before_us = test_support::cpu_us();
    std::this_thread::sleep_for(milliseconds(800));
    EXPECT_LE(test_support::cpu_us() - before_us, 200'000);
    expect_others_served(plain, tls, milliseconds(3500));
    EXPECT_TRUE(server_test::eventually([&] { return behind.cut == 2; }));
    std::this_thread::sleep_until(stopped_at + kSlow);  // no less than promised
    child.signal(SIGCONT);
    EXPECT_TRUE(child.succeeded());
    for (RawClient& client : blocking) {
      EXPECT_EQ(client.status(), 200);
    }
  }
  EXPECT_TRUE(plain.has_connections(0));
  EXPECT_TRUE(tls.has_connections(0));
  EXPECT_TRUE(server_test::eventually([&] { return behind.ended == behind.begun; }));
  EXPECT_TRUE(test_support::descriptors_return_to(descriptors));
}
