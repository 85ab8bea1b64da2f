// A function on a computing thread may use the variables of the coroutine that waits for it. So the
// coroutine goes on only when the function has returned, however the wait has ended.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/Tally.h"
#include "workflow/Executor.h"
#include "workflow/WFAlgoTaskFactory.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFDeadline.h"

namespace {

using test_support::Tally;
using namespace std::chrono_literals;
using F = WFTaskFactory;

constexpr WFEnd kInTime = {WFT_STATE_SUCCESS, 0};
constexpr WFEnd kTooLate = {WFT_STATE_SYS_ERROR, ETIMEDOUT};

// The account of a function that is still running when its task has ended. It outlives everything.
struct Account {
  Tally called_back;
  std::atomic<int> begun{0};
  std::atomic<int> runs{0};
  std::atomic<int> callback_error{0};
};

// A variable of a coroutine, of which a function has the address. It must outlive the function.
class Lent {
 public:
  explicit Lent(Account* account) : account_(account) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { EXPECT_EQ(account_->runs, 0) << "the function still runs"; }

  // A function that runs until the callback of its task has been called, and then writes here.
  // `end` ends the wait for its task.
  std::function<void()> function(std::function<void()> end) {
    return [this, account = account_, end = std::move(end)] {
      account->runs++;
      account->begun++;
      end();
      EXPECT_TRUE(account->called_back.wait_for(1));
      // A coroutine that does not wait for this has the time to go on, and to be gone.
      std::this_thread::sleep_for(2ms);
      writes_ = writes_ + 1;
      account->runs--;
    };
  }
  template <class TASK>
  TASK* told(TASK* task) {
    task->set_callback([account = account_](TASK* ended) {
      account->callback_error = ended->get_error();
      account->called_back.add();
    });
    return task;
  }
  int writes() const { return writes_; }

 private:
  Account* const account_;
  volatile int writes_ = 0;  // volatile: every write is made
};

void end_scope_around() {
  WFScope::current().cancel(ETIMEDOUT);
}

using Threads = WFThreadTaskFactory<int, int>;

struct BorrowingWait {
  const char* name;
  std::function<WFCo<WFEnd>(Lent&)> wait;
  WFEnd end;
};

// Awaits what `make` makes of a go task.
template <class MAKE>
BorrowingWait of_go_task(const char* name, const WFEnd& end, MAKE make) {
  const auto wait = [make](Lent& lent) -> WFCo<WFEnd> {
    auto* const work = make(lent.told(F::create_go_task("queue", lent.function(end_scope_around))));
    const WFEnd ended = co_await work;
    co_return ended;
  };
  return {name, wait, end};
}

SeriesWork* series_with(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

ParallelWork* parallel_with(SubTask* task) {
  ParallelWork* const parallel = Workflow::create_parallel_work(nullptr);
  parallel->add_series(series_with(F::create_timer_task(3600, 0, nullptr)));
  parallel->add_series(series_with(task));
  return parallel;
}

WFGraphTask* graph_with(SubTask* task) {
  WFGraphTask* const graph = F::create_graph_task(nullptr);
  graph->create_graph_node(F::create_empty_task())-- > graph->create_graph_node(task);
  return graph;
}

WFRepeaterTask* repeater_with(SubTask* task) {
  const auto create = [task, n = 0](WFRepeaterTask*) mutable { return n++ == 0 ? task : nullptr; };
  return F::create_repeater_task(create, nullptr);
}

WFTimerTask* timer_that_pushes(SubTask* task) {
  const auto push = [task](WFTimerTask* timer) { series_of(timer)->push_front(task); };
  return F::create_timer_task(0, 0, push);
}

std::vector<BorrowingWait> waits_for_go_tasks() {
  using Go = WFGoTask*;
  return {
      of_go_task("go task", kTooLate, [](Go go) { return go; }),
      of_go_task("any task", kInTime, [](Go go) -> SubTask* { return go; }),
      of_go_task("series", kInTime, [](Go go) { return series_with(go); }),
      of_go_task("parallel", kInTime, [](Go go) { return parallel_with(go); }),
      of_go_task("module", kInTime,
                 [](Go go) { return F::create_module_task(go, F::create_empty_task(), nullptr); }),
      of_go_task("graph", kInTime, [](Go go) { return graph_with(go); }),
      of_go_task("scope task", kTooLate, [](Go go) { return F::create_scope_task(go, nullptr); }),
      of_go_task("repeater", kTooLate, [](Go go) { return repeater_with(go); }),
      of_go_task("dynamic task", kInTime,
                 [](Go go) { return F::create_dynamic_task([go](WFDynamicTask*) { return go; }); }),
      of_go_task("conditional", kInTime,
                 [](Go go) {
                   WFConditional* const conditional = F::create_conditional(go);
                   conditional->signal(nullptr);
                   return conditional;
                 }),
      of_go_task("pushed task", kInTime, [](Go go) { return timer_that_pushes(go); }),
      of_go_task("nested", kInTime,
                 [](Go go) { return series_with(parallel_with(graph_with(repeater_with(go)))); }),
  };
}

WFCo<WFEnd> wait_for_a_thread_task(Lent& lent) {
  const auto function = lent.function(end_scope_around);
  const auto routine = [function](int*, int*) { function(); };
  auto* const task = lent.told(Threads::create_thread_task("queue", routine, nullptr));
  const auto ended = co_await task;
  EXPECT_FALSE(ended.value);
  co_return ended;
}

WFCo<WFEnd> wait_for_an_algorithm(Lent& lent) {
  const auto function = lent.function(end_scope_around);
  const auto predicate = [function](int) {
    function();
    return true;
  };
  int one = 1;
  auto* const task = lent.told(
      WFAlgoTaskFactory::create_remove_if_task("queue", &one, &one + 1, predicate, nullptr));
  const auto ended = co_await task;
  co_return ended;
}

WFCo<WFEnd> wait_for_an_executor(Lent& lent) {
  ExecQueue queue;
  EXPECT_EQ(queue.init(), 0);
  Executor executor;
  EXPECT_EQ(executor.init(1), 0);
  const auto function = lent.function(end_scope_around);
  auto* const task = lent.told(F::create_go_task(&queue, &executor, function));
  const WFEnd ended = co_await task;
  co_return ended;
}

void end_while_it_runs(const BorrowingWait& kind) {
  SCOPED_TRACE(kind.name);
  Account account;
  WFEnd inner;
  const auto work = [&]() -> WFCo<> {
    Lent lent(&account);
    inner = co_await kind.wait(lent);
    EXPECT_EQ(account.runs, 0);
    EXPECT_EQ(lent.writes(), 1);
  };
  const auto run = [&work]() -> WFCo<> { (void)co_await wf::within(1h, work()); };
  wf::wait(run);
  EXPECT_EQ(inner, kind.end);
  EXPECT_EQ(account.callback_error, ETIMEDOUT);
}

TEST(CoroutineBorrowed, GoTasksReturnBeforeWhatContainsThemAndIsLate) {
  for (const BorrowingWait& kind : waits_for_go_tasks()) {
    end_while_it_runs(kind);
  }
}

TEST(CoroutineBorrowed, ThreadTasksReturnBeforeAWaitThatIsLate) {
  end_while_it_runs({"thread task", wait_for_a_thread_task, kTooLate});
  end_while_it_runs({"algorithm", wait_for_an_algorithm, kTooLate});
  end_while_it_runs({"executor", wait_for_an_executor, kTooLate});
}

// A limit of the task itself. On a busy machine it may pass before the function begins.
TEST(CoroutineBorrowed, TasksReturnBeforeAWaitThatTheirOwnLimitEnds) {
  const auto timed_go = [](Lent& lent) -> WFCo<WFEnd> {
    auto* const task = lent.told(F::create_timedgo_task(5ms, "queue", lent.function([] {})));
    const WFEnd ended = co_await task;
    co_return ended;
  };
  const auto timed_thread = [](Lent& lent) -> WFCo<WFEnd> {
    const auto function = lent.function([] {});
    const auto routine = [function](int*, int*) { function(); };
    auto* const task = lent.told(Threads::create_thread_task(5ms, "queue", routine, nullptr));
    const auto ended = co_await task;
    co_return ended;
  };
  const auto run = [](std::function<WFCo<WFEnd>(Lent&)> wait) -> WFCo<> {
    int begun = 0;
    while (begun == 0) {
      Account account;
      Lent lent(&account);
      EXPECT_EQ(co_await wait(lent), kTooLate);
      EXPECT_EQ(account.runs, 0);
      EXPECT_EQ(account.callback_error, ETIMEDOUT);
      begun = account.begun;
      EXPECT_EQ(lent.writes(), begun);
    }
  };
  wf::wait(run, timed_go);
  wf::wait(run, timed_thread);
  // In a series of its own, and as a branch that has none.
  const auto also_in_a_series = [&]() -> WFCo<> { co_await wf::all(run(timed_go), run(timed_go)); };
  wf::wait(also_in_a_series);
}

// The functions of a psort look at the range of the coroutine until each has returned.
TEST(CoroutineBorrowed, PiecesOfASortReturnBeforeAWaitThatIsLate) {
  struct Sorting {
    std::atomic<bool> begun{false};
    std::atomic<bool> is_over{false};
    std::atomic<int> too_late{0};
  } sorting;
  const auto work = [&sorting]() -> WFCo<> {
    std::vector<int> numbers(4 * 8192);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    const auto less = [&sorting](int a, int b) {
      if (!sorting.begun.exchange(true)) end_scope_around();
      sorting.too_late += sorting.is_over;
      return a < b;
    };
    auto* const task = WFAlgoTaskFactory::create_psort_task(
        "queue", numbers.data(), numbers.data() + numbers.size(), less, nullptr);
    const auto sorted = co_await task;
    EXPECT_EQ(static_cast<const WFEnd&>(sorted), kTooLate);
    sorting.is_over = true;
  };
  const auto run = [&work]() -> WFCo<> {
    const auto ended = co_await wf::within(1h, work());
    EXPECT_EQ(static_cast<const WFEnd&>(ended), kTooLate);
  };
  wf::wait(run);
  const auto pass = [] {};
  const auto through_the_queue = [&pass]() -> WFCo<> { (void)co_await wf::go("queue", pass); };
  wf::wait(through_the_queue);
  EXPECT_EQ(sorting.too_late, 0);
}

// A small range is sorted by one function, which is the task's own. Here it waits behind functions
// that occupy all threads.
TEST(CoroutineBorrowed, ASmallSortThatNeverBeginsForgetsItsComparator) {
  constexpr int kMoreThanThreads = 256;
  Tally release;
  Tally released;
  for (int i = 0; i < kMoreThanThreads; i++) {
    F::create_go_task("sorts", [&release, &released] {
      EXPECT_TRUE(release.wait_for(1));
      released.add();
    })->start();
  }
  const auto work = [&release]() -> WFCo<> {
    std::vector<int> numbers(8);
    const auto captured = std::make_shared<int>(0);
    const auto less = [captured](int a, int b) {
      ADD_FAILURE() << "it was late";
      return a < b;
    };
    auto* const task = WFAlgoTaskFactory::create_psort_task(
        "sorts", numbers.data(), numbers.data() + numbers.size(), less, nullptr);
    const auto sorted = co_await task;
    EXPECT_EQ(static_cast<const WFEnd&>(sorted), kTooLate);
    EXPECT_EQ(captured.use_count(), 2) << "`captured` and `less`";
    release.add();
  };
  const auto run = [&work]() -> WFCo<> {
    const auto ended = co_await wf::within(5ms, work());
    EXPECT_EQ(static_cast<const WFEnd&>(ended), kTooLate);
  };
  wf::wait(run);
  EXPECT_TRUE(released.wait_for(kMoreThanThreads));
}

TEST(CoroutineBorrowed, ALoserOfAnyReturnsBeforeAny) {
  Account account;
  Lent lent(&account);
  Tally begun;
  const auto slow = [&]() -> WFCo<> {
    const auto function = [&] {
      account.runs++;
      begun.add();
      // When `any` has taken the first, it ends the scope of the others.
      while (WFScope::current().error() == 0) {
        std::this_thread::sleep_for(100us);
      }
      std::this_thread::sleep_for(2ms);  // time for an `any` that does not wait
      account.runs--;
    };
    auto* const task = F::create_timedgo_task(1h, "queue", function);
    (void)co_await task;
  };
  const auto fast = [&]() -> WFCo<> {
    while (begun.count() == 0)
      (void)co_await wf::sleep(1ms);
  };
  const auto run = [&]() -> WFCo<> {
    const auto first = co_await wf::any(slow(), fast());
    EXPECT_EQ(first.index, 1u);
    EXPECT_EQ(account.runs, 0);
  };
  wf::wait(run);
}

// What a branch has pushed behind itself runs when its frame has gone, and may use variables of its
// caller.
TEST(CoroutineBorrowed, ATaskThatABranchPushesReturnsBeforeTheGroup) {
  Account account;
  const auto run = [&account]() -> WFCo<> {
    Lent lent(&account);
    const auto child = [&lent]() -> WFCo<> {
      SeriesWork* const series = co_await wf::own_series();
      auto* const go = lent.told(F::create_go_task("queue", lent.function(end_scope_around)));
      series->push_back(go);
    };
    auto all = co_await wf::all(child());
    static_cast<void>(all);
    EXPECT_EQ(account.runs, 0);
    EXPECT_EQ(lent.writes(), 1);
  };
  wf::wait(run);
}

// The function has the series cancelled: the frame goes when the function has returned.
TEST(CoroutineBorrowed, AFrameThatIsDroppedOutlivesTheFunction) {
  Account account;
  Tally dropped;
  const auto work = [&account]() -> WFCo<> {
    Lent lent(&account);
    SeriesWork* const series = co_await wf::own_series();
    const auto end = [series] {
      series->cancel();
      end_scope_around();
    };
    auto* const task = lent.told(F::create_go_task("queue", lent.function(end)));
    (void)co_await task;
    ADD_FAILURE() << "the series was cancelled";
  };
  auto* const task = with_deadline(wf::task(work), 1h, [&](WFDeadlineTask* late) {
    EXPECT_EQ(late->get_error(), ETIMEDOUT);
    EXPECT_EQ(account.runs, 0);
    dropped.add();
  });
  task->start();
  EXPECT_TRUE(dropped.wait_for(1));
  EXPECT_EQ(account.callback_error, ETIMEDOUT);
}

// What a function that never begins has captured may refer to variables of the coroutine, too.
TEST(CoroutineBorrowed, AFunctionThatNeverBeginsIsGoneBeforeTheCoroutineGoesOn) {
  Tally release;
  ExecQueue queue;
  ASSERT_EQ(queue.init(), 0);
  Executor executor;
  ASSERT_EQ(executor.init(1), 0);
  const auto run = [&]() -> WFCo<> {
    const auto occupy = [&release] { EXPECT_TRUE(release.wait_for(1)); };
    F::create_go_task(&queue, &executor, occupy)->start();
    auto captured = std::make_shared<int>(0);
    const std::weak_ptr<int> seen = captured;
    const auto function = [captured] { ADD_FAILURE() << "it was late"; };
    captured.reset();
    auto made = std::make_unique<decltype(function)>(function);
    auto* const go = F::create_timedgo_task(0, 0, &queue, &executor, *made);
    made.reset();
    EXPECT_EQ(co_await go, kTooLate);
    EXPECT_EQ(seen.use_count(), 1) << "the variable `function` has the last one";

    using Task = WFThreadTaskFactory<std::shared_ptr<int>, int>;
    const auto routine = [function](std::shared_ptr<int>*, int*) { function(); };
    auto* const thread = Task::create_thread_task(0, 0, &queue, &executor, routine, nullptr);
    auto input = std::make_shared<int>(0);
    *thread->get_input() = input;
    const auto ended = co_await thread;
    EXPECT_EQ(static_cast<const WFEnd&>(ended), kTooLate);
    EXPECT_EQ(seen.use_count(), 2) << "`function` and `routine`";
    EXPECT_EQ(input.use_count(), 1);
    release.add();
  };
  wf::wait(run);
}

// The dispatch of a task may still be posting it when the task has ended.
// In the end of a task that never begins nothing of it is left that the coroutine may have lent.
TEST(CoroutineBorrowed, NothingIsLeftOfATaskThatNeverBegins) {
  struct Input {
    std::mutex cannot_be_moved;
    std::shared_ptr<int> value;
  };
  using Others = WFThreadTaskFactory<Input, std::shared_ptr<int>>;
  Tally release;
  ExecQueue queue;
  ASSERT_EQ(queue.init(), 0);
  Executor executor;
  ASSERT_EQ(executor.init(1), 0);
  const auto run = [&]() -> WFCo<> {
    F::create_go_task(&queue, &executor, [&release] { EXPECT_TRUE(release.wait_for(1)); })->start();
    const auto held = std::make_shared<int>(0);
    auto* const go = F::create_timedgo_task(0, 0, &queue, &executor, [] {});
    go->set_callback([held](WFGoTask*) {});
    const WFEnd go_ended = co_await go;
    EXPECT_EQ(go_ended.error, ETIMEDOUT);
    EXPECT_EQ(held.use_count(), 1) << "of the callback";
    auto* const thread = Others::create_thread_task(
        0, 0, &queue, &executor, [](Input*, std::shared_ptr<int>*) {}, nullptr);
    thread->get_input()->value = held;
    *thread->get_output() = held;
    const auto thread_ended = co_await thread;
    EXPECT_EQ(thread_ended.error, ETIMEDOUT);
    EXPECT_EQ(held.use_count(), 1) << "of the input or the output";
    release.add();
  };
  wf::wait(run);
}

// A type for which std::is_move_assignable_v is true, but whose assignment does not compile.
TEST(CoroutineBorrowed, AnInputNeedNotBeAssignable) {
  struct Parts {
    virtual ~Parts() = default;
    std::vector<std::unique_ptr<int>> parts;
  };
  using Others = WFThreadTaskFactory<Parts, int>;
  const auto run = []() -> WFCo<> {
    auto* const thread = Others::create_thread_task(
        "queue", [](Parts* in, int* out) { *out = static_cast<int>(in->parts.size()); }, nullptr);
    thread->get_input()->parts.push_back(std::make_unique<int>(0));
    const auto ended = co_await thread;
    EXPECT_EQ(ended.value, 1);
  };
  wf::wait(run);
}

// That a function has borrowed variables is known by the series alone here: the coroutine is in no
// group, and its series is made when the callback or another coroutine asks for it.
TEST(CoroutineBorrowed, AFunctionThatIsPushedLaterReturnsFirstToo) {
  // Returns whether the function has begun before the limit has passed.
  const auto begins_within = [](std::chrono::nanoseconds limit, bool by_a_coroutine) {
    Account account;
    const auto work = [&account, limit, by_a_coroutine]() -> WFCo<> {
      Lent lent(&account);
      const auto late = [&lent, limit] {
        return lent.told(F::create_timedgo_task(limit / 1s, (limit % 1s).count(), "queue",
                                                lent.function([] {})));
      };
      if (by_a_coroutine) {
        const auto inner = [&late]() -> WFCo<> {
          (void)co_await wf::sleep(0s);
          SeriesWork* const series = co_await wf::own_series();
          series->push_front(late());
        };
        auto* const task = wf::task(inner);
        (void)co_await task;
      } else {
        auto* const timer = F::create_timer_task(
            0, 0, [&late](WFTimerTask* ended) { series_of(ended)->push_front(late()); });
        (void)co_await timer;
      }
    };
    wf::wait(work);
    return account.begun == 1;
  };
  for (const bool by_a_coroutine : {false, true}) {
    SCOPED_TRACE(by_a_coroutine);
    std::chrono::nanoseconds limit = 20ms;
    while (!begins_within(limit, by_a_coroutine)) {
      limit *= 4;  // the machine is busy
    }
  }
}

TEST(CoroutineBorrowed, AnExecutorMayBeAVariableOfTheCoroutine) {
  const auto run = []() -> WFCo<> {
    ExecQueue queue;
    EXPECT_EQ(queue.init(), 0);
    Executor executor;
    EXPECT_EQ(executor.init(1), 0);
    auto* const go = F::create_timedgo_task(0, 0, &queue, &executor, [] {});
    const WFEnd ended = co_await go;
    EXPECT_TRUE(ended || ended == kTooLate);
  };
  for (int i = 0; i < 50; i++) {
    wf::wait(run);
  }
}

// What stands behind a coroutine, and is not waited for by one, goes on at the limit as ever.
TEST(CoroutineBorrowed, ASeriesInWhichNoCoroutineWaitsGoesOnAtTheLimit) {
  struct Shared {
    std::atomic<bool> has_begun{false};
    Tally has_gone_on;
  };
  const auto pass = []() -> WFCo<> { (void)co_await wf::sleep(0s); };
  for (bool has_begun = false; !has_begun;) {
    const auto shared = std::make_shared<Shared>();
    const auto function = [shared] {
      shared->has_begun = true;
      EXPECT_TRUE(shared->has_gone_on.wait_for(1));
    };
    const auto go_on = [shared](WFTimerTask*) { shared->has_gone_on.add(); };
    SeriesWork* const series = Workflow::create_series_work(wf::task(pass), nullptr);
    series->push_back(F::create_timedgo_task(5ms, "queue", function));
    series->push_back(F::create_timer_task(0, 0, go_on));
    series->start();
    ASSERT_TRUE(shared->has_gone_on.wait_for(1));
    has_begun = shared->has_begun;
  }
}

}  // namespace
