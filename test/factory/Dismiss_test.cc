#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include "TaskProbes.h"
#include "factory/CounterTask.h"
#include "factory/GuardTask.h"
#include "factory/NamedMessageTask.h"
#include "factory/TimerTask.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

// Every kind of task is dropped at every place where a task can be: what it owns is freed, its
// callback never runs, it leaves its name. Leak checkers see the rest.

using namespace probes;
using test_support::Tally;

namespace {

// What a task holds: lives as long as the task does.
using Held = std::shared_ptr<int>;

// Where messages and resources come from and go; outlives all tasks of the process.
struct World {
  int things[2] = {};
  void* const resources[2] = {&things[0], &things[1]};
  WFResourcePool pool{resources, 2};
  WFMessageQueue queue;
  Log log;  // stays empty
};

World& world() {
  static World& world = *new World;
  return world;
}

// A callback that must not run, and holds something.
auto never_called(const Held& held) {
  return [held](const auto*) { ADD_FAILURE() << "a callback ran"; };
}

SubTask* inner(const Held& held) {
  return new LogTask(&world().log, "!", never_called(held));
}

// A task, and how it is dismissed alone.
struct Made {
  template <class Task>
  Made(Task* made) : task(made), dismiss([made] { made->dismiss(); }) {}

  SubTask* task;
  std::function<void()> dismiss;
};

struct DismissedKind {
  const char* name;
  std::function<Made(const Held&)> make;
};

void PrintTo(const DismissedKind& kind, std::ostream* out) {
  *out << kind.name;
}

using ThreadFactory = WFThreadTaskFactory<std::string, std::string>;

const DismissedKind kDismissedKinds[] = {
    {"Generic",
     [](const Held& held) { return new LogTask(&world().log, "!", never_called(held)); }},
    {"EmptyParallel",
     [](const Held& held) { return Workflow::create_parallel_work(never_called(held)); }},
    {"Timer",
     [](const Held& held) { return WFTaskFactory::create_timer_task(0, 0, never_called(held)); }},
    {"TimerInMicroseconds",
     [](const Held& held) { return WFTaskFactory::create_timer_task(1u, never_called(held)); }},
    {"CancelledTimer",
     [](const Held& held) { return WFTaskFactory::create_timer_task(never_called(held)); }},
    {"NamedTimer",
     [](const Held& held) {
       return WFTaskFactory::create_timer_task("name", 0, 0, never_called(held));
     }},
    {"NamedTimerCancelledBefore",
     [](const Held& held) {
       WFTimerTask* task = WFTaskFactory::create_timer_task("cancelled", 0, 0, never_called(held));
       EXPECT_EQ(WFTaskFactory::cancel_by_name("cancelled"), 1);
       return task;
     }},
    {"Counter",
     [](const Held& held) { return WFTaskFactory::create_counter_task(2, never_called(held)); }},
    {"CountedCounter",
     [](const Held& held) {
       WFCounterTask* task = WFTaskFactory::create_counter_task(1, never_called(held));
       task->count();
       return task;
     }},
    {"NamedCounter",
     [](const Held& held) {
       WFCounterTask* task = WFTaskFactory::create_counter_task("name", 2, never_called(held));
       EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
       return task;
     }},
    {"CountedNamedCounter",
     [](const Held& held) {
       WFCounterTask* task = WFTaskFactory::create_counter_task("name", 1, never_called(held));
       EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
       return task;
     }},
    {"Mailbox",
     [](const Held& held) { return WFTaskFactory::create_mailbox_task(never_called(held)); }},
    {"SentMailbox",
     [](const Held& held) {
       WFMailboxTask* task = WFTaskFactory::create_mailbox_task(never_called(held));
       task->send(&world());
       return task;
     }},
    {"NamedMailbox",
     [](const Held& held) {
       return WFTaskFactory::create_mailbox_task("name", never_called(held));
     }},
    {"SentNamedMailbox",
     [](const Held& held) {
       WFMailboxTask* task = WFTaskFactory::create_mailbox_task("sent", never_called(held));
       EXPECT_EQ(WFTaskFactory::send_by_name("sent", &world()), 1);
       return task;
     }},
    {"SelectorWithoutCandidates",
     [](const Held& held) { return WFTaskFactory::create_selector_task(0, never_called(held)); }},
    {"SubmittedSelector",
     [](const Held& held) {
       WFSelectorTask* task = WFTaskFactory::create_selector_task(2, never_called(held));
       EXPECT_EQ(task->submit(nullptr), 0);
       EXPECT_EQ(task->submit(&world()), 1);
       return task;
     }},
    // Whose object stays known to the library, as its candidates never come.
    {"WaitingSelector",
     [](const Held& held) { return WFTaskFactory::create_selector_task(2, never_called(held)); }},
    {"Conditional",
     [](const Held& held) { return WFTaskFactory::create_conditional(inner(held)); }},
    {"SignalledConditional",
     [](const Held& held) {
       WFConditional* task = WFTaskFactory::create_conditional(inner(held));
       task->signal(&world());
       return task;
     }},
    {"NamedConditional",
     [](const Held& held) { return WFTaskFactory::create_conditional("name", inner(held)); }},
    {"SignalledNamedConditional",
     [](const Held& held) {
       WFConditional* task = WFTaskFactory::create_conditional("signalled", inner(held));
       EXPECT_EQ(WFTaskFactory::signal_by_name("signalled", &world()), 1);
       return task;
     }},
    {"NestedConditionals",
     [](const Held& held) {
       WFConditional* task = WFTaskFactory::create_conditional("name", inner(held));
       for (int i = 0; i < 100; i++) {
         task = WFTaskFactory::create_conditional(task);
       }
       return task;
     }},
    {"Guard", [](const Held& held) { return WFTaskFactory::create_guard("name", inner(held)); }},
    {"GetterOfAPool", [](const Held& held) { return world().pool.get(inner(held)); }},
    {"GetterOfAQueue", [](const Held& held) { return world().queue.get(inner(held)); }},
    {"Go",
     [](const Held& held) {
       return WFTaskFactory::create_go_task("name", [held] { ADD_FAILURE() << "it computed"; });
     }},
    {"ResetGo",
     [](const Held& held) {
       WFGoTask* task = WFTaskFactory::create_go_task("name", [] { ADD_FAILURE(); });
       WFTaskFactory::reset_go_task(task, [held] { ADD_FAILURE() << "it computed"; });
       task->set_callback(never_called(held));
       return task;
     }},
    {"TimedGo",
     [](const Held& held) {
       return WFTaskFactory::create_timedgo_task(0, 1, "name",
                                                 [held] { ADD_FAILURE() << "it computed"; });
     }},
    {"Thread",
     [](const Held& held) {
       auto* task = ThreadFactory::create_thread_task(
           "name", [held](std::string*, std::string*) { ADD_FAILURE() << "it computed"; },
           never_called(held));
       *task->get_input() = std::string(100, 'x');
       return task;
     }},
    {"TimedThread",
     [](const Held& held) {
       return ThreadFactory::create_thread_task(
           1, 0, "name", [](std::string*, std::string*) {}, never_called(held));
     }},
    {"Dynamic",
     [](const Held& held) {
       return WFTaskFactory::create_dynamic_task([held](WFDynamicTask*) -> SubTask* {
         ADD_FAILURE() << "it was made";
         return nullptr;
       });
     }},
    {"Repeater",
     [](const Held& held) {
       return WFTaskFactory::create_repeater_task(
           [held](WFRepeaterTask*) -> SubTask* {
             ADD_FAILURE() << "it was made";
             return nullptr;
           },
           never_called(held));
     }},
    {"Module",
     [](const Held& held) {
       WFModuleTask* task =
           WFTaskFactory::create_module_task(inner(held), inner(held), never_called(held));
       *task->sub_series() << inner(held) << WFTaskFactory::create_counter_task("name", 1, nullptr);
       return task;
     }},
    {"Graph",
     [](const Held& held) {
       WFGraphTask* task = WFTaskFactory::create_graph_task(never_called(held));
       WFGraphNode& first = task->create_graph_node(inner(held));
       WFGraphNode& second =
           task->create_graph_node(WFTaskFactory::create_conditional("name", inner(held)));
       first-- > second;
       return task;
     }},
    {"Parallel",
     [](const Held& held) {
       ParallelWork* task = Workflow::create_parallel_work(never_called(held));
       for (int i = 0; i < 3; i++) {
         SeriesWork* series = new CountedSeries(inner(held), never_called(held));
         series->push_back(WFTaskFactory::create_mailbox_task("name", never_called(held)));
         series->set_last_task(inner(held));
         task->add_series(series);
       }
       return task;
     }},
    {"FileRead",
     [](const Held& held) {
       return WFTaskFactory::create_pread_task(-1, nullptr, 0, 0, never_called(held));
     }},
    {"FileWriteByPath",
     [](const Held& held) {
       return WFTaskFactory::create_pwrite_task("/nowhere/file", nullptr, 0, 0, never_called(held));
     }},
    {"FileReadVectors",
     [](const Held& held) {
       return WFTaskFactory::create_preadv_task(-1, nullptr, 0, 0, never_called(held));
     }},
    {"FileSync",
     [](const Held& held) { return WFTaskFactory::create_fsync_task(-1, never_called(held)); }},
};

// Places: each drops the task it is given.
struct Place {
  const char* name;
  void (*drop)(SubTask* task);
};

SeriesWork* series_of_one(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

// Runs a series whose first task cancels it, and which then holds the task.
void cancel_before(SubTask* task, void (*add)(SeriesWork*, SubTask*)) {
  SeriesWork* series = new CountedSeries(
      new LogTask(&world().log, "", [](LogTask* first) { series_of(first)->cancel(); }), nullptr);
  add(series, task);
  EXPECT_TRUE(probes::run(series));
}

const Place kPlaces[] = {
    {"FirstOfASeries", [](SubTask* task) { series_of_one(task)->dismiss(); }},
    {"LaterInASeries",
     [](SubTask* task) {
       SeriesWork* series = series_of_one(WFTaskFactory::create_empty_task());
       series->push_back(task);
       series->push_back(WFTaskFactory::create_empty_task());
       series->dismiss();
     }},
    {"LastOfASeries",
     [](SubTask* task) {
       Workflow::create_series_work(WFTaskFactory::create_empty_task(), task, nullptr)->dismiss();
     }},
    {"InAParallel",
     [](SubTask* task) {
       ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
       parallel->add_series(series_of_one(task));
       parallel->dismiss();
     }},
    {"InAParallelInASeries",
     [](SubTask* task) {
       ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
       parallel->add_series(series_of_one(task));
       series_of_one(parallel)->dismiss();
     }},
    {"InAModule",
     [](SubTask* task) { WFTaskFactory::create_module_task(task, nullptr)->dismiss(); }},
    {"LastOfAModule",
     [](SubTask* task) {
       WFTaskFactory::create_module_task(WFTaskFactory::create_empty_task(), task, nullptr)
           ->dismiss();
     }},
    {"InAGraph",
     [](SubTask* task) {
       WFGraphTask* graph = WFTaskFactory::create_graph_task(nullptr);
       WFGraphNode& node = graph->create_graph_node(task);
       graph->create_graph_node(WFTaskFactory::create_empty_task()).precede(node);
       graph->dismiss();
     }},
    {"InAGraphWithACircle",
     [](SubTask* task) {
       Tally ended;
       WFGraphTask* graph = WFTaskFactory::create_graph_task([&](WFGraphTask* finished) {
         EXPECT_EQ(finished->get_error(), EDEADLK);
         ended.add();
       });
       WFGraphNode& node = graph->create_graph_node(task);
       node.precede(node);
       EXPECT_TRUE(probes::run(graph));
     }},
    {"AfterACancelledNode",
     [](SubTask* task) {
       WFGraphTask* graph = WFTaskFactory::create_graph_task(nullptr);
       WFGraphNode& node = graph->create_graph_node(task);
       graph
           ->create_graph_node(
               new LogTask(&world().log, "", [](LogTask* first) { series_of(first)->cancel(); }))
           .precede(node);
       EXPECT_TRUE(probes::run(graph));
     }},
    {"InAConditional", [](SubTask* task) { WFTaskFactory::create_conditional(task)->dismiss(); }},
    {"InASignalledConditional",
     [](SubTask* task) {
       WFConditional* conditional = WFTaskFactory::create_conditional(task);
       conditional->signal(nullptr);
       conditional->dismiss();
     }},
    {"InASignalledNamedConditional",
     [](SubTask* task) {
       WFConditional* conditional = WFTaskFactory::create_conditional("conditional", task);
       EXPECT_EQ(WFTaskFactory::signal_by_name("conditional", nullptr), 1);
       conditional->dismiss();
     }},
    {"InAConditionalOfACancelledSeries",
     [](SubTask* task) {
       Tally ended;
       WFConditional* conditional = WFTaskFactory::create_conditional("conditional", task);
       SeriesWork* series = Workflow::create_series_work(conditional, probes::counting(ended));
       series->start();
       std::thread([series] { series->cancel(); }).join();
       EXPECT_EQ(WFTaskFactory::signal_by_name("conditional", nullptr), 1);
       EXPECT_TRUE(ended.wait_for(1));
     }},
    {"InAGuard", [](SubTask* task) { WFTaskFactory::create_guard("guard", task)->dismiss(); }},
    {"InAGuardOfACancelledSeries",
     [](SubTask* task) {
       Tally ended;
       WFTaskFactory::create_guard("guard", WFTaskFactory::create_empty_task())->start();
       SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_guard("guard", task),
                                                         probes::counting(ended));
       series->start();
       std::thread([series] { series->cancel(); }).join();
       EXPECT_EQ(WFTaskFactory::release_guard("guard", nullptr), 1);
       EXPECT_TRUE(ended.wait_for(1));
     }},
    {"InAGetterOfACancelledSeries",
     [](SubTask* task) {
       WFResourcePool pool(0);
       Tally ended;
       SeriesWork* series = Workflow::create_series_work(pool.get(task), probes::counting(ended));
       series->start();
       std::thread([series] { series->cancel(); }).join();
       pool.post(nullptr);
       EXPECT_TRUE(ended.wait_for(1));
     }},
    {"LaterInACancelledSeries",
     [](SubTask* task) {
       cancel_before(task, [](SeriesWork* series, SubTask* each) { series->push_back(each); });
     }},
    {"LastOfACancelledSeries",
     [](SubTask* task) {
       cancel_before(task, [](SeriesWork* series, SubTask* each) { series->set_last_task(each); });
     }},
    {"FirstOfASeriesCancelledBeforeItsStart",
     [](SubTask* task) {
       SeriesWork* series = series_of_one(task);
       series->cancel();
       EXPECT_TRUE(probes::run(series));
     }},
    {"InAParallelOfACancelledSeries",
     [](SubTask* task) {
       cancel_before(task, [](SeriesWork* series, SubTask* each) {
         ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
         parallel->add_series(series_of_one(each));
         series->push_back(parallel);
       });
     }},
    {"InAModuleOfACancelledSeries",
     [](SubTask* task) {
       cancel_before(task, [](SeriesWork* series, SubTask* each) {
         series->push_back(WFTaskFactory::create_module_task(each, nullptr));
       });
     }},
    {"InAGraphOfACancelledSeries",
     [](SubTask* task) {
       cancel_before(task, [](SeriesWork* series, SubTask* each) {
         WFGraphTask* graph = WFTaskFactory::create_graph_task(nullptr);
         graph->create_graph_node(each);
         series->push_back(graph);
       });
     }},
    {"OfARepeaterThatIsCancelled",
     [](SubTask* task) {
       // Made, when the series is cancelled already.
       SeriesWork* series = series_of_one(WFTaskFactory::create_repeater_task(
           [task](WFRepeaterTask* repeater) -> SubTask* {
             series_of(repeater)->cancel();
             return task;
           },
           nullptr));
       EXPECT_TRUE(probes::run(series));
     }},
    {"OfADynamicTaskInACancelledSeries",
     [](SubTask* task) {
       SeriesWork* series = series_of_one(
           WFTaskFactory::create_dynamic_task([task](WFDynamicTask* dynamic) -> SubTask* {
             series_of(dynamic)->cancel();
             return task;
           }));
       EXPECT_TRUE(probes::run(series));
     }},
};

class Dismiss : public testing::TestWithParam<DismissedKind> {};

bool no_name_left() {
  return workflow::NamedTimerTask::registry().empty() &&
         workflow::NamedCounterTask::registry().empty() &&
         workflow::NamedMailboxTask::registry().empty() &&
         workflow::NamedConditional::registry().empty() && workflow::GuardTask::registry().empty();
}

// Series die a moment after their callback.
bool freed(const std::weak_ptr<int>& held) {
  const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
  while (!held.expired() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  return held.expired();
}

}  // namespace

TEST_P(Dismiss, FreesTheTaskWithoutItsCallback) {
  Held held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  const Made made = GetParam().make(held);
  held.reset();
  EXPECT_FALSE(watched.expired());
  made.dismiss();
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(CountedSeries::alive(), 0);
  EXPECT_TRUE(no_name_left());
}

TEST_P(Dismiss, OfWhatItIsInFreesTheTaskToo) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Held held = std::make_shared<int>();
    const std::weak_ptr<int> watched = held;
    SubTask* task = GetParam().make(held).task;
    held.reset();
    place.drop(task);
    EXPECT_TRUE(freed(watched));
    EXPECT_TRUE(probes::all_gone());
    EXPECT_TRUE(no_name_left());
  }
  EXPECT_EQ(world().log.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Of, Dismiss, testing::ValuesIn(kDismissedKinds),
                         [](const auto& instance) { return std::string(instance.param.name); });

namespace {

// A little that runs, then the gate, then every kind once.
SeriesWork* series_of_every_kind(const Held& held, int round, SubTask* gate) {
  const auto ran = [held](const auto*) {};
  const auto quick = [ran] { return WFTaskFactory::create_counter_task(0, ran); };
  SeriesWork* series =
      series_of_one(WFTaskFactory::create_timer_task(static_cast<unsigned int>(round % 50), ran));
  *series << WFTaskFactory::create_go_task("name", [held] {}) << quick()
          << WFTaskFactory::create_module_task(
                 WFTaskFactory::create_timer_task("name", 0, round % 3 * 1000, ran), ran)
          << world().pool.get(WFTaskFactory::create_counter_task(
                 0, [held](WFCounterTask*) { world().pool.post(nullptr); }))
          << WFTaskFactory::create_guard(
                 "name",
                 WFTaskFactory::create_counter_task(
                     0, [held](WFCounterTask*) { WFTaskFactory::release_guard("name", nullptr); }))
          << WFTaskFactory::create_timer_task(static_cast<unsigned int>(round % 7), ran) << gate;
  for (const DismissedKind& kind : kDismissedKinds) {
    series->push_back(kind.make(held).task);
  }
  return series;
}

}  // namespace

TEST(DismissAll, OfASeriesThatAnotherThreadCancelsAtAnyStage) {
  for (int round = 0; round < 300; round++) {
    Tally ended;
    // Holds the series until it is cancelled, so that there is one to cancel. Named, as the cancel
    // may drop it.
    WFCounterTask* gate = WFTaskFactory::create_counter_task("gate", 1, nullptr);
    Held held = std::make_shared<int>();
    const std::weak_ptr<int> watched = held;
    SeriesWork* series = series_of_every_kind(held, round, gate);
    series->set_callback(probes::counting(ended));
    held.reset();
    std::thread canceller([series, round] {
      std::this_thread::sleep_for(std::chrono::microseconds(round % 120));
      series->cancel();
      WFTaskFactory::count_by_name("gate");
    });
    series->start();
    canceller.join();
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_TRUE(freed(watched));
    ASSERT_TRUE(probes::all_gone());
  }
  EXPECT_TRUE(no_name_left());
}
