// Tasks that wait for others under every interleaving that many seeds find: see WaitingLedger for
// what is asserted of each scenario beside its own.

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "WaitingLedger.h"
#include "support/Seeds.h"
#include "workflow/WFFacilities.h"

namespace {

using Record = WaitingLedger::Record;

TEST(WaitingProtocol, StartMeetsSend) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    for (const char* name : {"", "a"}) {
      WFMailboxTask* mailbox = ledger.mailbox(name);
      WFConditional* conditional = ledger.conditional(name);
      Record& record = ledger.record_of(mailbox);
      Record& conditional_record = ledger.record_of(conditional);
      ledger.simulation().spawn([=] {
        mailbox->start();
        conditional->start();
      });
      ledger.simulation().spawn([&, mailbox, name] {
        mailbox->send(ledger.message(1));
        if (*name && record.slot) ledger.note_direct(WaitingLedger::kMailbox);
      });
      ledger.simulation().spawn([&, conditional, name] {
        conditional->signal(ledger.message(2));
        if (*name && conditional_record.slot) ledger.note_direct(WaitingLedger::kConditional);
      });
    }
    end(ledger, seed);
    if (seed % 2) {
      EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS), 4u);
    }
  });
}

TEST(WaitingProtocol, StartMeetsSendByNameMeetsDismiss) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    std::vector<WFMailboxTask*> mailboxes;
    std::vector<WFConditional*> conditionals;
    for (int i = 0; i < 4; i++) {
      mailboxes.push_back(ledger.mailbox("a"));
      conditionals.push_back(ledger.conditional("a"));
    }
    ledger.simulation().spawn([&] {
      mailboxes[0]->start();
      ledger.dismiss(mailboxes[1]);
      conditionals[1]->start();
      ledger.dismiss(conditionals[0]);
    });
    ledger.simulation().spawn([&] {
      ledger.dismiss(conditionals[2]);
      mailboxes[3]->start();
      ledger.dismiss(mailboxes[2]);
      conditionals[3]->start();
    });
    for (int sender = 0; sender < 2; sender++) {
      ledger.simulation().spawn([&] {
        EXPECT_LE(ledger.send("a", 1), 1);
        EXPECT_LE(ledger.signal("a", 2), 2);
        ledger.send("a");
        ledger.signal("a", 1);
      });
    }
    end(ledger, seed);
  });
}

TEST(WaitingProtocol, SendsGoToTheOldest) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    std::vector<WFMailboxTask*> mailboxes;
    for (int i = 0; i < 4; i++) {
      mailboxes.push_back(ledger.mailbox("a"));
    }
    ledger.simulation().spawn([&] {
      for (size_t i = 4; i-- > 0;) {
        mailboxes[i]->start();
      }
    });
    ledger.simulation().spawn([&] { EXPECT_EQ(ledger.send("a", 1), 1); });
    ledger.simulation().spawn([&] { EXPECT_EQ(ledger.send("a", 2), 2); });
    ledger.run();
    ledger.close();
    for (size_t i = 0; i < 4; i++) {
      EXPECT_EQ(ledger.records()[i].state, i < 3 ? WFT_STATE_SUCCESS : WFT_STATE_ABORTED);
    }
  });
}

TEST(WaitingProtocol, CountsMeetStartAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    WFCounterTask* anonymous = ledger.counter("", 3);
    WFCounterTask* named = ledger.counter("b", 4);
    int reached = 0;
    for (int thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&, anonymous] {
        anonymous->count();
        reached += ledger.count("b", 1);
      });
    }
    ledger.simulation().spawn([=] {
      anonymous->start();
      named->count();
      named->start();
    });
    end(ledger, seed);
    EXPECT_LE(reached, 1);
    if (seed % 2) {
      EXPECT_EQ(ledger.ended(WFT_STATE_SUCCESS), 2u);
    }
  });
}

TEST(WaitingProtocol, CountsByNameMeetDismiss) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    std::vector<WFCounterTask*> counters;
    for (int i = 0; i < 4; i++) {
      counters.push_back(ledger.counter("a", 2));
    }
    ledger.simulation().spawn([&] {
      ledger.dismiss(counters[0]);
      counters[1]->start();
      ledger.dismiss(counters[2]);
      counters[3]->start();
    });
    for (int thread = 0; thread < 2; thread++) {
      ledger.simulation().spawn([&] {
        ledger.count("a", 3);
        ledger.count("a", 1);
      });
    }
    end(ledger, seed);
    // Each that succeeded was reported once; of the dismissed ones some may have been.
    const int succeeded = static_cast<int>(ledger.ended(WFT_STATE_SUCCESS));
    EXPECT_GE(ledger.counted(WaitingLedger::kCounter), succeeded);
    EXPECT_LE(ledger.counted(WaitingLedger::kCounter), succeeded + 2);
  });
}

TEST(WaitingProtocol, SubmitsMeetStartDropAndStop) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    for (const bool dropped : {false, true}) {
      WFSelectorTask* selector = ledger.selector(3);
      Record& record = ledger.record_of(selector);
      for (size_t i = 0; i < 3; i++) {
        ledger.simulation().spawn([&, selector, i] {
          ledger.submit(selector, record, i < seed % 4 ? ledger.message(i) : nullptr);
        });
      }
      ledger.simulation().spawn([&, selector, dropped] {
        if (dropped) {
          ledger.dismiss(selector);
        } else {
          selector->start();
        }
      });
    }
    end(ledger, seed);
    const Record& record = ledger.records()[0];
    if (record.state == WFT_STATE_SYS_ERROR) {
      EXPECT_EQ(record.error, ENOMSG);
      EXPECT_EQ(seed % 4, 0u);
    }
    if (seed % 2) {
      EXPECT_NE(record.state, WFT_STATE_ABORTED);
    }
  });
}

TEST(WaitingProtocol, SeriesIsCancelledWhileItsSelectorIsSubmittedTo) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    WFCounterTask* gate = ledger.counter("", 2);
    WFSelectorTask* selector = ledger.selector(2);
    Record& record = ledger.record_of(selector);
    record.dispatched = false;
    SeriesWork* series = Workflow::create_series_work(gate, nullptr);
    series->push_back(selector);
    series->start();
    ledger.simulation().spawn([=] {
      series->cancel();
      gate->count();
    });
    ledger.simulation().spawn([&, selector] {
      ledger.submit(selector, record, ledger.message(1));
      gate->count();
    });
    ledger.simulation().spawn(
        [&, selector] { ledger.submit(selector, record, ledger.message(2)); });
    // Not stopped meanwhile, for the gate would end early and the series be gone.
    ledger.run();
    ledger.close();
  });
}

// The stop --------------------------------------------------------------------------------------

// The three below bring while the library stops: each task ends once, and what was delivered is
// what its callback saw (WaitingLedger::close()).

TEST(WaitingProtocol, WhatAbortedTimersBringArrivesOrComesTooLate) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    WFCounterTask* counter = ledger.counter("", 2);
    WFMailboxTask* mailbox = ledger.mailbox("a");
    counter->start();
    mailbox->start();
    WFTaskFactory::create_timer_task(-1, 0, [=](WFTimerTask*) { counter->count(); })->start();
    WFTaskFactory::create_timer_task(-1, 0, [&, counter](WFTimerTask*) {
      // By way of a computing thread, and back.
      WFGoTask* go = WFTaskFactory::create_go_task("q", [] {});
      go->set_callback([&, counter](WFGoTask*) {
        WFTaskFactory::create_timer_task(-1, 0, [&, counter](WFTimerTask*) {
          counter->count();
          ledger.send("a");
        })->start();
      });
      go->start();
    })->start();
    ledger.close();
  });
}

TEST(WaitingProtocol, WhatGoTasksInTheQueueBringArrivesOrComesTooLate) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options = threads_of(seed);
    options.compute_threads = 1 + static_cast<int>(seed % 2);
    WaitingLedger ledger(seed, options);
    WFCounterTask* counter = ledger.counter("", 4);
    counter->start();
    for (int i = 0; i < 4; i++) {
      WFGoTask* go = WFTaskFactory::create_go_task(i % 2 ? "odd" : "even", [] {});
      go->set_callback([=](WFGoTask*) { counter->count(); });
      go->start();
    }
    ledger.close();
  });
}

TEST(WaitingProtocol, WhatThreadsWokenByTheStopBringArrivesOrComesTooLate) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFSimulationOptions options = threads_of(seed);
    options.compute_threads = 1 + static_cast<int>(seed % 2);
    WaitingLedger ledger(seed, options);
    WFCounterTask* counter = ledger.counter("", 3);
    counter->start();
    WFFacilities::WaitGroup begun(3);
    for (int i = 0; i < 2; i++) {
      WFTaskFactory::create_go_task("q", [counter, &begun] {
        begun.done();
        WFFacilities::usleep(1'000'000'000);
        counter->count();
      })->start();
    }
    WFTaskFactory::create_timer_task(0, 0, [counter, &begun](WFTimerTask*) {
      begun.done();
      WFFacilities::usleep(1'000'000'000);
      counter->count();
    })->start();
    begun.wait();
    ledger.close();
  });
}

TEST(WaitingProtocol, WhatIsStartedAfterTheStopIsAborted) {
  for_each_seed(kSeeds / 10, [](uint64_t seed) {
    WFResourcePool pool(0);
    WaitingLedger ledger(seed, threads_of(seed));
    ledger.close();
    ledger.mailbox("a")->start();
    ledger.counter("", 1)->start();
    ledger.conditional("a")->start();
    ledger.getter(pool, nullptr)->start();
    ledger.send("a");
    for (const Record& record : ledger.records()) {
      EXPECT_EQ(record.ended, 1);
      EXPECT_EQ(record.state, WFT_STATE_ABORTED);
      EXPECT_EQ(record.slot, nullptr);
    }
    EXPECT_EQ(ledger.counted(WaitingLedger::kMailbox), 0);
  });
}

TEST(WaitingProtocol, AbortedCallbacksBringToOthers) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WaitingLedger ledger(seed, threads_of(seed));
    WFMailboxTask* second = ledger.mailbox("");
    WFMailboxTask* first = ledger.mailbox("", [&, second] { second->send(ledger.message(1)); });
    WFConditional* conditional = ledger.conditional("c");
    WFSelectorTask* selector = ledger.selector(1);
    Record& selected = ledger.record_of(selector);
    WFCounterTask* counter = ledger.counter("n", 1, [&, selector] {
      ledger.signal("c");
      ledger.submit(selector, selected, ledger.message(2));
      // Started too late for anybody to bring something.
      ledger.mailbox("late")->start();
      ledger.counter("", 1)->start();
    });
    first->start();
    second->start();
    conditional->start();
    selector->start();
    counter->start();
    ledger.close();
  });
}

// Everything --------------------------------------------------------------------------------------

class Anything {
 public:
  Anything(WaitingLedger& ledger, WFResourcePool& pool) : ledger_(ledger), pool_(pool) {}

  void step(std::mt19937_64& random) {
    const std::string name = random() % 2 ? "a" : "b";
    switch (random() % 12) {
      case 0:
        start_or_dismiss(ledger_.counter(name, static_cast<unsigned int>(1 + random() % 2)),
                         random);
        break;
      case 1:
        start_or_dismiss(ledger_.mailbox(name), random);
        break;
      case 2:
        start_or_dismiss(ledger_.conditional(name, [this, name] { ledger_.send(name, 1); }),
                         random);
        break;
      case 3:
        start_or_dismiss(ledger_.mailbox(name, [this, name] { ledger_.signal(name, 1); }), random);
        break;
      case 4:
        start_or_dismiss(
            ledger_.guard(name, [name] { WFTaskFactory::release_guard(name, nullptr); }), random);
        break;
      case 5:
        start_or_dismiss(
            ledger_.guard(name, [name] { WFTaskFactory::release_guard_safe(name, nullptr); }),
            random);
        break;
      case 6:
        start_or_dismiss(ledger_.getter(pool_, [this] { pool_.post(nullptr); }), random);
        break;
      case 7:
        submitted(random);
        break;
      case 8:
        ledger_.send(name, 1 + random() % 2);
        break;
      case 9:
        ledger_.signal(name);
        break;
      case 10:
        ledger_.count(name, static_cast<unsigned int>(1 + random() % 3));
        break;
      default:
        ledger_.simulation().sleep_for(static_cast<int64_t>(random() % 3) * 10);
    }
  }

 private:
  template <class Task>
  void start_or_dismiss(Task* task, std::mt19937_64& random) {
    if (random() % 4) {
      task->start();
    } else {
      ledger_.dismiss(task);
    }
  }

  void submitted(std::mt19937_64& random) {
    WFSelectorTask* selector = ledger_.selector(2);
    Record& record = ledger_.record_of(selector);
    for (size_t i = 0; i < 2; i++) {
      const auto delay_us = static_cast<unsigned int>(random() % 3);
      void* message = random() % 3 ? ledger_.message(i) : nullptr;
      WFTaskFactory::create_timer_task(delay_us, [this, selector, &record, message](WFTimerTask*) {
        ledger_.submit(selector, record, message);
      })->start();
    }
    start_or_dismiss(selector, random);
  }

  WaitingLedger& ledger_;
  WFResourcePool& pool_;
};

TEST(WaitingProtocol, AnythingMeetsAnything) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    WFResourcePool pool(1);
    WaitingLedger ledger(seed, threads_of(seed));
    Anything anything(ledger, pool);
    for (uint64_t thread = 0; thread < 3; thread++) {
      ledger.simulation().spawn([&, thread] {
        std::mt19937_64 random(seed * 3 + thread);
        for (int step = 0; step < 7; step++) {
          anything.step(random);
        }
      });
    }
    if (seed % 4) {
      ledger.run();
    } else {
      ledger.simulation().run_for(static_cast<int64_t>(seed % 5) * 10);
    }
    ledger.close();
  });
}

// Where the tasks are in memory changes nothing.
uint64_t trace_of_waiting(uint64_t seed) {
  WFResourcePool pool(1);
  WaitingLedger ledger(seed);
  Anything anything(ledger, pool);
  for (uint64_t thread = 0; thread < 3; thread++) {
    ledger.simulation().spawn([&, thread] {
      std::mt19937_64 random(seed * 3 + thread);
      for (int step = 0; step < 7; step++) {
        anything.step(random);
      }
    });
  }
  ledger.close();
  return ledger.simulation().trace_hash();
}

TEST(WaitingProtocol, TheSameSeedReplaysTheSameSchedule) {
  std::vector<uint64_t> hashes;
  std::vector<std::vector<char>> elsewhere;
  for (uint64_t seed = 0; seed < 50; seed++) {
    hashes.push_back(trace_of_waiting(seed));
  }
  for (uint64_t seed = 50; seed-- > 0;) {
    elsewhere.emplace_back(seed * 40 + 16);
    EXPECT_EQ(trace_of_waiting(seed), hashes[seed]) << "seed " << seed;
  }
}

}  // namespace
