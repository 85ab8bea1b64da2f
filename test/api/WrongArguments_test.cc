// What null and otherwise wrong arguments do, as the headers say.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "support/Tally.h"
#include "workflow/HttpMessage.h"
#include "workflow/HttpUtil.h"
#include "workflow/URIParser.h"
#include "workflow/WFGraphTask.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace {

using std::chrono::hours;
using std::chrono::seconds;
using test_support::Tally;
using F = WFTaskFactory;

// Runs the task in a series, and waits for the end of that.
bool ends(SubTask* task) {
  Tally ended;
  Workflow::start_series_work(task, [&ended](const SeriesWork*) { ended.add(); });
  return ended.wait_for(1);
}

}  // namespace

TEST(NullCallback, IsNotCalled) {
  EXPECT_TRUE(ends(F::create_timer_task(0u, nullptr)));
  EXPECT_TRUE(ends(WFTimer::create(seconds(0), {"name"}, nullptr)));
  EXPECT_TRUE(ends(F::create_counter_task(0, nullptr)));
  EXPECT_TRUE(ends(F::create_selector_task(0, nullptr)));
  EXPECT_TRUE(ends(F::create_graph_task(nullptr)));
  EXPECT_TRUE(ends(F::create_module_task(F::create_empty_task(), nullptr)));
  EXPECT_TRUE(ends(F::create_scope_task(F::create_empty_task(), nullptr)));
  EXPECT_TRUE(ends(F::create_fsync_task(-1, nullptr)));
  EXPECT_TRUE(ends(F::create_http_task("not a URL", 0, 0, nullptr)));
  EXPECT_TRUE(ends(Workflow::create_parallel_work(nullptr)));
}

TEST(NullCallback, MayTakeThePlaceOfAnother) {
  bool called = false;
  WFTimerTask* task = F::create_timer_task(0u, [&called](WFTimerTask*) { called = true; });
  task->set_callback(nullptr);
  EXPECT_TRUE(ends(task));
  EXPECT_FALSE(called);
}

TEST(NullFunction, OfAComputationIsNotCalled) {
  int state = WFT_STATE_UNDEFINED;
  WFGoTask* go = F::create_go_task("queue", nullptr);
  go->set_callback([&state](WFGoTask* task) { state = task->get_state(); });
  EXPECT_TRUE(ends(go));
  EXPECT_EQ(state, WFT_STATE_SUCCESS);

  using Task = WFThreadTask<int, int>;
  state = WFT_STATE_UNDEFINED;
  EXPECT_TRUE(ends(WFThreadTaskFactory<int, int>::create_thread_task(
      "queue", nullptr, [&state](Task* task) { state = task->get_state(); })));
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
}

TEST(NullFunction, MakesNoTask) {
  int state = WFT_STATE_UNDEFINED;
  EXPECT_TRUE(ends(F::create_dynamic_task(nullptr)));
  EXPECT_TRUE(ends(F::create_repeater_task(
      nullptr, [&state](WFRepeaterTask* task) { state = task->get_state(); })));
  EXPECT_EQ(state, WFT_STATE_SUCCESS);
}

TEST(NullFunction, OfAPeriodicTimerIsNotCalled) {
  Tally ended;
  WFTimerPeriod period;
  period.every = hours(1);
  period.first = seconds(0);
  WFTimerTask* task =
      WFTimer::create_periodic(period, {"ticks"}, nullptr, [&ended](WFTimerTask*) { ended.add(); });
  task->start();
  EXPECT_EQ(WFTimer::cancel("ticks"), 1u);
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NullFunction, VisitsNoTimers) {
  WFTimerTask* task = WFTimer::create(hours(1), {"seen by nobody"}, nullptr);
  EXPECT_TRUE(WFTimer::for_each("", nullptr));
  task->dismiss();
}

TEST(NullTask, HasAHandleOfNoTimer) {
  const WFTimerHandle handle = WFTimer::handle_of(nullptr);
  EXPECT_EQ(handle, WFTimerHandle());
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kNoTimer);
  EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kNoTimer);
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kNoTimer);
  EXPECT_FALSE(handle.remaining());
}

TEST(NullTask, MayBeTheLastOfASeries) {
  Tally ended;
  Workflow::start_series_work(F::create_empty_task(), nullptr,
                              [&ended](const SeriesWork*) { ended.add(); });
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(ends(F::create_module_task(F::create_empty_task(), nullptr, nullptr)));
}

TEST(EmptyName, IsANameLikeAnyOther) {
  Tally cancelled;
  for (int i = 0; i < 3; i++) {
    WFTimer::create(hours(1), {""}, [&cancelled](WFTimerTask* timer) {
      if (timer->get_error() == ECANCELED) cancelled.add();
    })->start();
  }
  WFTimer::create(hours(1), {"other"}, nullptr)->start();
  EXPECT_EQ(WFTimer::count(""), 3u);
  EXPECT_EQ(WFTimer::cancel("", 2), 2u);
  EXPECT_EQ(F::cancel_by_name(""), 1);
  EXPECT_TRUE(cancelled.wait_for(3));
  EXPECT_EQ(WFTimer::cancel("other"), 1u);
}

TEST(NameOfNothing, CountsNothing) {
  const std::string name = "of nothing";
  EXPECT_EQ(WFTimer::cancel(name), 0u);
  EXPECT_EQ(WFTimer::cancel(name, 5), 0u);
  EXPECT_EQ(WFTimer::reschedule(name, seconds(1)), 0u);
  EXPECT_EQ(WFTimer::count(name), 0u);
  EXPECT_EQ(WFTimer::count_prefix(name), 0u);
  EXPECT_TRUE(WFTimer::list(name, 10).empty());
  EXPECT_EQ(F::cancel_by_name(name), 0);
  EXPECT_EQ(F::count_by_name(name, 3), 0);
  EXPECT_EQ(F::send_by_name(name, nullptr), 0);
  EXPECT_EQ(F::signal_by_name(name, nullptr), 0);
  EXPECT_EQ(F::release_guard(name, nullptr), 0);
  EXPECT_EQ(F::release_guard_safe(name, nullptr), 0);
}

TEST(Zero, CancelsAndListsNothing) {
  WFTimerTask* task = WFTimer::create(hours(1), {"still there"}, nullptr);
  EXPECT_EQ(WFTimer::cancel("still there", 0), 0u);
  EXPECT_EQ(F::cancel_by_name("still there", 0), 0);
  EXPECT_TRUE(WFTimer::list("", 0).empty());
  EXPECT_EQ(WFTimer::count("still there"), 1u);
  task->dismiss();
}

TEST(NegativeCount, OfTriesAndRedirectsCountsAsNone) {
  int state = WFT_STATE_UNDEFINED;
  // Nobody listens on this port of the local host.
  EXPECT_TRUE(ends(F::create_http_task("http://127.0.0.1:1/", -1, -1,
                                       [&state](WFHttpTask* task) { state = task->get_state(); })));
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
}

TEST(NullText, IsNoUri) {
  ParsedURI uri;
  EXPECT_EQ(URIParser::parse(static_cast<const char*>(nullptr), uri), -1);
  EXPECT_EQ(uri.error, EINVAL);
}

TEST(NullText, IsRefusedInHttpMessages) {
  const char* const null = nullptr;
  protocol::HttpRequest request;
  errno = 0;
  EXPECT_FALSE(request.set_method(null));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(request.set_request_uri(null));
  EXPECT_FALSE(request.set_http_version(null));
  EXPECT_FALSE(request.add_header_pair("Name", null));
  EXPECT_FALSE(request.set_header_pair(null, "value"));
  protocol::HttpResponse response;
  EXPECT_FALSE(response.set_status_code(null));
  EXPECT_FALSE(response.set_reason_phrase(null));
  errno = 0;
  EXPECT_FALSE(response.append_output_body(null));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(response.append_output_body_nocopy(null));
  EXPECT_EQ(response.get_output_body_size(), 0u);
}

TEST(NullBytes, AreNoBodyUnlessTheyAreNone) {
  protocol::HttpResponse response;
  errno = 0;
  EXPECT_FALSE(response.append_output_body(static_cast<const void*>(nullptr), 1));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(response.append_output_body_nocopy(static_cast<const void*>(nullptr), 1));
  EXPECT_TRUE(response.append_output_body(static_cast<const void*>(nullptr), 0));
  EXPECT_EQ(response.get_output_body_size(), 0u);
}

TEST(NullHeader, IsRefused) {
  protocol::HttpRequest request;
  for (const auto set : {&protocol::HttpRequest::add_header, &protocol::HttpRequest::set_header}) {
    errno = 0;
    EXPECT_FALSE((request.*set)(nullptr));
    EXPECT_EQ(errno, EINVAL);
    const protocol::HttpMessageHeader nameless = {nullptr, 4, "value", 5};
    EXPECT_FALSE((request.*set)(&nameless));
    const protocol::HttpMessageHeader worthless = {"Name", 4, nullptr, 5};
    EXPECT_FALSE((request.*set)(&worthless));
  }
  const protocol::HttpMessageHeader empty = {"Name", 4, nullptr, 0};
  EXPECT_TRUE(request.add_header(&empty));
}

TEST(NullMessage, HasNothing) {
  errno = 0;
  EXPECT_FALSE(protocol::HttpUtil::set_response_status(nullptr, 200));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(protocol::HttpUtil::decode_chunked_body(nullptr), "");
  protocol::HttpHeaderCursor fields(nullptr);
  std::string name = "Name";
  std::string value;
  EXPECT_FALSE(fields.find(name, value));
  EXPECT_FALSE(fields.next(name, value));
  EXPECT_FALSE(fields.find_and_erase(name));
  EXPECT_FALSE(fields.erase());
  protocol::HttpChunkCursor chunks(nullptr);
  const void* chunk = nullptr;
  size_t size = 0;
  EXPECT_FALSE(chunks.next(&chunk, &size));
  EXPECT_FALSE(protocol::HttpHeaderMap(nullptr).key_exists(name));
}

TEST(NullResources, AreThoseOfAPool) {
  Tally ended;
  WFResourcePool pool(nullptr, 2);
  void* resource = &pool;
  for (int i = 0; i < 2; i++) {
    pool.get(F::create_timer_task(0u, [&ended](WFTimerTask*) { ended.add(); }), &resource)->start();
    ASSERT_TRUE(ended.wait_for(static_cast<size_t>(i) + 1));
    EXPECT_EQ(resource, nullptr);
    resource = &pool;
  }
}
