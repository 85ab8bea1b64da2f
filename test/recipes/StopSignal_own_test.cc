#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "recipes/Recipes.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// A program of its own: the first thing that it does is to block the signals.

namespace recipes_test {
namespace {

// Recipe
int serve_until_signal(WFHttpServer& server, unsigned short port) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // Threads that start from now on inherit this.

  if (server.start("127.0.0.1", port) != 0) {
    std::perror("cannot start the server");
    return 1;
  }
  int number = 0;
  sigwait(&signals, &number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // A second signal ends the process at once.

  const WFStopResult stopped = server.stop(/*timeout=*/10 * 1000, WF_STOP_ANSWER);
  std::printf("stopped, %zu replies were cut short\n", stopped.cut_short);
  return 0;
}
// End of recipe

void process(WFHttpTask* task) {
  task->get_resp()->append_output_body("reply");
  series_of(task)->push_back(
      WFTaskFactory::create_timer_task("reply", std::chrono::hours(1), nullptr));
}

// Blocks the signals for the thread that makes it, so that the process never has one that takes
// them but the one in sigwait().
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

bool listens(const WFHttpServer& server) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  return server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length) == 0;
}

TEST(StopSignalRecipe, DelayedRepliesAreSentBeforeTheEnd) {
  block_signals();
  ASSERT_TRUE(clock_stands());
  WFHttpServer server(process);
  std::thread operations([&server] {
    ASSERT_TRUE(eventually([&server] { return listens(server); }));
    const std::string url = url_of(server);
    Answer answer;
    std::thread client([&answer, url] { answer = ask(url); });
    EXPECT_TRUE(eventually([] { return WFTimer::count("reply") == 1; }));
    ::kill(::getpid(), SIGTERM);
    EXPECT_TRUE(eventually([&server] { return !listens(server); }));
    EXPECT_EQ(WFTaskFactory::cancel_by_name("reply"), 1);
    client.join();
    EXPECT_EQ(answer.body, "reply");
  });
  EXPECT_EQ(serve_until_signal(server, 0), 0);
  operations.join();
}

TEST(StopSignalRecipe, SaysThatItCannotStart) {
  block_signals();
  ASSERT_TRUE(clock_stands());
  WFHttpServer other(process);
  ASSERT_EQ(other.start("127.0.0.1", 0), 0);
  const std::string url = url_of(other);
  const int port = std::stoi(url.substr(url.rfind(':') + 1));
  WFHttpServer server(process);
  EXPECT_EQ(serve_until_signal(server, static_cast<unsigned short>(port)), 1);
}

}  // namespace
}  // namespace recipes_test
