// What co_await gives for each kind of task, and how each ends when the scope around it does.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TempDir.h"
#include "workflow/WFAlgoTaskFactory.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGenericTask.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;
using F = WFTaskFactory;

constexpr WFEnd kSuccess = {WFT_STATE_SUCCESS, 0};
constexpr WFEnd kCanceled = {WFT_STATE_SYS_ERROR, ECANCELED};
constexpr WFEnd kTimedOut = {WFT_STATE_SYS_ERROR, ETIMEDOUT};

TEST(CoroutineWaits, SleepByNameEndsWhenItIsCancelled) {
  const auto run = []() -> WFCo<> {
    WFTimerTask* const other = F::create_timer_task(
        0, 0, [](WFTimerTask*) { EXPECT_EQ(F::cancel_by_name("coroutine sleeps"), 1); });
    auto both = co_await wf::all(wf::sleep("coroutine sleeps", 1h), other);
    EXPECT_EQ(std::get<0>(both), kCanceled);
    EXPECT_EQ(std::get<1>(both), kSuccess);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, SleepWithAHandleEndsWhenItIsCancelled) {
  const auto run = []() -> WFCo<> {
    WFTimerHandle handle;
    auto sleeping = wf::sleep(1h, &handle);
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
    EXPECT_EQ(co_await std::move(sleeping), kCanceled);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, SleepWithANullHandleIsASleep) {
  const auto run = []() -> WFCo<> {
    WFTimerHandle* const nowhere = nullptr;
    EXPECT_EQ(co_await wf::sleep(0s, nowhere), kSuccess);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, TheUsersCallbackRunsFirst) {
  std::string order;
  const auto run = [&order]() -> WFCo<> {
    auto* const timer =
        F::create_timer_task(0, 0, [&order](WFTimerTask*) { order += "callback "; });
    EXPECT_EQ(co_await timer, kSuccess);
    order += "coroutine";
  };
  wf::wait(run);
  EXPECT_EQ(order, "callback coroutine");
}

TEST(CoroutineWaits, ATaskThatItsCallbackPushesInFrontRunsBefore) {
  std::string order;
  const auto run = [&order]() -> WFCo<> {
    auto* const timer = F::create_timer_task(0, 0, [&order](WFTimerTask* task) {
      auto* const pushed =
          F::create_timer_task(0, 0, [&order](WFTimerTask*) { order += "pushed "; });
      series_of(task)->push_front(pushed);
    });
    EXPECT_EQ(co_await timer, kSuccess);
    order += "coroutine";
  };
  wf::wait(run);
  EXPECT_EQ(order, "pushed coroutine");
}

// A kind of a user's own, which fails, and brings a number all the same.
class Failing : public WFGenericTask {
 public:
  explicit Failing(int reason) : reason_(reason) {}
  int result() const { return 42; }

 private:
  void dispatch() override {
    state = reason_ == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR;
    error = reason_;
    subtask_done();
  }
  const int reason_;
};

// The same without a number. It ends in the other way in which a task may.
class Leaving : public WFGenericTask {
 private:
  void dispatch() override {
    state = WFT_STATE_SYS_ERROR;
    error = EIO;
    subtask_done();
  }
  SubTask* done() override {
    SeriesWork* const series = series_of(this);
    delete this;
    return series->pop();
  }
};

// An object that lives longer than its end as a task.
class Lasting : public WFGenericTask {
 public:
  ~Lasting() override = default;

 private:
  void dispatch() override {
    state = WFT_STATE_SYS_ERROR;
    error = EIO;
    subtask_done();
  }
  SubTask* done() override { return series_of(this)->pop(); }
  void drop_unstarted() override {}  // nothing is freed
};

// Waits until its scope ends.
class Waiting final : public WFGenericTask {
 private:
  void dispatch() override {
    if (const int reason = enter_scope()) end(reason);
  }
  void on_cancel(int reason) override { end(reason); }
  void end(int reason) {
    state = WFT_STATE_SYS_ERROR;
    error = reason;
    if (leave_scope()) subtask_done();
  }
};

TEST(CoroutineWaits, AKindOfTheUsersOwn) {
  const auto run = []() -> WFCo<> {
    const WFEnded<int> good = co_await new Failing(0);
    EXPECT_EQ(good.state, WFT_STATE_SUCCESS);
    EXPECT_EQ(good.value, 42);
    const WFEnded<int> bad = co_await new Failing(EIO);
    EXPECT_EQ(bad.error, EIO);
    EXPECT_EQ(bad.value, 42);
    EXPECT_EQ(co_await new Leaving, (WFEnd{WFT_STATE_SYS_ERROR, EIO}));
    Lasting lasting;
    EXPECT_EQ(co_await &lasting, (WFEnd{WFT_STATE_SYS_ERROR, EIO}));
    const auto wait = []() -> WFCo<int> {
      int rounds = 0;
      while (co_await new Waiting)
        rounds++;
      co_return rounds;
    };
    const auto rounds = co_await wf::within(10ms, wait());
    EXPECT_EQ(rounds.error, ETIMEDOUT);
    EXPECT_EQ(rounds.value, 0);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, CounterAndMailboxAndSelector) {
  const auto run = []() -> WFCo<> {
    int message = 0;
    WFCounterTask* const counter = F::create_counter_task(1, nullptr);
    counter->count();
    EXPECT_EQ(co_await counter, kSuccess);

    WFMailboxTask* const mailbox = F::create_mailbox_task(nullptr);
    mailbox->send(&message);
    auto mail = co_await mailbox;
    EXPECT_EQ(std::move(mail).get(), &message);

    WFSelectorTask* const selector = F::create_selector_task(2, nullptr);
    selector->submit(nullptr);
    selector->submit(&message);
    auto selected = co_await selector;
    EXPECT_EQ(std::move(selected).get(), &message);
    WFSelectorTask* const empty = F::create_selector_task(0, nullptr);
    auto none = co_await empty;
    EXPECT_EQ(none.error, ENOMSG);
    EXPECT_FALSE(none.value);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, ReceiveGivesTheMessageOfTheName) {
  const auto run = []() -> WFCo<> {
    int message = 0;
    WFTimerTask* const sender = F::create_timer_task(0, 0, [&message](WFTimerTask*) {
      EXPECT_EQ(F::send_by_name("coroutine receives", &message), 1);
    });
    auto both = co_await wf::all(wf::receive("coroutine receives"), sender);
    EXPECT_EQ(std::get<0>(both).value, &message);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, GuardsAreHeldOneByOne) {
  int holders = 0;
  const auto holder = [&holders]() -> WFCo<> {
    auto held = co_await wf::hold("coroutine holds");
    EXPECT_TRUE(held);
    const WFReleaseGuard release("coroutine holds");
    EXPECT_EQ(++holders, 1);
    (co_await wf::sleep(100us)).check();
    holders--;
  };
  const auto run = [&]() -> WFCo<> {
    auto all = co_await wf::all(holder(), holder(), holder());
    static_cast<void>(all);
    const WFEnd end = co_await wf::within(1h, wf::hold("coroutine holds"));
    EXPECT_EQ(end, kSuccess);
    EXPECT_EQ(F::release_guard("coroutine holds", nullptr), 0);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, PoolsAndQueuesGiveWhatWasPosted) {
  const auto run = []() -> WFCo<> {
    int things[2] = {};
    void* resources[1] = {&things[0]};
    WFResourcePool pool(resources, 1);
    auto taken = co_await wf::take(pool);
    EXPECT_EQ(taken.value, &things[0]);
    const auto late = co_await wf::within(1ms, wf::take(pool));
    EXPECT_EQ(static_cast<const WFEnd&>(late), kTimedOut);
    pool.post(&things[0]);
    auto again = co_await wf::take(pool);
    EXPECT_TRUE(again);
    pool.post(&things[0]);

    WFMessageQueue queue;
    queue.post(&things[1]);
    auto message = co_await wf::receive(queue);
    EXPECT_EQ(message.value, &things[1]);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, ConditionalsRunTheirTask) {
  const auto run = []() -> WFCo<> {
    bool has_run = false;
    auto* const inner = F::create_timer_task(0, 0, [&has_run](WFTimerTask*) { has_run = true; });
    WFConditional* const conditional = F::create_conditional(inner);
    conditional->signal(&has_run);
    auto signalled = co_await conditional;
    EXPECT_EQ(signalled.value, &has_run);
    EXPECT_TRUE(has_run);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, ThreadTasksGiveTheirOutput) {
  const auto run = []() -> WFCo<> {
    using Factory = WFThreadTaskFactory<int, std::string>;
    auto* const task = Factory::create_thread_task(
        "queue", [](int* in, std::string* out) { *out = std::to_string(*in); }, nullptr);
    *task->get_input() = 42;
    auto output = co_await task;
    EXPECT_EQ(std::move(output).get(), "42");
    auto* const plain = F::create_go_task("queue", [] {});
    EXPECT_EQ(co_await plain, kSuccess);
    std::vector<int> numbers = {3, 1, 2};
    int* const first = numbers.data();
    auto* const sort = WFAlgoTaskFactory::create_sort_task("queue", first, first + 3, nullptr);
    auto sorted = co_await sort;
    EXPECT_TRUE(sorted);
    EXPECT_EQ(numbers, (std::vector<int>{1, 2, 3}));
  };
  wf::wait(run);
}

TEST(CoroutineWaits, GoThrowsWhatItsFunctionThrows) {
  const auto run = []() -> WFCo<> {
    const auto thrower = []() -> int { throw std::runtime_error("computed"); };
    auto result = co_await wf::go("queue", thrower);
    static_cast<void>(result);
  };
  EXPECT_THROW(wf::wait(run), std::runtime_error);
}

TEST(CoroutineWaits, GoIsToldThatItsScopeHasEndedAndIsWaitedFor) {
  const auto run = []() -> WFCo<> {
    std::atomic<bool> begun = false;
    bool told = false;
    const auto until_stop = [&](const std::stop_token& token, int n) {
      begun = true;
      while (!token.stop_requested())
        std::this_thread::yield();
      told = true;
      return n;
    };
    const auto cancel_when_it_has_begun = [&]() -> WFCo<> {
      while (!begun)
        (void)co_await wf::sleep(1ms);
      WFScope::current().cancel();
    };
    auto ended = co_await wf::all_ended(wf::go("queue", until_stop, 5), cancel_when_it_has_begun());
    EXPECT_TRUE(told);
    EXPECT_EQ(std::get<0>(std::move(ended)).get(), 5);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, FileTasksGiveWhatTheSystemCallReturns) {
  const test_support::TempDir dir;
  const std::string path = dir.path("file");
  const auto run = [&path]() -> WFCo<> {
    auto written = co_await F::create_pwrite_task(path, "some text", 9, 0, nullptr);
    EXPECT_EQ(written.value, 9);
    char buffer[16];
    auto read = co_await F::create_pread_task(path, buffer, 4, 5, nullptr);
    EXPECT_EQ(read.value, 4);
    EXPECT_EQ(std::string(buffer, 4), "text");
    auto missing = co_await F::create_pread_task(path + "none", buffer, 4, 5, nullptr);
    EXPECT_EQ(missing.error, ENOENT);
    EXPECT_FALSE(missing.value);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, StructuresEndWhenEverythingInThemHas) {
  const auto run = []() -> WFCo<> {
    std::atomic<int> ended{0};
    const auto count = [&ended](WFTimerTask*) { ended++; };
    const auto timer = [&count] { return F::create_timer_task(0, 0, count); };

    SeriesWork* const series = Workflow::create_series_work(timer(), nullptr);
    series->push_back(timer());
    EXPECT_EQ(co_await series, kSuccess);
    EXPECT_EQ(ended, 2);

    ParallelWork* const parallel = Workflow::create_parallel_work(nullptr);
    parallel->add_series(Workflow::create_series_work(timer(), nullptr));
    parallel->add_series(Workflow::create_series_work(timer(), nullptr));
    EXPECT_EQ(co_await parallel, kSuccess);
    EXPECT_EQ(ended, 4);

    WFGraphTask* const graph = F::create_graph_task(nullptr);
    graph->create_graph_node(timer())-- > graph->create_graph_node(timer());
    EXPECT_EQ(co_await graph, kSuccess);
    EXPECT_EQ(ended, 6);

    EXPECT_EQ(co_await F::create_module_task(timer(), timer(), nullptr), kSuccess);
    EXPECT_EQ(ended, 8);

    int repeats = 2;
    const auto create = [&](WFRepeaterTask*) -> SubTask* { return repeats-- ? timer() : nullptr; };
    EXPECT_EQ(co_await F::create_repeater_task(create, nullptr), kSuccess);
    EXPECT_EQ(ended, 10);

    EXPECT_EQ(co_await F::create_scope_task(timer(), nullptr), kSuccess);
    EXPECT_EQ(co_await with_deadline(F::create_timer_task(3600, 0, count), 1ms), kTimedOut);
    EXPECT_EQ(ended, 12);

    EXPECT_EQ(co_await F::create_dynamic_task([&](WFDynamicTask*) { return timer(); }), kSuccess);
    EXPECT_EQ(co_await F::create_empty_task(), kSuccess);
    const auto child = [&ended]() -> WFCo<> {
      ended++;
      co_return;
    };
    EXPECT_EQ(co_await wf::task(child), kSuccess);
    EXPECT_EQ(ended, 14);
  };
  wf::wait(run);
}

TEST(CoroutineWaits, ACancelledSeriesIsReported) {
  const auto run = []() -> WFCo<> {
    SeriesWork* const series = Workflow::create_series_work(
        F::create_timer_task(0, 0, [](WFTimerTask* task) { series_of(task)->cancel(); }), nullptr);
    series->push_back(F::create_timer_task(3600, 0, nullptr));
    EXPECT_EQ(co_await series, kCanceled);
  };
  wf::wait(run);
}

// Each kind of wait in a scope that ends while it waits, and in one that has ended.

using MakeWait = std::function<WFCo<WFEnd>()>;

template <class W>
MakeWait wait_for(W make) {
  return [make]() -> WFCo<WFEnd> {
    auto work = make();
    const WFEnd end = co_await std::move(work);
    co_return end;
  };
}

struct KindOfWait {
  const char* name;
  MakeWait wait;
};

std::vector<KindOfWait> kinds(WFResourcePool& empty, WFMessageQueue& queue, uint16_t silent) {
  const std::string url = "http://127.0.0.1:" + std::to_string(silent) + "/";
  return {
      {"sleep", wait_for([] { return wf::sleep(1h); })},
      {"sleep by name", wait_for([] { return wf::sleep("coroutine kinds", 1h); })},
      {"periodic timer", wait_for([] {
         WFTimerPeriod hourly;
         hourly.every = 1h;
         return WFTimer::create_periodic(
             hourly, {}, [](const WFTimerTick&) {}, nullptr);
       })},
      {"counter", wait_for([] { return F::create_counter_task("coroutine kinds", 1, nullptr); })},
      {"mailbox", wait_for([] { return wf::receive("coroutine kinds"); })},
      {"selector", wait_for([] { return F::create_selector_task(1, nullptr); })},
      {"conditional",
       wait_for([] { return F::create_conditional("coroutine kinds", F::create_empty_task()); })},
      {"guard", wait_for([] { return wf::hold("coroutine kinds"); })},
      {"pool", wait_for([&empty] { return wf::take(empty); })},
      {"queue", wait_for([&queue] { return wf::receive(queue); })},
      {"request", wait_for([url] { return F::create_http_task(url, 0, 0, nullptr); })},
      {"scope task", wait_for([] {
         return F::create_scope_task(F::create_timer_task(3600, 0, nullptr), nullptr);
       })},
  };
}

TEST(CoroutineWaits, EveryKindEndsWithItsScopeAndTheNextOneAtOnce) {
  WFResourcePool empty(size_t{0});
  WFMessageQueue queue;
  const auto silent = test_support::listen_on_loopback();
  const auto run = [&]() -> WFCo<> {
    auto held = co_await wf::hold("coroutine kinds");
    EXPECT_TRUE(held);
    for (const KindOfWait& kind : kinds(empty, queue, test_support::port_of(silent.get()))) {
      const auto twice = [&kind]() -> WFCo<> {
        EXPECT_EQ(co_await kind.wait(), kTimedOut);
        EXPECT_EQ(co_await kind.wait(), kTimedOut);
      };
      auto end = co_await wf::within(1ms, twice());
      EXPECT_EQ(static_cast<WFEnd&>(end), kTimedOut) << kind.name;
    }
    F::release_guard("coroutine kinds", nullptr);
  };
  wf::wait(run);
}

}  // namespace
