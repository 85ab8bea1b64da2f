// The table of test/support/CoroutineWaits.h.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "support/CoroutineWaits.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFSimulation.h"

namespace test_support {
namespace {

using namespace std::chrono_literals;
using F = WFTaskFactory;
using Frame = WaitPlace::Frame;

// Timers ----------------------------------------------------------------------------------------

WFCo<WFEnd> wait_asleep(WaitPlace& place) {
  const Frame frame(place);
  co_return co_await wf::sleep(place.name(), 1h);
}
void let_time_come(WaitPlace& place) {
  WFTimer::reschedule(place.name(), 0ns);
}
void cancel_sleep(WaitPlace& place) {
  F::cancel_by_name(place.name());
}

WFCo<WFEnd> wait_with_a_handle(WaitPlace& place) {
  const Frame frame(place);
  WFTimerHandle handle;
  auto asleep = wf::sleep(1h, &handle);
  place.keep_handle(handle);
  co_return co_await std::move(asleep);
}

WFCo<WFEnd> wait_for_a_periodic_timer(WaitPlace& place) {
  const Frame frame(place);
  WFTimerPeriod hourly;
  hourly.every = 1h;
  WFTimerOptions options;
  options.name = place.name();
  WFTimerTask* const timer = WFTimer::create_periodic(
      hourly, options, [](const WFTimerTick& tick) { tick.end(); }, nullptr);
  co_return co_await timer;
}

// What others count, send, signal, release and post -----------------------------------------------

WFCo<WFEnd> wait_for_a_counter(WaitPlace& place) {
  const Frame frame(place);
  WFCounterTask* const counter = F::create_counter_task(place.name(), 1, nullptr);
  co_return co_await counter;
}
void count(WaitPlace& place) {
  F::count_by_name(place.name(), 1);
}

WFCo<WFEnd> wait_for_a_message(WaitPlace& place) {
  const Frame frame(place);
  const auto message = co_await wf::receive(place.name());
  co_return place.got(message);
}
void send(WaitPlace& place) {
  F::send_by_name(place.name(), place.thing());
}

WFCo<WFEnd> wait_for_a_selector(WaitPlace& place) {
  const Frame frame(place);
  WFSelectorTask* const selector = F::create_selector_task(1, nullptr);
  place.keep_selector(selector);
  const auto selected = co_await selector;
  co_return place.got(selected);
}
void submit(WaitPlace& place) {
  if (WFSelectorTask* const selector = place.take_selector()) selector->submit(place.thing());
}

WFCo<WFEnd> wait_for_a_conditional(WaitPlace& place) {
  const Frame frame(place);
  WFConditional* const conditional = F::create_conditional(place.name(), F::create_empty_task());
  const auto signalled = co_await conditional;
  co_return place.got(signalled);
}
void signal(WaitPlace& place) {
  F::signal_by_name(place.name(), place.thing());
}

WFCo<WFEnd> wait_for_a_guard(WaitPlace& place) {
  const Frame frame(place);
  const auto held = co_await wf::hold(place.name());
  // The message of the last release is passed on only if somebody waits for the guard then.
  const bool has_message = held && *held.value;
  const WFEnd end = has_message ? place.got(held) : WFEnd{held};
  if (end) F::release_guard_safe(place.name(), nullptr);
  co_return end;
}
void hold_first(WaitPlace& place) {
  F::create_guard(place.name(), F::create_empty_task())->start();
}
void release(WaitPlace& place) {
  place.once([&place] { F::release_guard_safe(place.name(), place.thing()); });
}
WFCo<bool> guard_is_free(WaitPlace& place) {
  const WFEnd held = co_await wf::within(30s, wf::hold(place.name()));
  if (held) F::release_guard(place.name(), nullptr);
  co_return static_cast<bool>(held);
}

WFCo<WFEnd> wait_for_a_resource(WaitPlace& place) {
  const Frame frame(place);
  const auto taken = co_await wf::take(place.pool());
  const WFEnd end = place.got(taken);
  if (end) place.pool().post(place.thing());
  co_return end;
}
void take_first(WaitPlace& place) {
  place.pool().get(F::create_empty_task())->start();
}
void post_resource(WaitPlace& place) {
  place.once([&place] { place.pool().post(place.thing()); });
}
WFCo<bool> resource_is_back(WaitPlace& place) {
  const WFEnd taken = co_await wf::within(30s, wf::take(place.pool()));
  if (taken) place.pool().post(place.thing());
  co_return static_cast<bool>(taken);
}

WFCo<WFEnd> wait_for_a_queue(WaitPlace& place) {
  const Frame frame(place);
  const auto message = co_await wf::receive(place.queue());
  const WFEnd end = place.got(message);
  if (end) place.note_receipt();
  co_return end;
}
void post_message(WaitPlace& place) {
  place.once([&place] { place.queue().post(place.thing()); });
}
WFCo<bool> message_is_there(WaitPlace& place) {
  if (place.is_received()) co_return true;
  const WFEnd message = co_await wf::within(30s, wf::receive(place.queue()));
  co_return static_cast<bool>(message);
}

// What ends by itself -----------------------------------------------------------------------------

WFCo<WFEnd> wait_for_a_function(WaitPlace& place) {
  const Frame frame(place);
  int local = 0;
  const auto function = [&local] {
    for (int i = 0; i < 3; i++)
      WFSimulation::point();
    return ++local;
  };
  const auto result = co_await wf::go(place.name(), function);
  if (result.value.value_or(0) != local) co_return WFEnd{};  // it has come too late
  co_return result;
}

WFCo<WFEnd> wait_for_a_file(WaitPlace& place) {
  const Frame frame(place);
  char bytes[4] = {1, 1, 1, 1};
  const auto read = co_await F::create_pread_task("/dev/zero", bytes, sizeof bytes, 0, nullptr);
  if (read && (read.value != 4 || bytes[3] != 0)) co_return WFEnd{};
  co_return read;
}

// Structures: each waits for a counter inside it --------------------------------------------------

SubTask* counter_inside(WaitPlace& place, WFEnd& inside) {
  return F::create_counter_task(place.name(), 1, [&inside](WFCounterTask* counter) {
    inside = {counter->get_state(), counter->get_error()};
  });
}

WFCo<WFEnd> wait_for_a_series(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  SeriesWork* const series = Workflow::create_series_work(counter_inside(place, inside), nullptr);
  series->push_back(F::create_empty_task());
  (void)co_await series;
  co_return inside;
}

WFCo<WFEnd> wait_for_a_parallel(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  ParallelWork* const parallel = Workflow::create_parallel_work(nullptr);
  parallel->add_series(Workflow::create_series_work(counter_inside(place, inside), nullptr));
  parallel->add_series(Workflow::create_series_work(F::create_empty_task(), nullptr));
  (void)co_await parallel;
  co_return inside;
}

WFCo<WFEnd> wait_for_a_graph(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  WFGraphTask* const graph = F::create_graph_task(nullptr);
  WFGraphNode& first = graph->create_graph_node(counter_inside(place, inside));
  WFGraphNode& second = graph->create_graph_node(F::create_empty_task());
  first-- > second;
  (void)co_await graph;
  co_return inside;
}

WFCo<WFEnd> wait_for_a_module(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  SubTask* const counter = counter_inside(place, inside);
  WFModuleTask* const module = F::create_module_task(counter, nullptr);
  (void)co_await module;
  co_return inside;
}

WFCo<WFEnd> wait_for_a_repeater(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  bool is_first = true;
  const auto create = [&](WFRepeaterTask*) {
    return std::exchange(is_first, false) ? counter_inside(place, inside) : nullptr;
  };
  WFRepeaterTask* const repeater = F::create_repeater_task(create, nullptr);
  const WFEnd outside = co_await repeater;
  // In a scope that has ended nothing is created.
  co_return is_first ? outside : inside;
}

WFCo<WFEnd> wait_for_a_dynamic_task(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  const auto create = [&](WFDynamicTask*) { return counter_inside(place, inside); };
  WFDynamicTask* const dynamic = F::create_dynamic_task(create);
  (void)co_await dynamic;
  co_return inside;
}

WFCo<WFEnd> wait_for_a_scope_task(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  WFScopeTask* const scope = F::create_scope_task(counter_inside(place, inside), nullptr);
  const WFEnd outside = co_await scope;
  // A scope may end when what is inside has ended already, but not the other way round.
  co_return outside && !inside ? WFEnd{} : outside;
}

WFCo<WFEnd> wait_for_a_deadline_task(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  WFScopeTask* const scope = with_deadline(counter_inside(place, inside), 1h);
  const WFEnd outside = co_await scope;
  co_return outside && !inside ? WFEnd{} : outside;
}

// Other coroutines --------------------------------------------------------------------------------

WFCo<WFEnd> wait_for_a_child(WaitPlace& place) {
  const Frame frame(place);
  const WFEnd end = co_await wait_for_a_message(place);
  co_return end;
}

WFCo<WFEnd> wait_for_a_coroutine_task(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  const auto child = [&]() -> WFCo<> { inside = co_await wait_for_a_message(place); };
  WFCoTask* const task = wf::task(child);
  (void)co_await task;
  co_return inside;
}

WFCo<WFEnd> wait_for_all(WaitPlace& place) {
  const Frame frame(place);
  const auto both = co_await wf::all(wait_for_a_message(place), F::create_empty_task());
  co_return std::get<0>(both);
}

WFCo<WFEnd> wait_for_all_ended(WaitPlace& place) {
  const Frame frame(place);
  const auto both = co_await wf::all_ended(wf::receive(place.name()), F::create_empty_task());
  co_return place.got(std::get<0>(both));
}

// What is first may be either, if the scope ends. The loser's frame has gone in every case.
WFCo<WFEnd> wait_for_any(WaitPlace& place) {
  const Frame frame(place);
  int inside = 0;
  const auto wait = [&]() -> WFCo<WFEnd> {
    inside++;
    const WFEnd end = co_await wait_for_a_message(place);
    inside--;
    co_return end;
  };
  const auto first = co_await wf::any(wait(), wf::sleep(1h));
  if (inside != 0) co_return WFEnd{};
  co_return first.index == 0 ? std::get<0>(first.value) : std::get<1>(first.value);
}

WFCo<WFEnd> wait_within(WaitPlace& place) {
  const Frame frame(place);
  const auto message = co_await wf::within(1h, wf::receive(place.name()));
  co_return place.got(message);
}

WFCo<WFEnd> wait_for_each(WaitPlace& place) {
  const Frame frame(place);
  const auto wait = [&place](int) { return wait_for_a_message(place); };
  const std::vector<int> one = {1};
  const std::vector<WFEnd> ends = co_await wf::each(one, 1, wait);
  co_return ends[0];
}

WFCo<WFEnd> wait_in_a_scope(WaitPlace& place) {
  const Frame frame(place);
  WFEnd inside;
  const auto body = [&](WFScope& scope) {
    scope.start([&]() -> WFCo<> { inside = co_await wait_for_a_message(place); });
  };
  co_await wf::scope(body);
  co_return inside;
}

// Requests ----------------------------------------------------------------------------------------

std::string url_of(WaitPlace& place) {
  return "http://127.0.0.1:" + std::to_string(place.port()) + "/";
}

WFCo<WFEnd> wait_for_a_response(WaitPlace& place) {
  const Frame frame(place);
  WFHttpTask* const request = F::create_http_task(url_of(place), 0, 0, nullptr);
  const auto response = co_await request;
  co_return response;
}

WFCo<WFEnd> wait_for_a_chunk(WaitPlace& place) {
  const Frame frame(place);
  WFCoChunks chunks(WFHttpChunkedClient::create_chunked_task(url_of(place), 0, nullptr, nullptr));
  const auto piece = co_await chunks.next();
  if (!piece) co_return chunks.end();
  co_return WFEnd{*piece == "thing" ? WFT_STATE_SUCCESS : WFT_STATE_UNDEFINED, 0};
}
void answer(WaitPlace& place) {
  place.answer();
}

constexpr WFEnd kSuccess = {WFT_STATE_SUCCESS, 0};

const WaitKind kLocalKinds[] = {
    {"sleep", wait_asleep, let_time_come},
    {"sleep that is cancelled", wait_asleep, cancel_sleep, {WFT_STATE_SYS_ERROR, ECANCELED}},
    {"sleep with a handle", wait_with_a_handle,
     [](WaitPlace& place) { place.handle().reschedule(0ns); }},
    {"periodic timer", wait_for_a_periodic_timer, let_time_come},
    {"counter", wait_for_a_counter, count},
    {"mailbox", wait_for_a_message, send},
    {"selector", wait_for_a_selector, submit},
    {"conditional", wait_for_a_conditional, signal},
    {"guard", wait_for_a_guard, release, kSuccess, hold_first, guard_is_free},
    {"pool", wait_for_a_resource, post_resource, kSuccess, take_first, resource_is_back},
    {"queue", wait_for_a_queue, post_message, kSuccess, nullptr, message_is_there},
    {"go", wait_for_a_function, nullptr},
    {"file", wait_for_a_file, nullptr},
    {"series", wait_for_a_series, count},
    {"parallel", wait_for_a_parallel, count},
    {"graph", wait_for_a_graph, count},
    {"module", wait_for_a_module, count},
    {"repeater", wait_for_a_repeater, count},
    {"dynamic task", wait_for_a_dynamic_task, count},
    {"scope task", wait_for_a_scope_task, count},
    {"deadline task", wait_for_a_deadline_task, count},
    {"child", wait_for_a_child, send},
    {"coroutine as a task", wait_for_a_coroutine_task, send},
    {"all", wait_for_all, send},
    {"all_ended", wait_for_all_ended, send},
    {"any", wait_for_any, send},
    {"within", wait_within, send},
    {"each", wait_for_each, send},
    {"scope", wait_in_a_scope, send},
};

const WaitKind kNetworkKinds[] = {
    {"request", wait_for_a_response, answer},
    {"chunk of a response", wait_for_a_chunk, answer},
};

}  // namespace

std::span<const WaitKind> local_wait_kinds() {
  return kLocalKinds;
}

std::span<const WaitKind> network_wait_kinds() {
  return kNetworkKinds;
}

}  // namespace test_support
