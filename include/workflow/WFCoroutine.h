#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "workflow/WFEnd.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFScope.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/detail/CoAwait.h"
#include "workflow/detail/CoCall.h"
#include "workflow/detail/CoHandler.h"

// Coroutines (C++20). A function that returns WFCo<T> may write `co_await` before every task of
// this library, and before other such functions:
//
//   WFCo<int> count_bytes(std::string url) {
//     auto response = co_await WFTaskFactory::create_http_task(url, 4, 2, nullptr);
//     if (!response) co_return -1;
//     co_await wf::sleep(std::chrono::seconds(1));
//     ...
//   }
//   Workflow::start_series_work(wf::task(count_bytes, "http://example.com/"), nullptr);
//
// docs/coroutines.md explains all of it. In short:
//
// - A coroutine is a task. While it waits, it stands in its series behind the task that it awaits.
//   It goes on as the next task of the series, when the awaited task and its callback are over. So
//   the rest of the function runs where callbacks run.
// - How a wait has ended is a value: WFEnd, or WFEnded<T> with what the task brought. co_await
//   throws nothing by itself; but what an awaited coroutine throws is thrown at its co_await. What
//   the outermost coroutine of a task throws ends the process, except in wf::serve().
// - When a scope ends, what waits in it ends with ECANCELED or ETIMEDOUT, and so does every later
//   wait in it, at once. When the process exits, every wait ends with ABORTED. The coroutine goes
//   on in each case. Only a cancelled series destroys the coroutines in it where they wait.

// What a coroutine's function returns. It must be awaited or given away in the expression that has
// created it. The coroutine begins when it is awaited, and lives in the series of its caller.
//
//   int n = co_await count_bytes(url);
//
// T is the type of the value that it returns. It may be a reference.
template <class T = void>
class [[nodiscard]] WFCo {
 public:
  using promise_type = workflow::CoPromise<T>;

  WFCo(const WFCo &) = delete;
  WFCo &operator=(const WFCo &) = delete;
  // A coroutine that was never awaited is an error of the program, which is aborted, unless an
  // exception is the reason.
  ~WFCo() {
    if (promise_) workflow::co_never_awaited(promise_);
  }

  // For compilers.
  WFCo(workflow::CoBorn<T> born) noexcept : promise_(born.promise) {}

 private:
  friend class workflow::CoAccess;

  promise_type *release() noexcept { return std::exchange(promise_, nullptr); }

  promise_type *promise_;
};

// A coroutine as a task of its own: see wf::task().
using WFCoTask = workflow::CoTask;

namespace wf {

// Waits. The functions with a name take it as WFTaskFactory and WFTimer do. Each gives a WFEnd:
// SUCCESS when the time has come, or what WFTimer.h lists.
inline auto sleep(const WFTimerDue &due) {
  return workflow::CoWork<WFTimerTask>{WFTimer::create(due, nullptr)};
}
// WFTaskFactory::cancel_by_name(), and everything else that finds timers by name, finds this.
inline auto sleep(const std::string &name, const WFTimerDue &due) {
  WFTimerOptions options;
  options.name = name;
  return workflow::CoWork<WFTimerTask>{WFTimer::create(due, options, nullptr)};
}
// `*handle` refers to the timer before it waits.
inline auto sleep(const WFTimerDue &due, WFTimerHandle *handle) {
  WFTimerTask *const timer = WFTimer::create(due, nullptr);
  *handle = WFTimer::handle_of(timer);
  return workflow::CoWork<WFTimerTask>{timer};
}

// Runs f(args...) on a computing thread and gives a WFEnded of its result. f and the arguments are
// copied or moved into the task; std::ref passes references. The coroutine goes on only when the
// function has returned, so the function may use the coroutine's variables, also if the scope ends
// meanwhile: then a function that has begun runs to its end, and gives its result. One that has not
// begun never begins, and the error of the scope is given. If `f` takes a std::stop_token as its
// first parameter, it gets one of which stop is requested when the scope ends. What f throws is
// thrown here.
template <class F, class... A>
auto go(const std::string &queue, F f, A... args) {
  using Task = workflow::CoGoTask<F, A...>;
  return workflow::CoWork<Task>{new Task(queue, std::move(f), std::move(args)...)};
}

// The coroutine f(args...) as a task, for series, parallels, graphs, scopes and deadlines. f and
// the arguments are copied or moved into the task, where they live as long as the coroutine: so
// lambdas with captures are safe. The coroutine begins when the task does. start() starts it alone,
// and dismiss() deletes it unstarted.
template <class F, class... A>
WFCoTask *task(F f, A... args) {
  return new workflow::CoCall<F, A...>(std::move(f), std::move(args)...);
}

// A `process` function for WFHttpServer. handler(task) is a coroutine that takes a WFHttpTask*; the
// reply is sent when it has returned. If the client leaves before, what the handler waits for ends
// with ECANCELED (WFHttpTask::cancel_on_closed()). task->set_deadline() limits the time. If the
// handler throws, the client gets a 500 and the connection is closed; a streamed reply that has
// begun is cut.
template <class F>
http_process_t serve(F handler) {
  return [handler = std::make_shared<F>(std::move(handler))](WFHttpTask *request) {
    workflow::serve_request(request, new workflow::CoHandler<F>(handler, request));
  };
}

}  // namespace wf
