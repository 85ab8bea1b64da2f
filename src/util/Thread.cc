#include "util/Thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <ctime>
#include <exception>
#include <utility>

namespace workflow {

namespace {

constexpr unsigned long kPromptSlackNs = 1'000;
// What the calling thread had before wake_promptly(); 0 if it has not called that.
thread_local unsigned long own_slack_ns = 0;

}  // namespace

bool Thread::start(const char* name, std::function<void()> body) {
  if (VirtualScheduler* scheduler = VirtualScheduler::current()) {
    virtual_id_ = scheduler->spawn(name, std::move(body));
    return true;
  }
  sigset_t blocked;
  sigset_t previous;
  ::sigfillset(&blocked);
  // The kernel ends the process when a blocked signal reports a fault of the thread itself. The
  // program's handler could not write its crash report.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    ::sigdelset(&blocked, fault);
  }
  ::pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  if (own_slack_ns != 0) {
    ::prctl(PR_SET_TIMERSLACK, own_slack_ns, 0, 0, 0);  // the new thread has that of this one
  }
  bool started = true;
  try {
    thread_ = std::thread(std::move(body));
    ::pthread_setname_np(thread_.native_handle(), name);
  } catch (const std::exception&) {  // EAGAIN, or no memory
    started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  if (own_slack_ns != 0) {
    ::prctl(PR_SET_TIMERSLACK, kPromptSlackNs, 0, 0, 0);
  }
  return started;
}

void wake_promptly() {
  if (VirtualScheduler::current() || own_slack_ns != 0) return;
  const int slack_ns = ::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  if (slack_ns <= 0) return;
  own_slack_ns = static_cast<unsigned long>(slack_ns);
  ::prctl(PR_SET_TIMERSLACK, kPromptSlackNs, 0, 0, 0);
}

void Thread::join() {
  if (virtual_id_) {
    VirtualScheduler::current()->join(*virtual_id_);
    virtual_id_.reset();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

void pause_ns(long duration_ns) {
  if (VirtualScheduler* scheduler = VirtualScheduler::current()) {
    scheduler->point();
    return;
  }
  const struct timespec duration = {0, duration_ns};
  ::nanosleep(&duration, nullptr);
}

}  // namespace workflow
