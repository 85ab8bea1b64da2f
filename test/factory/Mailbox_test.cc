#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "factory/NamedMessageTask.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;
using workflow::NamedMailboxTask;

namespace {

// What mailboxes got, in the order of their callbacks.
class Received {
 public:
  mailbox_callback_t callback() {
    return [this](WFMailboxTask* task) {
      EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
      EXPECT_EQ(task->get_error(), 0);
      EXPECT_TRUE(probes::on_framework_thread());
      add(*task->get_mailbox());
    };
  }
  void add(void* message) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      all_.push_back(message);
    }
    ended_.add();
  }
  bool wait_for(size_t n) const { return ended_.wait_for(n); }
  bool quiet_at(size_t n) const { return !ended_.wait_for(n + 1, kQuiet) && ended_.count() == n; }
  std::vector<void*> all() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<void*> all_;
  Tally ended_;
};

// Started mailboxes of one name; the i-th puts its message into slots[i].
void start_mailboxes(const std::string& name, std::vector<void*>& slots, Tally& ended) {
  for (void*& slot : slots) {
    WFTaskFactory::create_mailbox_task(name, &slot, [&ended](WFMailboxTask* task) {
      EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
      ended.add();
    })->start();
  }
}

}  // namespace

TEST(Mailbox, EndsWhenSentTo) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(received.callback());
  mailbox->start();
  EXPECT_TRUE(received.quiet_at(0));
  mailbox->send(&messages[1]);
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{&messages[1]});
}

TEST(Mailbox, SentBeforeItsStartEndsAtTheStart) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(received.callback());
  mailbox->send(&messages[1]);
  EXPECT_TRUE(received.quiet_at(0));
  mailbox->start();
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{&messages[1]});
}

TEST(Mailbox, OnlyTheFirstMessageCounts) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(received.callback());
  mailbox->send(&messages[1]);
  mailbox->send(&messages[2]);
  mailbox->start();
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{&messages[1]});
}

TEST(Mailbox, ANullMessageEndsItToo) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(received.callback());
  mailbox->start();
  mailbox->send(nullptr);
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{nullptr});
}

TEST(Mailbox, WithoutOneItsUserDataIsTheMailbox) {
  Tally ended;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task([&](WFMailboxTask* task) {
    EXPECT_EQ(task->user_data, &messages[3]);
    ended.add();
  });
  EXPECT_EQ(mailbox->user_data, nullptr);
  EXPECT_EQ(mailbox->get_mailbox(), &mailbox->user_data);
  mailbox->start();
  mailbox->send(&messages[3]);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Mailbox, WithOneItsUserDataIsTheUsers) {
  Tally ended;
  void* slot = &messages[0];
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(&slot, [&](WFMailboxTask* task) {
    EXPECT_EQ(task->user_data, &messages[4]);
    EXPECT_EQ(task->get_mailbox(), &slot);
    EXPECT_EQ(slot, &messages[3]);
    ended.add();
  });
  mailbox->user_data = &messages[4];
  mailbox->start();
  EXPECT_EQ(slot, &messages[0]);
  mailbox->send(&messages[3]);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Mailbox, SentByAUserThreadItsCallbackRunsOnAFrameworkThread) {
  Received received;  // looks which thread it is
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(received.callback());
  mailbox->start();
  std::thread([mailbox] { mailbox->send(&messages[1]); }).join();
  EXPECT_TRUE(received.wait_for(1));
}

TEST(Mailbox, HoldsItsSeriesUntilItEnds) {
  Log log;
  Tally ended;
  WFMailboxTask* mailbox =
      WFTaskFactory::create_mailbox_task([&](WFMailboxTask*) { log.add("b"); });
  SeriesWork* series =
      Workflow::create_series_work(new LogTask(&log, "a"), probes::counting(ended));
  *series << mailbox << new LogTask(&log, "c");
  series->start();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  mailbox->send(nullptr);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abc");
}

TEST(Mailbox, StartAndSendOfTwoThreadsEndItOnce) {
  for (int round = 0; round < 2000; round++) {
    Received received;
    const bool named = round % 2;
    WFMailboxTask* mailbox = named ? WFTaskFactory::create_mailbox_task("name", received.callback())
                                   : WFTaskFactory::create_mailbox_task(received.callback());
    std::thread sender([mailbox] { mailbox->send(&messages[1]); });
    mailbox->start();
    sender.join();
    ASSERT_TRUE(received.wait_for(1));
    ASSERT_EQ(received.all(), std::vector<void*>{&messages[1]});
  }
}

TEST(Mailbox, WithoutACallbackItOnlyEnds) {
  Log log;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task(nullptr);
  mailbox->send(nullptr);
  SeriesWork* series = Workflow::create_series_work(mailbox, nullptr);
  series->push_back(new LogTask(&log, "a"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "a");
}

TEST(NamedMailbox, AnUnknownNameGetsNothing) {
  void* const array[] = {&messages[0]};
  EXPECT_EQ(WFTaskFactory::send_by_name("nobody", &messages[0]), 0);
  EXPECT_EQ(WFTaskFactory::send_by_name("nobody", &messages[0], 3), 0);
  EXPECT_EQ(WFTaskFactory::send_by_name("nobody", array, 1), 0);
}

TEST(NamedMailbox, AllOfTheNameGetTheMessage) {
  Tally ended;
  std::vector<void*> slots(3);
  start_mailboxes("name", slots, ended);
  EXPECT_EQ(WFTaskFactory::send_by_name("other", &messages[1]), 0);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[1]), 3);
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(slots, (std::vector<void*>(3, &messages[1])));
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[1]), 0);
}

TEST(NamedMailbox, AtMostMaxGetTheMessageTheOldestFirst) {
  Tally ended;
  std::vector<void*> slots(4);
  start_mailboxes("name", slots, ended);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[0], 0), 0);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[1], 1), 1);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[2], 2), 2);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[3], 2), 1);
  ASSERT_TRUE(ended.wait_for(4));
  EXPECT_EQ(slots, (std::vector<void*>{&messages[1], &messages[2], &messages[2], &messages[3]}));
}

TEST(NamedMailbox, OfAnArrayEachGetsItsOwnTheOldestTheFirst) {
  Tally ended;
  std::vector<void*> slots(3);
  start_mailboxes("name", slots, ended);
  int* const array[] = {&messages[1], &messages[2], &messages[3], &messages[4]};
  EXPECT_EQ(WFTaskFactory::send_by_name("name", array, 2), 2);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", array + 2, 2), 1);
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(slots, (std::vector<void*>{&messages[1], &messages[2], &messages[3]}));
}

TEST(NamedMailbox, AnArrayMayBeOfAnyType) {
  Tally ended;
  std::vector<void*> slots(2);
  start_mailboxes("name", slots, ended);
  const std::string text = "text";
  const std::string* const strings[] = {&text, nullptr};
  EXPECT_EQ(WFTaskFactory::send_by_name("name", strings, 2), 2);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(slots[0], const_cast<std::string*>(&text));
  EXPECT_EQ(slots[1], nullptr);
}

TEST(NamedMailbox, MoreThanOneHoldOfTheLockTakesKeepTheirOrder) {
  constexpr size_t kMany = 1000;
  Tally ended;
  std::vector<void*> slots(kMany);
  start_mailboxes("name", slots, ended);
  std::vector<int> numbers(kMany);
  std::vector<int*> array;
  for (int& number : numbers) {
    array.push_back(&number);
  }
  EXPECT_EQ(WFTaskFactory::send_by_name("name", array.data(), kMany), static_cast<int>(kMany));
  ASSERT_TRUE(ended.wait_for(kMany));
  for (size_t i = 0; i < kMany; i++) {
    ASSERT_EQ(slots[i], &numbers[i]);
  }
}

TEST(NamedMailbox, UnstartedOnesGetMessagesInTheOrderOfCreation) {
  Log log;
  Tally ended;
  std::vector<WFMailboxTask*> mailboxes;
  for (const char* letter : {"a", "b", "c"}) {
    mailboxes.push_back(WFTaskFactory::create_mailbox_task("name", [&, letter](WFMailboxTask*) {
      log.add(letter);
      ended.add();
    }));
  }
  mailboxes[2]->start();
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr, 2), 2);
  EXPECT_EQ(NamedMailboxTask::registry().count("name"), 1u);
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  mailboxes[0]->start();
  mailboxes[1]->start();
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(log.sorted(), "ab");
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), 1);
  EXPECT_TRUE(ended.wait_for(3));
}

TEST(NamedMailbox, MayBeSentToDirectly) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task("name", received.callback());
  mailbox->start();
  mailbox->send(&messages[1]);
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{&messages[1]});
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[2]), 0);
}

TEST(NamedMailbox, SentByItsNameASendToTheTaskChangesNothing) {
  Received received;
  WFMailboxTask* mailbox = WFTaskFactory::create_mailbox_task("name", received.callback());
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[1]), 1);
  mailbox->send(&messages[2]);
  mailbox->start();
  ASSERT_TRUE(received.wait_for(1));
  EXPECT_EQ(received.all(), std::vector<void*>{&messages[1]});
}

TEST(NamedMailbox, ItsUserDataIsTheMailboxToo) {
  Tally ended;
  WFTaskFactory::create_mailbox_task("name", [&](WFMailboxTask* task) {
    EXPECT_EQ(task->user_data, &messages[5]);
    ended.add();
  })->start();
  EXPECT_EQ(WFTaskFactory::send_by_name("name", &messages[5]), 1);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedMailbox, TheNameVanishesWithItsLastTask) {
  Tally ended;
  std::vector<void*> slots(2);
  start_mailboxes("name", slots, ended);
  WFMailboxTask* dismissed = WFTaskFactory::create_mailbox_task("name", nullptr);
  EXPECT_EQ(NamedMailboxTask::registry().count("name"), 3u);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr, 2), 2);
  EXPECT_FALSE(NamedMailboxTask::registry().empty());
  dismissed->dismiss();
  EXPECT_TRUE(NamedMailboxTask::registry().empty());
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(NamedMailbox, OfOtherKindsTheNameIsAnother) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task("name", 1, nullptr);
  WFConditional* conditional =
      WFTaskFactory::create_conditional("name", WFTaskFactory::create_empty_task());
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), 0);
  std::vector<void*> slots(1);
  start_mailboxes("name", slots, ended);
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), 1);
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", nullptr), 1);
  counter->dismiss();
  conditional->dismiss();
}

TEST(NamedMailbox, NamesAreAnyBytes) {
  const std::string names[] = {"", std::string("a\0b", 3), std::string("a\0c", 3), "\xff\xfe",
                               std::string(64 * 1024, 'x')};
  for (const std::string& name : names) {
    Tally ended;
    std::vector<void*> slots(1);
    start_mailboxes(name, slots, ended);
    for (const std::string& other : names) {
      EXPECT_EQ(WFTaskFactory::send_by_name(other, &messages[1]), other == name);
    }
    EXPECT_TRUE(ended.wait_for(1));
  }
}

TEST(NamedMailbox, OneThatItsCallbackMakesAnewGetsNothingOfTheSameCall) {
  constexpr int kMany = 150;  // more than one hold of the lock takes
  Tally ended;
  for (int i = 0; i < kMany; i++) {
    WFTaskFactory::create_mailbox_task("name", [&](WFMailboxTask*) {
      WFTaskFactory::create_mailbox_task("name", [&](WFMailboxTask*) { ended.add(); })->start();
      ended.add();
    })->start();
  }
  // On a thread of the library, where callbacks may run in between.
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), kMany);
    ended.add();
  })->start();
  ASSERT_TRUE(ended.wait_for(kMany + 1));
  EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), kMany);
  EXPECT_TRUE(ended.wait_for(2 * kMany + 1));
}

TEST(NamedMailbox, CallbacksOfOneCallMayWaitForEachOther) {
  Tally ended;
  WFFacilities::WaitGroup group(2);
  for (int i = 0; i < 2; i++) {
    WFTaskFactory::create_mailbox_task("name", [&](WFMailboxTask*) {
      group.done();
      group.wait();
      ended.add();
    })->start();
  }
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    EXPECT_EQ(WFTaskFactory::send_by_name("name", nullptr), 2);
    ended.add();
  })->start();
  EXPECT_TRUE(ended.wait_for(3));
}

TEST(NamedMailbox, SendsOfManyThreadsAreExact) {
  constexpr size_t kMailboxes = 4000;
  constexpr size_t kThreads = 4;
  Tally ended;
  std::vector<void*> slots(kMailboxes);
  start_mailboxes("name", slots, ended);
  std::vector<int> numbers(kMailboxes);
  std::atomic<size_t> sent{0};
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < kThreads; thread++) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < kMailboxes; i += kThreads) {
        sent += static_cast<size_t>(WFTaskFactory::send_by_name("name", &numbers[i], 1));
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(sent, kMailboxes);
  ASSERT_TRUE(ended.wait_for(kMailboxes));
  // Each message to one mailbox.
  std::sort(slots.begin(), slots.end());
  for (size_t i = 0; i < kMailboxes; i++) {
    ASSERT_EQ(slots[i], &numbers[i]);
  }
  EXPECT_TRUE(NamedMailboxTask::registry().empty());
}
