#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "support/ExitKit.h"
#include "support/InChild.h"
#include "support/Loopback.h"
#include "util/Clock.h"
#include "util/Sanitizers.h"
#include "workflow/Executor.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFScope.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// fork(2) while the library runs: threads stay with the parent, the rest of the process is copied.
// Here the child of the test is the parent that forks.

using namespace std::chrono_literals;

namespace {

// A fork that is to happen in the middle of a call of the library, with the locks that it holds
// there. The thread that forks has them, so in the child nobody ever unlocks them.
class ForkInside {
 public:
  // Returns what the child ends with, which does what `in_the_child` does, or 0 if `call` does not
  // get to a place that forks.
  static int of(const std::function<void()>& call, const std::function<int()>& in_the_child) {
    in_the_child_ = &in_the_child;
    ended_with_ = 0;
    call();
    in_the_child_ = nullptr;
    return ended_with_;
  }

  static void here() {
    if (const auto* const in_the_child = std::exchange(in_the_child_, nullptr)) {
      ended_with_ = test_support::in_child(*in_the_child);
    }
  }

 private:
  static inline thread_local const std::function<int()>* in_the_child_ = nullptr;
  static inline thread_local int ended_with_ = 0;
};

// The system's clock. A thread that looks at it may be holding locks.
class ForkingClock final : public workflow::Clock {
 public:
  static void install() {
    static ForkingClock& clock = *new ForkingClock;  // the pollers read it until the very end
    workflow::Runtime::install_clock(clock);
  }

  int64_t now_ns() override { return now_ns_on(workflow::ClockId::kMonotonic); }
  int64_t now_ns_on(workflow::ClockId clock) override {
    ForkInside::here();
    return workflow::system_clock().now_ns_on(clock);
  }
  bool is_system_clock() const override { return true; }
};

// Its functions are called with its lock held.
class ForkingPool final : public WFResourcePool {
 public:
  using WFResourcePool::WFResourcePool;

 protected:
  void push(void* resource) override {
    ForkInside::here();
    WFResourcePool::push(resource);
  }
};

// Ends its timer, as the destructor of an object that owns one does.
class TimerOwner {
 public:
  ~TimerOwner() {
    if (timer != WFTimerHandle() && timer.cancel_and_wait() != WFTimerCancel::kDone) {
      ::_exit(8);  // in the parent the timer has been aborted by now
    }
  }
  WFTimerHandle timer;
};

// Destroyed in the child as in the parent.
WFHttpServer server([](WFHttpTask* task) { task->get_resp()->append_output_body("served"); });
Executor executor;
ExecQueue queue;
ForkingPool pool(1);
TimerOwner owner;

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

void say_whether(bool right) {
  exit_kit::say(right ? "all is well" : "something went wrong");
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
  say_whether(right);
}

WFTimerHandle started(WFTimerTask* timer) {
  const WFTimerHandle handle = WFTimer::handle_of(timer);
  timer->start();
  return handle;
}

bool is_done(const WFTimerHandle& timer) {
  return timer.reschedule(1ms) == WFTimerMove::kDone && !timer.remaining() &&
         timer.cancel() == WFTimerCancel::kDone && timer.cancel_and_wait() == WFTimerCancel::kDone;
}

void fork_with_handles() {
  static std::atomic<int> ticks{0};
  owner.timer = started(WFTimer::create(1h, nullptr));
  const WFTimerHandle periodic = started(WFTimer::create_periodic(
      {1h}, {}, [](const WFTimerTick&) { ticks++; }, nullptr));
  WFFacilities::WaitGroup runs(1);
  WFFacilities::WaitGroup may_return(1);
  const WFTimerHandle running = started(WFTimer::create(0ns, [&](WFTimerTask*) {
    runs.done();
    may_return.wait();
  }));
  WFTimerTask* const unstarted = WFTimer::create(1h, nullptr);
  const WFTimerHandle waiting = WFTimer::handle_of(unstarted);
  runs.wait();
  const int ended_with = test_support::in_child([&] {
    WFTimerTask* const own = WFTimer::create(1h, nullptr);
    const WFTimerHandle fresh = WFTimer::handle_of(own);
    const bool right = is_done(owner.timer) && is_done(periodic) && is_done(running) &&
                       is_done(waiting) && fresh.cancel() == WFTimerCancel::kWon;
    own->dismiss();
    return right && is_done(fresh) ? 7 : 1;
  });
  bool right = ended_with == 7 && ticks == 0 && running.cancel() == WFTimerCancel::kTooLate;
  may_return.done();
  // The parent has its timers as before.
  right = right && owner.timer.remaining() > 50min && periodic.remaining() > 50min;
  right = right && periodic.cancel_and_wait() == WFTimerCancel::kWon;
  right = right && waiting.cancel() == WFTimerCancel::kWon;
  unstarted->dismiss();
  running.cancel_and_wait();
  say_whether(right && expire());
}

void fork_in_a_call_by_handle() {
  ForkingClock::install();
  const WFTimerHandle timer = started(WFTimer::create(1h, nullptr));
  owner.timer = timer;
  const int ended_with = ForkInside::of([&] { timer.remaining(); },
                                        [&] {
                                          // New timers get to the place that was locked, too.
                                          for (int i = 0; i < 100; i++) {
                                            WFTimerTask* const own = WFTimer::create(1h, nullptr);
                                            const WFTimerHandle fresh = WFTimer::handle_of(own);
                                            own->dismiss();
                                            if (!is_done(fresh)) return 1;
                                          }
                                          return is_done(timer) ? 7 : 1;
                                        });
  say_whether(ended_with == 7 && timer.remaining() > 50min && expire());
}

void fork_with_a_scope() {
  WFFacilities::WaitGroup ended(1);
  WFScopeTask* const task = WFTaskFactory::create_scope_task(
      WFTaskFactory::create_timer_task(3600, 0, nullptr), [&](WFScopeTask*) { ended.done(); });
  const WFScope scope = task->scope();
  scope.set_deadline(2h);
  task->start();
  const int ended_with = test_support::in_child([&] {
    const bool moved = scope.set_deadline(1ms);
    const bool right = !moved && errno == ECANCELED &&
                       scope.remaining() == std::chrono::nanoseconds::max() &&
                       !scope.stop_token().stop_possible() && !scope.cancel();
    return right && scope.error() == 0 ? 7 : 1;
  });
  const bool right = ended_with == 7 && scope.remaining() > 1h && scope.cancel();
  ended.wait();
  say_whether(right && expire());
}

void fork_in_a_stop() {
  ForkingClock::install();
  server.start("127.0.0.1", 0);
  const int ended_with = ForkInside::of([] { server.stop(3'600'000, WF_STOP_DROP); },
                                        [] {
                                          const bool is_closed = test_support::port_of(server) == 0;
                                          server.stop();
                                          return is_closed && server.get_conn_count() == 0 ? 7 : 1;
                                        });
  say_whether(ended_with == 7 && expire());
}

void fork_in_a_post() {
  const bool runs = expire();
  const int ended_with = ForkInside::of([] { pool.post(nullptr); }, [] { return 7; });
  say_whether(runs && ended_with == 7 && expire());
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
    {"starts a server",
     [] {
       fork_and_go_on([](const std::string&) {
         server.stop();
         const bool serves = server.start("127.0.0.1", 0) == 0 && ask(url());
         const size_t connections = server.get_conn_count();
         server.stop();
         return serves && connections == 1 && server.get_conn_count() == 0 ? 7 : 1;
       });
     }},
    {"has handles", fork_with_handles},
    {"in a call by handle", fork_in_a_call_by_handle},
    {"has a scope", fork_with_a_scope},
    {"in a stop", fork_in_a_stop},
    {"in a post", fork_in_a_post},
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

TEST(Fork, AChildFindsTheTimersOfItsParentDone) {
  EXPECT_EQ(play("has handles"), "all is well\n");
}

TEST(Fork, AChildFindsTheScopesOfItsParentFinished) {
  EXPECT_EQ(play("has a scope"), "all is well\n");
}

// While a thread of the parent holds the lock of the object that the child asks and destroys.

TEST(Fork, AChildNeedsNoLockOfTheParentsTimers) {
  EXPECT_EQ(play("in a call by handle"), "all is well\n");
}

TEST(Fork, AChildNeedsNoLockOfAServer) {
  EXPECT_EQ(play("in a stop"), "all is well\n");
}

TEST(Fork, AChildNeedsNoLockOfAResourcePool) {
  EXPECT_EQ(play("in a post"), "all is well\n");
}

// ThreadSanitizer ends a process that starts threads after a fork with threads.
#if !defined(WORKFLOW_THREAD_SANITIZER)
TEST(Fork, AChildThatUsesTheLibraryHasThreadsOfItsOwn) {
  EXPECT_EQ(play("uses"), "all is well\n");
}

TEST(Fork, AChildMayStartAServerOfItsParent) {
  EXPECT_EQ(play("starts a server"), "all is well\n");
}
#endif

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}
