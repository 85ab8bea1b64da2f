#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "support/Eventually.h"
#include "support/Loopback.h"
#include "workflow/WFCron.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFFuture.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFSimulation.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimerStore.h"

// What docs/store.md shows: functions and cases have the same text there, which is tested by
// StorePage in test/tutorial.

using std::chrono::hours;
using test_support::eventually;
using test_support::port_of;

namespace {

std::unique_ptr<WFTimerStore> open_example() {
  return std::unique_ptr<WFTimerStore>(WFTimerStore::open("memory:examples"));
}

std::string http_url_of(const WFHttpServer& server) {
  return "http://127.0.0.1:" + std::to_string(port_of(server)) + "/";
}

WFStoreTimer invoice(const std::string& number) {
  WFStoreTimer timer;
  timer.name = "invoice/" + number;
  timer.kind = "invoice";
  timer.payload = number;
  return timer;
}

void send_invoices(WFTimerStore& store, const std::string& billing) {
  WFStoreHandlerOptions options;
  options.max_running = 4;
  options.retry_delay = std::chrono::milliseconds(100);
  const auto send = [billing](WFStoredTimer* timer) {
    auto ended = [timer](WFHttpTask* request) {
      const bool sent = request->get_state() == WFT_STATE_SUCCESS &&
                        request->get_resp()->get_status_code() == std::string("200");
      if (!sent) timer->retry();
    };
    const std::string url = billing + timer->payload();
    WFHttpTask* request = WFTaskFactory::create_http_task(url, 0, 0, std::move(ended));
    request->get_req()->set_method("PUT");
    request->get_req()->add_header_pair("X-Fence", std::to_string(timer->fence()));
    series_of(timer)->push_back(request);
  };
  store.handle("invoice", send, options);
}

WFStoreResult store_recurring_timers(WFTimerStore& store) {
  WFStoreTimer report;
  report.name = "nightly report";
  report.due = *WFCron::parse("0 2 * * *", "Europe/Berlin");
  report.kind = "report";
  report.policy = WF_TIMER_KEEP;  // all processes may say so at their start
  WFStoreTimer ping = report;
  ping.name = "ping";
  ping.due = WFStoreDue::every(std::chrono::minutes(5));
  ping.skip_if_later = std::chrono::minutes(1);
  const WFStoreResult result = store.schedule(report);
  return result.ok() || result.error == EEXIST ? store.schedule(ping) : result;
}

void cancel_order(WFTimerStore& store, WFHttpTask* request, const std::string& order) {
  auto answered = [request](WFStoreTask* task) {
    const WFStoreResult& result = task->result();
    const bool in_time = result.ok() && result.verdict() == WFStoreVerdict::kWon;
    request->get_resp()->append_output_body(in_time ? "cancelled" : "too late");
  };
  WFStoreTask* task = store.create_cancel_task("order/" + order, std::move(answered));
  series_of(request)->push_back(with_deadline(task, std::chrono::seconds(20), nullptr));
}

// What has become of a request. It is not ok() while the store does not answer.
WFStoreResult settle(WFTimerStore& store, const WFStoreResult& result) {
  const bool in_doubt = result.verdict() == WFStoreVerdict::kInDoubt;
  return in_doubt ? store.ask(result.request) : result;
}

// What the server at `url` answers.
std::string answer_of(const std::string& url) {
  WFPromise<std::string> promise;
  WFFuture<std::string> answer = promise.get_future();
  WFTaskFactory::create_http_task(url, 0, 0, [&promise](WFHttpTask* task) {
    promise.set_value(protocol::HttpUtil::decode_chunked_body(task->get_resp()));
  })->start();
  return answer.get();
}

}  // namespace

TEST(StoreExamples, InvoicesAreSentAgainUntilTheyArrive) {
  std::atomic<int> requests{0};
  WFHttpServer billing([&requests](WFHttpTask* task) {
    const bool fails = requests++ == 0;
    task->get_resp()->set_status_code(fails ? "503" : "200");
  });
  ASSERT_EQ(billing.start("127.0.0.1", 0), 0);
  const auto store = open_example();
  send_invoices(*store, http_url_of(billing));
  ASSERT_TRUE(store->schedule(invoice("7")).ok());
  EXPECT_TRUE(eventually([&] { return store->stats().acknowledged == 1; }));
  EXPECT_EQ(store->stats().retried, 1U);
  EXPECT_EQ(requests, 2);
  store->close();
  billing.stop();
}

TEST(StoreExamples, EachProcessMayStoreTheRecurringTimers) {
  const auto store = open_example();
  EXPECT_TRUE(store_recurring_timers(*store).ok());
  EXPECT_EQ(store_recurring_timers(*store).error, EEXIST);
  EXPECT_EQ(store->count("").count, 2U);
}

TEST(StoreExamples, ARequestCancelsAnOrder) {
  const auto store = open_example();
  WFHttpServer shop([&store](WFHttpTask* task) { cancel_order(*store, task, "42"); });
  ASSERT_EQ(shop.start("127.0.0.1", 0), 0);
  WFStoreTimer order;
  order.name = "order/42";
  order.due = hours(1);
  order.kind = "expire";
  ASSERT_TRUE(store->schedule(order).ok());
  EXPECT_EQ(answer_of(http_url_of(shop)), "cancelled");
  EXPECT_EQ(answer_of(http_url_of(shop)), "too late");
  shop.stop();
}

TEST(StoreExamples, AskingSettlesARequestInDoubt) {
  const auto store = open_example();
  WFStoreTimer timer = invoice("8");
  timer.due = hours(1);
  const WFStoreResult stored = store->schedule(timer);
  WFStoreResult in_doubt;
  in_doubt.request = stored.request;
  in_doubt.answers.resize(1);
  in_doubt.answers[0].verdict = WFStoreVerdict::kInDoubt;
  EXPECT_EQ(settle(*store, in_doubt).timer, stored.timer);
  EXPECT_EQ(settle(*store, stored).timer, stored.timer);
  // One that never came.
  in_doubt.request.number += 1000;
  EXPECT_EQ(settle(*store, in_doubt).verdict(), WFStoreVerdict::kUnknown);
}

TEST(StoreExamples, EitherTheReminderOrTheCancelWins) {
  for (uint64_t seed = 1; seed <= 100; seed++) {
    std::atomic<int> reminded{0};
    std::atomic<bool> won{false};
    WFSimulation simulation(seed);
    const std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:test"));
    store->handle("remind", [&](WFStoredTimer*) { reminded++; });
    simulation.spawn([&] {
      WFStoreTimer timer;
      timer.name = "tea";
      timer.due = hours(24);
      timer.kind = "remind";
      store->schedule(timer);
      simulation.sleep_for(hours(24));
      won = store->cancel("tea").verdict() == WFStoreVerdict::kWon;
    });
    const WFSimulationResult result = simulation.run();
    ASSERT_TRUE(result.ok()) << result.description;
    ASSERT_EQ(reminded, won ? 0 : 1) << "seed " << seed;
  }
}
