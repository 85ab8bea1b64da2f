#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "store/PlaceOfTimers.h"
#include "store/StoreKit.h"
#include "support/Eventually.h"
#include "workflow/WFCoroutine.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTimerStore.h"

// The requests as tasks of a series and of coroutines, wherever the timers are.

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using store_test::StorePtr;
using test_support::eventually;

// Two timers wait for an hour, and two have failed.
class StoreTasks : public testing::TestWithParam<const char*> {
 protected:
  StoreTasks() {
    store_->handle("kind", [this](WFStoredTimer* timer) {
      if (fails_) {
        timer->give_up("told to");
      }
    });
    for (const char* name : {"tea 1", "tea 2"}) {
      EXPECT_TRUE(store_->schedule({name, hours(1), "kind"}).ok());
    }
    for (const char* name : {"failed 1", "failed 2"}) {
      EXPECT_TRUE(store_->schedule({name, seconds(0), "kind"}).ok());
    }
    EXPECT_TRUE(eventually([this] { return store_->list_failed("").timers.size() == 2; }));
    fails_ = false;
  }

  static std::vector<std::string> names(const WFStoreResult& result) {
    std::vector<std::string> names;
    for (const WFStoreInfo& info : result.timers) {
      names.push_back(info.name);
    }
    return names;
  }

  // What the requests of the two cases have in common: what each must lead to.
  static void expect_count(const WFStoreResult& result, uint64_t count) {
    EXPECT_TRUE(result.ok()) << result.message;
    EXPECT_EQ(result.count, count);
  }
  static void expect_moved(const WFStoreResult& result) {
    EXPECT_TRUE(result.ok()) << result.message;
    ASSERT_EQ(result.answers.size(), 1U);
    EXPECT_EQ(result.verdict(), WFStoreVerdict::kWon);
    EXPECT_EQ(result.answers[0].attempts, 0U);
  }
  static void expect_asked(const WFStoreResult& asked, const WFStoreResult& moved) {
    EXPECT_TRUE(asked.ok()) << asked.message;
    ASSERT_EQ(asked.answers.size(), moved.answers.size());
    EXPECT_EQ(asked.verdict(), moved.verdict());
    EXPECT_EQ(asked.answers.at(0).timer, moved.answers.at(0).timer);
  }
  static void expect_failed(const WFStoreResult& result, const std::vector<std::string>& failed) {
    EXPECT_TRUE(result.ok()) << result.message;
    EXPECT_EQ(names(result), failed);
    for (const WFStoreInfo& info : result.timers) {
      EXPECT_EQ(info.stage, WFStoreStage::kFailed);
      EXPECT_EQ(info.reason, "told to");
    }
  }
  // Both pages of the list, after the first timer has moved to a time in two hours.
  static void expect_pages(const WFStoreResult& first, const WFStoreResult& second) {
    EXPECT_TRUE(first.ok()) << first.message;
    EXPECT_TRUE(second.ok()) << second.message;
    ASSERT_EQ(names(first), std::vector<std::string>{"tea 1"});
    ASSERT_EQ(names(second), std::vector<std::string>{"tea 2"});
    EXPECT_FALSE(first.cursor.empty());
    EXPECT_TRUE(second.cursor.empty());
    EXPECT_EQ(first.timers[0].stage, WFStoreStage::kWaiting);
    EXPECT_GT(first.timers[0].due - second.timers[0].due, minutes(30));
  }
  // The one that was retried runs, and the other one is gone.
  void expect_none_of_failed() {
    EXPECT_TRUE(eventually([this] { return store_->count("failed").count == 0; }));
    EXPECT_TRUE(eventually([this] { return store_->stats().acknowledged == 1; }));
  }

  WFCo<> move_and_look();
  WFCo<> retry_and_remove();

  store_test::PlaceOfTimers place_{GetParam()};
  std::atomic<bool> fails_{true};
  const StorePtr store_ = store_test::open_store(place_.url());
};

TEST_P(StoreTasks, EachJoinsASeries) {
  WFStoreResult counted, moved, asked, first, second, failed, retried, removed, left, unknown;
  const auto keep = [](WFStoreResult& result) {
    return [&result](WFStoreTask* task) {
      EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
      result = task->result();
    };
  };
  WFFacilities::WaitGroup done(1);
  SeriesWork* const series = Workflow::create_series_work(
      store_->create_count_task("tea", keep(counted)), [&done](const SeriesWork*) { done.done(); });
  // These need what the one before them has led to.
  const auto list = [&](WFStoreTask* task) {
    first = task->result();
    series_of(task)->push_front(store_->create_list_task("tea", first.cursor, 1, keep(second)));
  };
  const auto ask = [&](WFStoreTask* task) {
    moved = task->result();
    series_of(task)->push_front(store_->create_ask_task(moved.request, keep(asked)));
  };
  *series << store_->create_reschedule_task("tea 1", hours(2), ask)
          << store_->create_list_task("tea", "", 1, list)
          << store_->create_list_failed_task("", "", 10, keep(failed))
          << store_->create_remove_failed_task("failed 2", keep(removed))
          << store_->create_list_failed_task("", "", 10, keep(left))
          << store_->create_retry_failed_task("failed 1", keep(retried))
          << store_->create_retry_failed_task("nobody", keep(unknown));
  series->start();
  done.wait();
  expect_count(counted, 2);
  expect_moved(moved);
  expect_asked(asked, moved);
  expect_pages(first, second);
  expect_failed(failed, {"failed 1", "failed 2"});
  expect_count(removed, 1);
  expect_failed(left, {"failed 1"});
  expect_count(retried, 1);
  expect_count(unknown, 0);
  expect_none_of_failed();
}

WFCo<> StoreTasks::move_and_look() {
  const auto counted = co_await store_->create_count_task("tea", nullptr);
  EXPECT_TRUE(counted);
  expect_count(*counted.value, 2);
  const auto moved = co_await store_->create_reschedule_task("tea 1", hours(2), nullptr);
  EXPECT_TRUE(moved);
  expect_moved(*moved.value);
  const auto asked = co_await store_->create_ask_task(moved.value->request, nullptr);
  EXPECT_TRUE(asked);
  expect_asked(*asked.value, *moved.value);
  const auto first = co_await store_->create_list_task("tea", "", 1, nullptr);
  EXPECT_TRUE(first);
  const auto second = co_await store_->create_list_task("tea", first.value->cursor, 1, nullptr);
  EXPECT_TRUE(second);
  expect_pages(*first.value, *second.value);
}

WFCo<> StoreTasks::retry_and_remove() {
  const auto failed = co_await store_->create_list_failed_task("", "", 10, nullptr);
  EXPECT_TRUE(failed);
  expect_failed(*failed.value, {"failed 1", "failed 2"});
  const auto removed = co_await store_->create_remove_failed_task("failed 2", nullptr);
  EXPECT_TRUE(removed);
  expect_count(*removed.value, 1);
  const auto left = co_await store_->create_list_failed_task("", "", 10, nullptr);
  EXPECT_TRUE(left);
  expect_failed(*left.value, {"failed 1"});
  const auto retried = co_await store_->create_retry_failed_task("failed 1", nullptr);
  EXPECT_TRUE(retried);
  expect_count(*retried.value, 1);
  const auto unknown = co_await store_->create_retry_failed_task("nobody", nullptr);
  EXPECT_TRUE(unknown);
  expect_count(*unknown.value, 0);
}

TEST_P(StoreTasks, EachIsAwaitedInACoroutine) {
  wf::wait([this] { return move_and_look(); });
  wf::wait([this] { return retry_and_remove(); });
  expect_none_of_failed();
}

INSTANTIATE_TEST_SUITE_P(Each, StoreTasks, testing::Values("Memory", "Sqlite", "Owned", "Redis"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
