#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "workflow/WFCo.h"
#include "workflow/WFEnd.h"
#include "workflow/WFHttpServer.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFScope.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/detail/CoAwait.h"
#include "workflow/detail/CoCall.h"
#include "workflow/detail/CoHandler.h"
#include "workflow/detail/CoJoin.h"
#include "workflow/detail/CoStream.h"
#include "workflow/detail/CoWait.h"

// Coroutines (C++20). A function that returns WFCo<T> may write `co_await` before every task of
// this library, and before other such functions:
//
//   WFCo<int> count_bytes(std::string url) {
//     auto response = co_await WFTaskFactory::create_http_task(url, 4, 2, nullptr);
//     if (!response) co_return -1;
//     (co_await wf::sleep(std::chrono::seconds(1))).check();
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
// - When a coroutine goes on that has waited for a function on a computing thread, the function has
//   returned, however the wait has ended. So it may use the coroutine's variables. Only
//   wf::go_detached() differs.
// - When a scope ends, what waits in it ends with SYS_ERROR and the error of the scope, such as
//   ECANCELED or ETIMEDOUT, and so does every later wait in it, at once. When the process exits,
//   every wait ends with ABORTED. The coroutine goes on in each case. A coroutine is destroyed
//   where it waits in two cases only: if its series is cancelled, and if it begins 10,000 waits
//   after the library has begun to stop.

// The task that runs a coroutine. wf::task() makes one.
using WFCoTask = workflow::CoTask;

namespace wf {

// Waits until a time. Each of these functions gives a WFEnd: SUCCESS when the time has come, or one
// of the other ends that WFTimer.h lists. A name that is given is the name of the timer.
inline auto sleep(const WFTimerDue &due) {
  return workflow::CoWork<WFTimerTask>(WFTimer::create(due, nullptr));
}
// Waits as above, by a timer with a name. WFTaskFactory::cancel_by_name() ends the wait, and every
// other function that finds timers by name finds the timer.
inline auto sleep(const std::string &name, const WFTimerDue &due) {
  WFTimerOptions options;
  options.name = name;
  return workflow::CoWork<WFTimerTask>(WFTimer::create(due, options, nullptr));
}
// Waits as above. When this function has returned, `*handle` refers to the timer, even before the
// wait begins. `handle` may be null.
inline auto sleep(const WFTimerDue &due, WFTimerHandle *handle) {
  WFTimerTask *const timer = WFTimer::create(due, nullptr);
  if (handle) *handle = WFTimer::handle_of(timer);
  return workflow::CoWork<WFTimerTask>(timer);
}
// These overloads build the WFTimerDue here, because one built by the caller would take room in the
// caller's frame.
template <class DUE>
requires std::is_convertible_v<const DUE &, WFTimerDue>
auto sleep(const DUE &due) {
  return sleep(WFTimerDue(due));
}
template <class DUE>
requires std::is_convertible_v<const DUE &, WFTimerDue>
auto sleep(const std::string &name, const DUE &due) {
  return sleep(name, WFTimerDue(due));
}
template <class DUE>
requires std::is_convertible_v<const DUE &, WFTimerDue>
auto sleep(const DUE &due, WFTimerHandle *handle) {
  return sleep(WFTimerDue(due), handle);
}

// Runs f(args...) on a computing thread and gives a WFEnded of its result. f and the arguments are
// copied or moved into the task; std::ref passes references. The coroutine goes on only when the
// function has returned, so the function may use the coroutine's variables. If the scope ends
// meanwhile, a function that has begun runs to its end and its result is given. A function that has
// not begun never begins, and the error of the scope is given. If f takes a std::stop_token as its
// first parameter, stop is requested on that token when the scope ends. An exception that f throws
// is thrown here.
template <class F, class... A>
auto go(const std::string &queue, F f, A... args) {
  using Task = workflow::CoGoTask<F, A...>;
  return workflow::CoWork<Task>(new Task(queue, std::move(f), std::move(args)...));
}

// Like go(), but the wait lasts no longer than `limit` (negative: see docs/limits.md). It gives
// ETIMEDOUT when the limit has passed, or the error of the scope as soon as the scope ends. A
// function that has begun then runs on: stop is requested on its std::stop_token, and its result or
// exception is discarded. So neither the function nor what it has captured may refer to the
// coroutine's variables. The arguments are copied or moved into the task, which lives until the
// function has returned; std::ref does not compile.
template <class F, class... A>
requires workflow::CoCopies<F, A...>
auto go_detached(const std::string &queue, workflow::Duration limit, F f, A... args) {
  using Task = workflow::CoDetachedTask<F, A...>;
  return workflow::CoWork<Task>(new Task(queue, limit, std::move(f), std::move(args)...));
}

// Returns a task that runs the coroutine f(args...), for series, parallels, graphs, scopes and
// deadlines. f and the arguments are copied or moved into the task, where they live as long as the
// coroutine, so lambdas with captures are safe. The coroutine begins when the task is dispatched.
// start() starts the task alone, and dismiss() deletes a task that was not started.
template <class F, class... A>
WFCoTask *task(F f, A... args) {
  return new workflow::CoCall<F, A...>(std::move(f), std::move(args)...);
}

// `SeriesWork *series = co_await wf::own_series();` gives the series in which the coroutine runs,
// at once. Tasks that are pushed to it run when the outermost coroutine has returned.
inline workflow::CoOwnSeries own_series() {
  return {};
}

// Runs the coroutine f(args...) and blocks the calling thread until it has ended. Returns what the
// coroutine returns, and throws what it throws. Throws a WFError with ECANCELED if the series of
// the coroutine was cancelled. If the thread belongs to the library, another one works in its place
// meanwhile. f and the arguments are copied or moved.
template <class F, class... A>
auto wait(F f, A... args) -> typename workflow::CoGiven<
    typename workflow::CoResultOf<std::invoke_result_t<F, A...>>::type>::type {
  using T = typename workflow::CoResultOf<std::invoke_result_t<F, A...>>::type;
  using Call = workflow::CoWaitedCall<F, T, A...>;
  const auto shared = std::make_shared<typename Call::Shared>();
  (new Call(shared, std::move(f), std::move(args)...))->start();
  shared->wait();
  if constexpr (std::is_void_v<T>) {
    workflow::co_result(shared->slot);
  } else {
    return workflow::co_give<workflow::CoStored<T>>(workflow::co_result(shared->slot));
  }
}

// Mailboxes, guards, pools and queues ----------------------------------------------------------

// Waits for a message to a mailbox of that name (WFTaskFactory::send_by_name()). Gives a
// WFEnded<void *>: the message.
inline auto receive(const std::string &mailbox) {
  return workflow::CoWork<WFMailboxTask>(WFTaskFactory::create_mailbox_task(mailbox, nullptr));
}
// Waits for the oldest message of a queue. Gives a WFEnded<void *>: the message.
inline auto receive(WFMessageQueue &queue) {
  return workflow::co_take(queue);
}

// Waits until the coroutine holds the resource of that name (WFTaskFactory::create_guard()). Gives
// a WFEnded<void *>: the message of the previous release. After SUCCESS the coroutine must release
// the resource once, by WFTaskFactory::release_guard() or a WFReleaseGuard. If the coroutine is
// dropped before it goes on with the resource, the library releases it.
inline auto hold(const std::string &guard) {
  workflow::CoReleaseGuard back(guard);  // before there is a task that would be lost
  return workflow::CoGrant<workflow::CoReleaseGuard>(
      WFTaskFactory::create_guard(guard, nullptr, nullptr), std::move(back));
}

// Waits for a resource. Gives a WFEnded<void *>: the resource. After SUCCESS the coroutine must
// give the resource back once, by pool.post() or a WFPostResource. If the coroutine is dropped
// before it goes on with the resource, the library posts it.
inline auto take(WFResourcePool &pool) {
  return workflow::co_take(pool);
}

// Side by side ---------------------------------------------------------------------------------

// Each of these takes works: coroutines, tasks, series, and whatever the functions of wf return.
// The works run side by side, each in a series of its own, in a scope that ends with the scope
// around it. Each function gives its result only when the frames of all works are gone, so the
// works may use the variables of the caller.

// Waits for all works. Gives a std::tuple of what `co_await` would give for each: std::monostate
// for void. If one throws, the others are ended with ECANCELED, and the first exception is thrown
// when all have ended.
template <class... W>
auto all(W... each) {
  return workflow::co_all(workflow::co_all_unstarted(workflow::co_own(each)...));
}

// Waits for all works. Gives a std::tuple of outcomes: for a WFCo<T> a WFEnded<T> with what it has
// returned or thrown, and for a task what `co_await` gives. No work ends another, and nothing is
// thrown.
template <class... W>
auto all_ended(W... each) {
  return workflow::co_all_ended(workflow::co_all_unstarted(workflow::co_own(each)...));
}

// Waits for the first work to end, however it ends, and ends the others with ECANCELED. When all
// have ended, gives a WFFirst: the index of the first, and a std::variant with its result at that
// index. If the first has thrown an exception, that is thrown. If another work is a wf::hold(),
// wf::take() or wf::receive(queue) and has got something at the same moment, that is given back.
// Something that a coroutine of your own has got is lost with its result, unless the coroutine
// gives it back itself.
template <class... W>
auto any(W... each) {
  return workflow::co_any(workflow::co_all_unstarted(workflow::co_own(each)...));
}

// Runs the work with a time limit. When the limit has passed, what waits inside ends with
// ETIMEDOUT. If the work is a task, gives what `co_await` would. If it is a WFCo<T>, gives a
// WFEnded<T>: SYS_ERROR and ETIMEDOUT (or the error of the scope around it) if the coroutine has
// not returned in time, together with the value that it has returned late. A coroutine that returns
// a WFEnd or a WFEnded gives what it has returned; but if it is late, SYS_ERROR and ETIMEDOUT (or
// the error of the scope around it) take the place of its state and error. For negative limits see
// docs/limits.md. An exception that the work throws is thrown here.
template <class W>
auto within(workflow::Duration limit, W work) {
  return workflow::co_within<W, workflow::CoWorkResult<W>>(
      limit, workflow::co_unstarted(workflow::co_own(work)));
}

// Calls f with each item of the range, and waits for the work that it returns; at most `at_most` of
// them at a time, where 0 counts as 1. Gives a std::vector of their results in the order of the
// range, or nothing if they have none. After the first exception no other work begins, the works
// that run end with ECANCELED, and the exception is thrown. Any thread of the library may call f,
// and several may do so at a time. The range is copied or moved; to keep it in place, pass a view
// of it.
template <class R, class F>
auto each(R range, size_t at_most, F f) {
  return workflow::co_each<R, F>(std::move(range), at_most, std::move(f));
}

// Calls body(scope), a coroutine or a plain function, which may start coroutines with
// scope.start(f, args...). Gives what the body returns, when all of them have ended. If the body or
// one of them throws, the scope ends with ECANCELED, and the first exception is thrown when all
// have ended. scope.cancel() and scope.set_deadline() end what waits inside.
template <class F>
auto scope(F body) {
  return workflow::co_scope<F>(std::move(body));
}

// Servers --------------------------------------------------------------------------------------

// Returns a `process` function for WFHttpServer that runs the coroutine function(task) for each
// request; `task` is a WFHttpTask*. The reply is sent when the coroutine has returned. If the
// client leaves before that, what the coroutine waits for ends with ECANCELED
// (WFHttpTask::cancel_on_closed()). task->set_deadline() limits the time. If the coroutine throws,
// the client gets a 500 and the connection is closed; a streamed reply that has begun is cut.
template <class F>
http_process_t serve(F function) {
  return [function = std::make_shared<F>(std::move(function))](WFHttpTask *request) {
    try {
      workflow::serve_request(request, new workflow::CoHandler<F>(function, request));
    } catch (const std::bad_alloc &) {
      request->noreply();  // the connection is closed without a reply
    }
  };
}

// Begin a streamed reply, and one of server-sent events, to a request. See WFCoStream
// and WFHttpStream::begin().
inline WFCoStream stream(WFHttpTask *request) {
  return WFCoStream(WFHttpStream::begin(request));
}
inline WFCoStream event_stream(WFHttpTask *request) {
  return WFCoStream(WFHttpStream::begin_events(request));
}

}  // namespace wf

// Releases a guard when it is destroyed: at the end of its block, or with a coroutine that is
// dropped.
class [[nodiscard]] WFReleaseGuard {
 public:
  explicit WFReleaseGuard(std::string guard) : guard_(std::move(guard)) {}
  WFReleaseGuard(const WFReleaseGuard &) = delete;
  WFReleaseGuard &operator=(const WFReleaseGuard &) = delete;
  ~WFReleaseGuard() { WFTaskFactory::release_guard_safe(guard_, message); }

  void *message = nullptr;  // for the next holder

 private:
  const std::string guard_;
};

// Gives a resource back to its pool when it is destroyed: at the end of its block, or with a
// coroutine that is dropped.
class [[nodiscard]] WFPostResource {
 public:
  WFPostResource(WFResourcePool &pool, void *resource) : pool_(pool), resource_(resource) {}
  WFPostResource(const WFPostResource &) = delete;
  WFPostResource &operator=(const WFPostResource &) = delete;
  ~WFPostResource() { pool_.post(resource_); }

 private:
  WFResourcePool &pool_;
  void *const resource_;
};

template <class F, class... A>
bool WFScope::start(F f, A... args) const {
  using Branch = workflow::CoStartedBranch<F, A...>;
  return workflow::CoGroup::start(*this, new Branch(std::move(f), std::move(args)...));
}
