#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>

#include "support/ChildProcess.h"
#include "util/Sanitizers.h"
#include "workflow/Executor.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

// fork(2) while the library runs: threads stay with the parent, the rest of the process is copied.
// Each test runs this program again, as the parent that forks.

namespace {

constexpr const char* kScenarioVariable = "WORKFLOW_FORK_SCENARIO";

// Destroyed in the child as in the parent.
WFHttpServer server([](WFHttpTask* task) { task->get_resp()->append_output_body("served"); });
Executor executor;
ExecQueue queue;

std::string url() {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  return "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
}

bool ask(const std::string& url) {
  WFFacilities::WaitGroup done(1);
  bool served = false;
  WFTaskFactory::create_http_task(url, 0, 0, [&](WFHttpTask* task) {
    const void* body = nullptr;
    size_t size = 0;
    served = task->get_state() == WFT_STATE_SUCCESS &&
             task->get_resp()->get_parsed_body(&body, &size) &&
             std::string(static_cast<const char*>(body), size) == "served";
    done.done();
  })->start();
  done.wait();
  return served;
}

bool expire() {
  WFFacilities::WaitGroup done(1);
  bool expired = false;
  WFTaskFactory::create_timer_task("name", 0, 1'000'000, [&](WFTimerTask* task) {
    expired = task->get_state() == WFT_STATE_SUCCESS;
    done.done();
  })->start();
  done.wait();
  return expired;
}

bool compute() {
  WFFacilities::WaitGroup done(1);
  WFTaskFactory::create_go_task("queue", [&done] { done.done(); })->start();
  done.wait();
  return true;
}

// What the child ends with; -1 if it had to be killed.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The exit code of the program.
int play(const std::string& scenario) {
  const std::string at = (server.start("127.0.0.1", 0), url());
  executor.init(1);
  queue.init();
  bool right = ask(at) && expire() && compute();
  static std::atomic<int> called{0};
  WFTaskFactory::create_timer_task("long", 3600, 0, [](WFTimerTask*) { called++; })->start();
  if (scenario == "exits") {
    right = right && in_child([] { return 7; }) == 7;
  } else if (scenario == "stops") {
    right = right && in_child([] {
                       server.stop();
                       executor.deinit();
                       return 7;
                     }) == 7;
  } else {
    right = right && in_child([&] {
                       const bool fresh = WFTaskFactory::cancel_by_name("long") == 0;
                       return fresh && expire() && compute() && ask(at) ? 7 : 1;
                     }) == 7;
  }
  // Nothing of that has touched the parent.
  right = right && called == 0 && ask(at) && expire() && compute();
  right = right && WFTaskFactory::cancel_by_name("long") == 1 && expire();
  return right ? 0 : 1;
}

// Sanitizers: the child neither has nor can find what only threads of the parent point to.
int run(const std::string& scenario) {
  return test_support::run_self({kScenarioVariable + ("=" + scenario),
                                 "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=die_after_fork=0"},
                                std::chrono::seconds(200))
      .exit_code;
}

}  // namespace

TEST(Fork, AChildMayExit) {
  EXPECT_EQ(run("exits"), 0);
}

TEST(Fork, AChildMayEndWhatTheParentGoesOnUsing) {
  EXPECT_EQ(run("stops"), 0);
}

// ThreadSanitizer ends a process that starts threads after a fork with threads.
#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST(Fork, AChildThatUsesTheLibraryHasThreadsOfItsOwn) {
  EXPECT_EQ(run("uses"), 0);
}
#endif

int main(int argc, char** argv) {
  if (const char* scenario = std::getenv(kScenarioVariable)) {
    return play(scenario);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
