#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "WaitingKit.h"
#include "support/OnPoller.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

// What is brought to waiting tasks while the process ends. They end at once, as aborted; what comes
// before that is delivered, what comes later finds nobody. Each task ends once.

using namespace exit_kit;

namespace {

// A queue of computations stands, some with a limit, when the process ends.
void wait_for_computations() {
  static std::atomic<bool> blocked{false};
  for (int i = 0; i < 64; i++) {
    WFTaskFactory::create_go_task("queue", [] {
      blocked = true;
      // Long enough for the others to be in the queue when the process ends.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    })->start();
  }
  while (!blocked) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 200; i++) {
    WFCounterTask* counter =
        WFTaskFactory::create_counter_task(1, ledger().callback("counter of a go task"));
    counter->start();
    WFGoTask* go = i % 2 ? WFTaskFactory::create_go_task("queue", [] {})
                         : WFTaskFactory::create_timedgo_task(3600, 0, "queue", [] {});
    go->set_callback([counter](WFGoTask*) { counter->count(); });
    go->start();
  }
  exit_with_all(WFT_STATE_ABORTED, WFT_STATE_SUCCESS);
}

// The aborted callbacks of timers, one after the other in a series, bring what others wait for, or
// come too late.
void bring_when_aborted() {
  hold_the_guard();
  for (int i = 0; i < 100; i++) {
    WFCounterTask* counter = WFTaskFactory::create_counter_task(2, ledger().callback("counter"));
    WFMailboxTask* mailbox =
        WFTaskFactory::create_mailbox_task("name", ledger().callback("mailbox"));
    WFSelectorTask* selector =
        WFTaskFactory::create_selector_task(1, ledger().callback("selector"));
    WFConditional* conditional = WFTaskFactory::create_conditional(dropped("conditional"));
    WFTaskFactory::create_guard(
        "held", dropped("guard", [] { WFTaskFactory::release_guard("held", nullptr); }))
        ->start();
    empty_pool().get(dropped("getter", [] { empty_pool().post(nullptr); }))->start();
    counter->start();
    mailbox->start();
    selector->start();
    conditional->start();
    SeriesWork* series = Workflow::create_series_work(
        WFTaskFactory::create_timer_task(-1, 0,
                                         [=](WFTimerTask*) {
                                           counter->count();
                                           conditional->signal(nullptr);
                                         }),
        nullptr);
    WFGoTask* go = WFTaskFactory::create_go_task("queue", [] {});
    go->set_callback([=](WFGoTask*) {
      WFTaskFactory::send_by_name("name", nullptr, 1);
      selector->submit(&ledger());
    });
    *series << go
            << WFTaskFactory::create_timer_task(3600, 0, [=](WFTimerTask*) { counter->count(); });
    series->start();
  }
  WFTaskFactory::create_timer_task(-1, 0, [](WFTimerTask*) {
    empty_pool().post(nullptr);
    WFTaskFactory::release_guard("held", nullptr);
  })->start();
  exit_with_all(WFT_STATE_ABORTED, WFT_STATE_SUCCESS);
}

// A callback that a poller runs itself is long when the process ends, and brings something then.
void bring_from_a_poller() {
  static test_support::Tally& on_poller = *new test_support::Tally;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(1, ledger().callback("counter"));
  counter->start();
  test_support::start_on_poller([counter] {
    on_poller.add();
    // Far longer than everything else runs.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    counter->count();
  });
  on_poller.wait_for(1);
  exit_with_all(WFT_STATE_ABORTED, WFT_STATE_SUCCESS);
}

// Threads that bring at the very moment of the stop; what they brought has arrived, or not.
void bring_meanwhile() {
  static std::atomic<bool> ended{false};
  static std::vector<std::thread>& threads = *new std::vector<std::thread>;
  static std::atomic<int> claimed{0};
  static std::atomic<int> succeeded{0};
  static std::atomic<int> called{0};
  static std::atomic<int> started{0};
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([] {
      while (!ended) {
        started++;
        WFMailboxTask* mailbox =
            WFTaskFactory::create_mailbox_task("name", [](WFMailboxTask* task) {
              called++;
              succeeded += task->get_state() == WFT_STATE_SUCCESS;
            });
        mailbox->start();
        claimed += WFTaskFactory::send_by_name("name", nullptr, 1);
      }
    });
  }
  // By now the library runs: else it might start after the last word.
  while (called < 1000) {
    std::this_thread::yield();
  }
  last_word.word = [] {
    ended = true;
    for (std::thread& thread : threads) {
      thread.join();
    }
    // Posted to nobody by now: all has run.
    say(called == started ? "each called back once" : "callbacks are missing");
    say(claimed == succeeded ? "the counts are the outcomes" : "the counts are not the outcomes");
    say(names_left());
  };
}

// Each callback of an aborted task brings to all others, and starts more.
void bring_from_aborted_callbacks() {
  hold_the_guard();
  static std::vector<WFMailboxTask*>& mailboxes = *new std::vector<WFMailboxTask*>;
  static std::vector<WFSelectorTask*>& selectors = *new std::vector<WFSelectorTask*>;
  static std::atomic<int> calls{0};
  static std::atomic<int> started{0};
  constexpr size_t kEach = 50;
  const auto act = [](auto* task) {
    const int call = calls++;
    if (task->get_state() != WFT_STATE_SUCCESS && task->get_state() != WFT_STATE_ABORTED) {
      say("strange state");
    }
    WFTaskFactory::send_by_name("name", nullptr, 2);
    WFTaskFactory::count_by_name("name");
    WFTaskFactory::release_guard("held", nullptr);
    // Anonymous ones once each, as they may be gone after that.
    if (static_cast<size_t>(call) < kEach) {
      mailboxes[static_cast<size_t>(call)]->send(nullptr);
      selectors[static_cast<size_t>(call)]->submit(&calls);
    }
    if (call % 3 == 0) {
      started++;
      WFTaskFactory::create_mailbox_task("name", [](WFMailboxTask*) { calls++; })->start();
    }
  };
  for (size_t i = 0; i < kEach; i++) {
    mailboxes.push_back(WFTaskFactory::create_mailbox_task(act));
    selectors.push_back(WFTaskFactory::create_selector_task(1, act));
  }
  for (size_t i = 0; i < kEach; i++) {
    mailboxes[i]->start();
    selectors[i]->start();
    WFTaskFactory::create_mailbox_task("name", act)->start();
    WFTaskFactory::create_counter_task("name", 1, act)->start();
    started += 4;
  }
  last_word.word = [] {
    say(calls == started ? "each called back once" : "callbacks are missing");
    say(names_left());
  };
}

// The first callback of one send ends the process: the other callbacks still run.
void exit_in_a_callback_of_a_send() {
  for (int i = 0; i < 3; i++) {
    WFTaskFactory::create_mailbox_task("name", [i](WFMailboxTask*) {
      if (i == 0) {
        std::exit(0);
      }
      say("called");
    })->start();
  }
  last_word.word = [] { say("the end"); };
  WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask*) {
    WFTaskFactory::send_by_name("name", nullptr);
  })->start();
  exit_kit::wait_for_exit();
}

// Callbacks that block until an aborted task's callback lets them go.
void wait_for_the_aborted() {
  constexpr size_t kCallbacks = 10;
  static test_support::Tally& begun = *new test_support::Tally;  // callbacks outlive statics
  for (size_t i = 0; i < kCallbacks; i++) {
    WFTaskFactory::create_timer_task(0, 0, [](WFTimerTask*) {
      WFFacilities::WaitGroup group(1);
      WFTaskFactory::create_mailbox_task(ledger().callback("mailbox", [&group] {
        group.done();
      }))->start();
      begun.add();
      group.wait();
    })->start();
  }
  begun.wait_for(kCallbacks);
  exit_with_all(WFT_STATE_ABORTED);
}

constexpr exit_kit::Scenario kScenarios[] = {
    {"computations", wait_for_computations},
    {"bring", bring_when_aborted},
    {"poller", bring_from_a_poller},
    {"meanwhile", bring_meanwhile},
    {"aborted-bring", bring_from_aborted_callbacks},
    {"exit-in-send", exit_in_a_callback_of_a_send},
    {"blocked", wait_for_the_aborted},
};

}  // namespace

TEST(BringingExit, ComputationsInTheQueueMayBringWhatIsWaitedFor) {
  EXPECT_EQ(play_promptly("computations"), "200 of 200 as expected\nno name left\n");
}

TEST(BringingExit, AbortedTimersMayBringWhatIsWaitedFor) {
  EXPECT_EQ(play_promptly("bring"), "600 of 600 as expected\nno name left\n");
}

TEST(BringingExit, CallbacksThatPollersRunMayBringWhatIsWaitedFor) {
  EXPECT_EQ(play_promptly("poller"), "1 of 1 as expected\nno name left\n");
}

TEST(BringingExit, ThreadsThatBringMeanwhileAreToldTheTruth) {
  EXPECT_EQ(play("meanwhile"),
            "each called back once\nthe counts are the outcomes\nno name left\n");
}

TEST(BringingExit, CallbacksOfTheAbortedMayBringToOthers) {
  EXPECT_EQ(play("aborted-bring"), "each called back once\nno name left\n");
}

TEST(BringingExit, InACallbackOfASendTheOthersAreCalledBack) {
  EXPECT_EQ(play("exit-in-send"), "called\ncalled\nthe end\n");
}

TEST(BringingExit, WhoBlocksUntilAnAbortIsReleased) {
  EXPECT_EQ(play_promptly("blocked"), "10 of 10 as expected\nno name left\n");
}

int main(int argc, char** argv) {
  return exit_kit::run(kScenarios, argc, argv);
}
