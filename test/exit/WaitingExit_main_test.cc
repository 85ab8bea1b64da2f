#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "WaitingKit.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFScope.h"
#include "workflow/WFTaskFactory.h"

// Tasks that still wait when the process ends.

using namespace exit_kit;

namespace {

void wait_alone() {
  hold_the_guard();
  WFFacilities::usleep(1);  // the library runs
  for (int i = 0; i < 1000; i++) {
    start_every_waiting_kind();
  }
  exit_with_all(WFT_STATE_ABORTED);
}

// Inside of others, which end with them.
void wait_inside() {
  hold_the_guard();
  for (int i = 0; i < 100; i++) {
    const auto counter = [] {
      return WFTaskFactory::create_counter_task(1, ledger().callback("inner counter"));
    };
    SeriesWork* series = Workflow::create_series_work(counter(), ledger().stateless("series"));
    series->push_back(counter());
    series->start();
    SeriesWork* branches[] = {Workflow::create_series_work(counter(), nullptr),
                              Workflow::create_series_work(counter(), nullptr)};
    Workflow::start_parallel_work(branches, 2, ledger().stateless("parallel"));
    WFTaskFactory::create_module_task(counter(), counter(), ledger().stateless("module"))->start();
    WFGraphTask* graph = WFTaskFactory::create_graph_task(
        [done = ledger().stateless("graph")](WFGraphTask* task) { done(task); });
    WFGraphNode& first = graph->create_graph_node(counter());
    WFGraphNode& second = graph->create_graph_node(counter());
    WFGraphNode& third = graph->create_graph_node(
        WFTaskFactory::create_mailbox_task("name", ledger().callback("inner mailbox")));
    first-- > second;
    first-- > third;
    graph->start();
    WFTaskFactory::create_repeater_task(
        [](WFRepeaterTask*) { return WFTaskFactory::create_mailbox_task("name", nullptr); },
        ledger().callback("repeater"))
        ->start();
    // Its wrapped task waits, too.
    WFConditional* conditional = WFTaskFactory::create_conditional(counter());
    conditional->signal(nullptr);
    conditional->start();
    // What follows an aborted conditional is dropped.
    SeriesWork* dropping = Workflow::create_series_work(
        WFTaskFactory::create_conditional("name", dropped("conditional in a series")),
        ledger().stateless("series of a conditional"));
    dropping->push_back(dropped("after a conditional"));
    dropping->start();
  }
  last_word.word = [] {
    // Those without a state said SUCCESS.
    ledger().say_all(WFT_STATE_ABORTED);
    say(names_left());
  };
}

// Inside scopes, with and without a deadline and inside each other. What is left of the series then
// is aborted, too.
void wait_in_scopes() {
  hold_the_guard();
  static std::vector<WFScope>& scopes = *new std::vector<WFScope>;
  const auto scoped = [](SubTask* inside, std::chrono::seconds limit) {
    WFScopeTask* task =
        WFTaskFactory::create_deadline_task(inside, limit, ledger().callback("scope"));
    *task->sub_series() << WFTaskFactory::create_timer_task(1, 0, ledger().callback("what follows"))
                        << WFTaskFactory::create_go_task("queue", [] { say("computed"); });
    scopes.push_back(task->scope());
    return task;
  };
  for (int i = 0; i < 100; i++) {
    const auto counter = [] {
      return WFTaskFactory::create_counter_task(1, ledger().callback("counter in a scope"));
    };
    scoped(counter(), std::chrono::seconds(-1))->start();
    scoped(WFTaskFactory::create_timer_task("name", 3600, 0, ledger().callback("named timer")),
           std::chrono::hours(1))
        ->start();
    scoped(scoped(counter(), std::chrono::hours(1)), std::chrono::hours(2))->start();
    // Its task is dropped, and so is what follows it in its series.
    WFTaskFactory::create_scope_task(WFTaskFactory::create_guard("held", dropped("guard")),
                                     ledger().callback("scope of a guard"))
        ->start();
  }
  begin_exit([] {
    ledger().say_all(WFT_STATE_ABORTED);
    for (const WFScope& scope : scopes) {
      if (scope.error() != 0 || scope.cancel()) {
        say("a scope had not ended, or had an error");
      }
    }
    say(names_left());
  });
}

void start_after_the_stop() {
  WFFacilities::usleep(1);
  last_word.word = [] {
    WFTaskFactory::create_guard("held", WFTaskFactory::create_empty_task())->start();
    start_every_waiting_kind();
    ledger().say_all(WFT_STATE_ABORTED);
    say(names_left());
    // What need not wait succeeds.
    WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task([](WFMailboxTask* task) {
      say("sent before: state " + std::to_string(task->get_state()));
    });
    mailbox->send(nullptr);
    mailbox->start();
  };
}

// Others that go on when the library stops, and long after.
void bring_late() {
  hold_the_guard();
  static std::vector<std::function<void()>>& late = *new std::vector<std::function<void()>>;
  for (int i = 0; i < 500; i++) {
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, ledger().callback("counter"));
    WFCounterTask* named =
        WFTaskFactory::create_counter_task("name", 1, ledger().callback("named counter"));
    WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(ledger().callback("mailbox"));
    WFMailboxTask* named_mailbox =
        WFTaskFactory::create_mailbox_task("name", ledger().callback("named mailbox"));
    WFSelectorTask* selector =
        WFTaskFactory::create_selector_task(2, ledger().callback("selector"));
    WFConditional* conditional = WFTaskFactory::create_conditional(dropped("conditional"));
    WFConditional* guard = WFTaskFactory::create_guard("held", dropped("guard"));
    for (WFGenericTask* task :
         {static_cast<WFGenericTask*>(counter), static_cast<WFGenericTask*>(named),
          static_cast<WFGenericTask*>(mailbox), static_cast<WFGenericTask*>(named_mailbox),
          static_cast<WFGenericTask*>(selector), static_cast<WFGenericTask*>(conditional),
          static_cast<WFGenericTask*>(guard)}) {
      task->start();
    }
    empty_queue().get(dropped("getter"))->start();
    late.push_back([=] {
      counter->count();
      named->count();
      mailbox->send(&late);
      named_mailbox->send(&late);
      if (selector->submit(&late) != 0 || selector->submit(nullptr) != 0) {
        say("a late submit won");
      }
      conditional->signal(&late);
    });
  }
  last_word.word = [] {
    ledger().say_all(WFT_STATE_ABORTED);
    for (const auto& bring : late) {
      bring();
    }
    if (WFTaskFactory::count_by_name("name", 1000) + WFTaskFactory::send_by_name("name", &late) +
            WFTaskFactory::signal_by_name("name", &late) +
            WFTaskFactory::release_guard("held", nullptr) >
        0) {
      say("a late call by name found somebody");
    }
    empty_queue().post(&late);
    ledger().say_all(WFT_STATE_ABORTED);
    say(names_left());
  };
}

// Unstarted ones are nobody's but the user's.
void leave_some_unstarted() {
  WFFacilities::usleep(1);
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task("name", ledger().callback("mailbox"));
  last_word.word = [mailbox] {
    say(std::to_string(WFTaskFactory::send_by_name("name", nullptr)) + " got it");
    mailbox->start();
    ledger().say_all(WFT_STATE_SUCCESS);
  };
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"alone", wait_alone},           {"inside", wait_inside}, {"scopes", wait_in_scopes},
    {"after", start_after_the_stop}, {"late", bring_late},    {"unstarted", leave_some_unstarted},
};

}  // namespace

TEST(WaitingExit, WhatWaitsIsAbortedOnceAndPromptly) {
  EXPECT_EQ(play_promptly("alone"), "10000 of 10000 as expected\nno name left\n");
}

TEST(WaitingExit, WhatHoldsWaitingTasksEndsWithThem) {
  const std::string output = play("inside");
  // Per round: series, parallel, module, graph and the series of a conditional end; see say_all().
  size_t stateless = 0;
  for (size_t at = 0; (at = output.find("ended 1 times, state 0\n", at)) != std::string::npos;
       at++) {
    stateless++;
  }
  EXPECT_EQ(stateless, 500u);
  EXPECT_NE(output.find("1300 of 1800 as expected\nno name left\n"), std::string::npos)
      << output.substr(0, 2000);
}

TEST(WaitingExit, ScopesAreAbortedOnceWithWhatIsInThem) {
  EXPECT_EQ(play_promptly("scopes"), "1300 of 1300 as expected\nno name left\n");
}

TEST(WaitingExit, WhatStartsAfterTheStopIsAborted) {
  EXPECT_EQ(play("after"), "10 of 10 as expected\nno name left\nsent before: state 0\n");
}

TEST(WaitingExit, WhatIsBroughtAfterTheAbortIsIgnored) {
  EXPECT_EQ(play("late"), "4000 of 4000 as expected\n4000 of 4000 as expected\nno name left\n");
}

TEST(WaitingExit, UnstartedTasksMayBeSentToAndStartedAfterTheStop) {
  EXPECT_EQ(play("unstarted"), "1 got it\n1 of 1 as expected\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}
