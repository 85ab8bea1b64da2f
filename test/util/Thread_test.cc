#include "util/Thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>

namespace workflow {
namespace {

sigset_t blocked_in_new_thread() {
  sigset_t blocked;
  sigemptyset(&blocked);
  Thread thread;
  EXPECT_TRUE(thread.start(
      "signals", [&blocked] { EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &blocked), 0); }));
  thread.join();
  return blocked;
}

}  // namespace

TEST(Thread, BlocksSignalsThatAreSentToTheProcess) {
  const sigset_t blocked = blocked_in_new_thread();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGCHLD, SIGALRM, SIGUSR1}) {
    EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
  }
}

TEST(Thread, LeavesTheSignalsOfItsOwnFaultsToTheProgramsHandlers) {
  const sigset_t blocked = blocked_in_new_thread();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    EXPECT_EQ(sigismember(&blocked, signal), 0) << signal;
  }
}

TEST(Thread, LeavesTheCallersMaskAsItWas) {
  sigset_t before;
  sigset_t after;
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &before), 0);
  blocked_in_new_thread();
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &after), 0);
  for (int signal = 1; signal < NSIG; signal++) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

TEST(Thread, AThreadThatWakesPromptlyStartsOthersThatDoNot) {
  const int usual_ns = ::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  ASSERT_GT(usual_ns, 1'000);
  Thread prompt;
  ASSERT_TRUE(prompt.start("prompt", [usual_ns] {
    wake_promptly();
    wake_promptly();
    Thread other;
    EXPECT_TRUE(other.start(
        "other", [usual_ns] { EXPECT_EQ(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), usual_ns); }));
    other.join();
    EXPECT_EQ(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1'000);
  }));
  prompt.join();
}

}  // namespace workflow
