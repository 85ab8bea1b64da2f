#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

#include "support/ExitKit.h"
#include "support/InChild.h"
#include "support/Loopback.h"
#include "util/Sanitizers.h"
#include "workflow/Executor.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"

// fork(2) while the library runs: threads stay with the parent, the rest of the process is copied.
// Here the child of the test is the parent that forks.

namespace {

// Destroyed in the child as in the parent.
WFHttpServer server([](WFHttpTask* task) { task->get_resp()->append_output_body("served"); });
Executor executor;
ExecQueue queue;

std::string url() {
  return "http://127.0.0.1:" + std::to_string(test_support::port_of(server)) + "/";
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

// Says whether all goes well when a child does what `in_the_child` does. That is told where the
// parent serves, and returns what the child ends with.
void fork_and_go_on(const std::function<int(const std::string&)>& in_the_child) {
  const std::string at = (server.start("127.0.0.1", 0), url());
  executor.init(1);
  queue.init();
  bool right = ask(at) && expire() && compute();
  static std::atomic<int> called{0};
  WFTaskFactory::create_timer_task("long", 3600, 0, [](WFTimerTask*) { called++; })->start();
  right = right && test_support::in_child([&] { return in_the_child(at); }) == 7;
  // Nothing of that has touched the parent.
  right = right && called == 0 && ask(at) && expire() && compute();
  right = right && WFTaskFactory::cancel_by_name("long") == 1 && expire();
  exit_kit::say(right ? "all is well" : "something went wrong");
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"exits", [] { fork_and_go_on([](const std::string&) { return 7; }); }},
    {"stops",
     [] {
       fork_and_go_on([](const std::string&) {
         server.stop();
         executor.deinit();
         return 7;
       });
     }},
    {"uses",
     [] {
       fork_and_go_on([](const std::string& at) {
         const bool fresh = WFTaskFactory::cancel_by_name("long") == 0;
         return fresh && expire() && compute() && ask(at) ? 7 : 1;
       });
     }},
};

// Sanitizers: the child neither has nor can find what only threads of the parent point to.
std::string play(const std::string& scenario) {
  return exit_kit::play(scenario, {"ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=die_after_fork=0"});
}

}  // namespace

TEST(Fork, AChildMayExit) {
  EXPECT_EQ(play("exits"), "all is well\n");
}

TEST(Fork, AChildMayEndWhatTheParentGoesOnUsing) {
  EXPECT_EQ(play("stops"), "all is well\n");
}

// ThreadSanitizer ends a process that starts threads after a fork with threads.
#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST(Fork, AChildThatUsesTheLibraryHasThreadsOfItsOwn) {
  EXPECT_EQ(play("uses"), "all is well\n");
}
#endif

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}
