#pragma once

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "workflow/WFEnd.h"
#include "workflow/WFGenericTask.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTask.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/detail/CoTask.h"

template <class T = void>
class WFCo;

// Says what `co_await task` gives beside the state and the error. Specialise this for tasks of your
// own with a static function value(T *task). It is called in the callback of a task that has ended
// with SUCCESS, or if its kind has no callback, when it calls delete_and_next(). Without a
// specialisation, `co_await` gives what the kinds of this library have: the response of a client's
// request, the return value of a file operation, the message of a mailbox or selector, the output
// of a thread task, or what result() of the task returns. The latter is there after a failure, too.
template <class T>
struct WFAwaited {};

namespace workflow {

// Gives coroutines access to what tasks keep private.
class CoAccess {
 public:
  // Makes the task call `then` after the user's callback, if there is one. If this throws
  // std::bad_alloc, the task is dropped.
  template <class TASK, class BASE, class THEN>
  static void add_callback(TaskWithCallback<TASK, BASE> *task, THEN then) {
    CoTask::prepare_or_drop(task, [task, then] {
      if (task->callback_) {
        task->callback_ = [user = std::move(task->callback_), then](TASK *ended) {
          user(ended);
          then();
        };
      } else {
        task->callback_ = [then](TASK *) { then(); };
      }
    });
  }
  // Calls observer->task_ends() when the task has ended.
  static void observe(WFGenericTask *task, TaskEndObserver *observer) {
    task->observer_ = observer;
  }
  template <class T>
  static auto release(WFCo<T> &co) {
    return co.release();
  }
  template <class T>
  static CoFrame *frame(WFCo<T> &co) {
    return co.promise_;
  }

  // From now on the conditional stores in `*end` how it has ended, and does not cancel its series
  // if it fails.
  static void report(WFConditional *conditional, ConditionalEnd *end) { conditional->end_ = end; }
};

template <class T>
concept CoHasCallback = requires(T *task) {
  CoAccess::add_callback(task, [] {});
};

// Returns what a task has brought. If it returns void, there is nothing but a state and an error.
template <class T>
auto co_value(T *task) {
  if constexpr (requires { WFAwaited<T>::value(task); }) {
    return WFAwaited<T>::value(task);
  } else if constexpr (requires { task->get_req(), task->get_resp(); }) {
    using Response = std::remove_pointer_t<decltype(task->get_resp())>;
    if constexpr (std::is_move_constructible_v<Response>)
      return Response(std::move(*task->get_resp()));
  } else if constexpr (requires { task->get_retval(); }) {
    return task->get_retval();
  } else if constexpr (requires { task->get_mailbox(); }) {
    return *task->get_mailbox();
  } else if constexpr (requires { task->submit(nullptr), task->get_message(); }) {
    return task->get_message();
  } else if constexpr (requires { task->get_output(); }) {
    return std::move(*task->get_output());
  } else if constexpr (requires { task->result(); }) {
    return std::remove_cvref_t<decltype(task->result())>(task->result());
  }
}

template <class T>
using CoValue = decltype(co_value(static_cast<T *>(nullptr)));

// Whether the task has a value also after a failure: a result, which says why.
template <class T>
inline constexpr bool kAlwaysHasResult = requires(T *task) {
  task->result();
};

// Something to wait for, which a function of wf has made. It owns its task, because an exception
// may come before it is awaited. It is not an aggregate, because g++ 12 destroys temporary
// aggregates in a co_await twice.
template <class T>
class [[nodiscard]] CoWork {
 public:
  explicit CoWork(T *task) noexcept : task_(task) {}
  CoWork(CoWork &&other) noexcept : task_(other.release()) {}
  CoWork &operator=(CoWork &&) = delete;
  ~CoWork() {
    if (task_) CoTask::drop(task_);
  }

  T *release() noexcept { return std::exchange(task_, nullptr); }

 private:
  T *task_;
};

// The classes CoPlainAwaiter to CoGrantAwaiter are the awaiters of tasks. They differ in what a
// `co_await` gives.

// The awaiter of a task without a value.
template <class T>
class CoPlainAwaiter {
 public:
  CoPlainAwaiter(CoTask *waiter, T *task) : wait_{waiter, task} {}
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    const Wait wait = wait_;
    CoTask::check_awaitable(wait.task);
    if constexpr (CoHasCallback<T>) {
      CoAccess::add_callback(wait.task, [this] {
        new (&end_) WFEnd{wait_.task->get_state(), wait_.task->get_error()};
      });
    } else {
      new (&end_) WFEnd{WFT_STATE_SUCCESS, 0};
    }
    wait.waiter->wait_for(wait.task);
  }
  WFEnd await_resume() const noexcept { return end_; }

 private:
  struct Wait {
    CoTask *waiter;
    T *task;
  };
  union {
    Wait wait_;  // until the task has ended
    WFEnd end_;
  };
};

// The awaiter of a task that brings a value.
template <class T>
class CoValueAwaiter {
 public:
  CoValueAwaiter(CoTask *waiter, T *task) : waiter_(waiter), task_(task) {}
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    CoTask::check_awaitable(task_);
    CoAccess::add_callback(task_, [this] {
      end_.state = task_->get_state();
      end_.error = task_->get_error();
      if (end_ || kAlwaysHasResult<T>) end_.value.emplace(co_value(task_));
    });
    waiter_->wait_for(task_);
  }
  WFEnded<CoValue<T>> await_resume() { return std::move(end_); }

 private:
  CoTask *const waiter_;
  T *const task_;
  WFEnded<CoValue<T>> end_;
};

// The awaiter of a task of a kind that users have derived from WFGenericTask. Gives a WFEnded if
// the task brings a value, otherwise a WFEnd.
template <class T>
class CoGenericAwaiter final : private TaskEndObserver {
 public:
  CoGenericAwaiter(CoTask *waiter, T *task) : waiter_(waiter), task_(task) {}
  CoGenericAwaiter(const CoGenericAwaiter &) = delete;
  CoGenericAwaiter &operator=(const CoGenericAwaiter &) = delete;
  ~CoGenericAwaiter() {
    if (observes_) CoAccess::observe(task_, nullptr);
  }
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    CoTask::check_awaitable(task_);
    CoAccess::observe(task_, this);
    observes_ = true;
    waiter_->wait_for(task_);
  }
  auto await_resume() {
    // A task whose end is not that of its object is still there.
    if (observes_) {
      CoAccess::observe(task_, nullptr);
      task_ends(task_, true);
    }
    return std::move(end_);
  }

 private:
  static constexpr bool kHasValue = !std::is_void_v<CoValue<T>>;

  template <bool HAS_VALUE, class VALUE>
  struct End {
    using Type = WFEnd;
  };
  template <class VALUE>
  struct End<true, VALUE> {
    using Type = WFEnded<VALUE>;
  };

  void task_ends(WFGenericTask *task, bool is_whole) override {
    observes_ = false;
    end_.state = task->get_state();
    end_.error = task->get_error();
    if constexpr (kHasValue) {
      if (is_whole && (end_ || kAlwaysHasResult<T>)) end_.value.emplace(co_value(task_));
    }
  }

  CoTask *const waiter_;
  T *const task_;
  bool observes_ = false;  // the task will call task_ends()
  typename End<kHasValue, CoValue<T>>::Type end_;
};

// The awaiter of a conditional, a guard, or a wait for a resource or a message. If the conditional
// was ended early, the task that it was to run was dropped.
class CoConditionalAwaiter {
 public:
  CoConditionalAwaiter(CoTask *waiter, WFConditional *task) : waiter_(waiter), task_(task) {}
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    CoTask::check_awaitable(task_);
    CoAccess::report(task_, &end_);
    waiter_->wait_for(task_);
  }
  WFEnded<void *> await_resume() const {
    WFEnded<void *> ended{{end_.state, end_.error}};
    if (ended) ended.value = end_.message;
    return ended;
  }

 private:
  CoTask *const waiter_;
  WFConditional *const task_;
  ConditionalEnd end_;
};

// Owns something that was granted and must be given back, such as a resource. Unless give() was
// called before, the destructor passes it to `back`. So a result that nobody reads is not lost.
template <class BACK>
class CoGranted {
 public:
  explicit CoGranted(BACK &&back) : back_(std::move(back)) {}
  // Says that nothing was granted, and why.
  explicit CoGranted(const WFEnd &failed) : end_{failed.state, failed.error, nullptr} {}
  CoGranted(CoGranted &&other) noexcept : end_(other.end_), back_(std::move(other.back_)) {
    other.end_.state = WFT_STATE_UNDEFINED;
  }
  CoGranted &operator=(CoGranted &&) = delete;
  ~CoGranted() {
    if (end_.state == WFT_STATE_SUCCESS) (*back_)(end_.message);
  }

  void report(WFConditional *task) { CoAccess::report(task, &end_); }

  // Passes what was granted to the user, who must give it back from now on.
  WFEnded<void *> give() {
    WFEnded<void *> ended{{end_.state, end_.error}};
    if (ended) ended.value = end_.message;
    end_.state = WFT_STATE_UNDEFINED;
    return ended;
  }

 private:
  ConditionalEnd end_;
  std::optional<BACK> back_;
};

// Turns a result of a coroutine of the library into what the user gets. Only what was granted
// differs, also inside the results of wf::all() and wf::any(): CoGranted is replaced by its
// outcome.
template <class T>
struct CoGiven {
  using type = T;
};
template <class BACK>
struct CoGiven<CoGranted<BACK>> {
  using type = WFEnded<void *>;
  static type give(CoGranted<BACK> &&granted) { return granted.give(); }
};
template <class T>
inline constexpr bool kCoIsGranted = !std::is_same_v<typename CoGiven<T>::type, T>;
template <class T>
typename CoGiven<T>::type co_give(T &&result) {
  if constexpr (kCoIsGranted<T>) {
    return CoGiven<T>::give(std::move(result));
  } else {
    return std::move(result);
  }
}
template <class... T>
requires(kCoIsGranted<T> || ...) struct CoGiven<std::tuple<T...>> {
  using type = std::tuple<typename CoGiven<T>::type...>;
  static type give(std::tuple<T...> &&all) {
    return std::apply([](T &...each) { return type(co_give<T>(std::move(each))...); }, all);
  }
};
template <class T>
requires kCoIsGranted<T>
struct CoGiven<WFEnded<T>> {
  using type = WFEnded<typename CoGiven<T>::type>;
  static type give(WFEnded<T> &&ended) {
    type given{static_cast<const WFEnd &>(ended)};
    if (ended.value) given.value.emplace(co_give<T>(*std::move(ended.value)));
    given.exception = std::move(ended.exception);
    return given;
  }
};

// The awaiter of something that must be given back, such as a resource. If the coroutine is dropped
// after that was granted and before the coroutine has gone on, this object gives it back. If RESULT
// is the CoGranted itself, the wait gives that object.
template <class BACK, class RESULT>
class CoGrantAwaiter {
 public:
  CoGrantAwaiter(CoTask *waiter, WFConditional *task, BACK &&back)
      : waiter_(waiter), task_(task), granted_(std::move(back)) {}
  CoGrantAwaiter(const CoGrantAwaiter &) = delete;
  CoGrantAwaiter &operator=(const CoGrantAwaiter &) = delete;
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    granted_.report(task_);
    waiter_->wait_for(task_);
  }
  RESULT await_resume() {
    if constexpr (std::is_same_v<RESULT, CoGranted<BACK>>) {
      return std::move(granted_);
    } else {
      return granted_.give();
    }
  }

 private:
  CoTask *const waiter_;
  WFConditional *const task_;
  CoGranted<BACK> granted_;
};

// A wait for something that must be given back. It cannot be copied, so it must be awaited where it
// is made.
template <class BACK, class RESULT = WFEnded<void *>>
class [[nodiscard]] CoGrant {
 public:
  CoGrant(WFConditional *task, BACK &&back) : work_(task), back_(std::move(back)) {}
  CoGrant(CoGrant &&) noexcept = default;
  CoGrant &operator=(CoGrant &&) = delete;

  CoGrantAwaiter<BACK, RESULT> awaiter(CoTask *waiter) {
    return CoGrantAwaiter<BACK, RESULT>(waiter, work_.release(), std::move(back_));
  }
  // Returns this wait in the form that coroutines of the library use, whose results may never be
  // read.
  CoGrant<BACK, CoGranted<BACK>> unseen() { return {work_.release(), std::move(back_)}; }

 private:
  CoWork<WFConditional> work_;
  BACK back_;
};

class CoReleaseGuard {
 public:
  explicit CoReleaseGuard(std::string guard) : guard_(std::move(guard)) {}
  void operator()(void *message) const { WFTaskFactory::release_guard_safe(guard_, message); }

 private:
  std::string guard_;
};

class CoPostBack {
 public:
  explicit CoPostBack(ResourceSource &source) : source_(&source) {}
  void operator()(void *resource) const { source_->post(resource); }

 private:
  ResourceSource *source_;
};

inline CoGrant<CoPostBack> co_take(ResourceSource &source) {
  return {source.get(nullptr), CoPostBack(source)};
}

// The awaiter of a function on a computing thread (wf::go).
template <class T>
class CoGoAwaiter {
 public:
  CoGoAwaiter(CoTask *waiter, T *task) : waiter_(waiter), task_(task) {}
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    CoAccess::add_callback(task_, [this] { task_->take(&end_); });
    waiter_->wait_for(task_);
  }
  auto await_resume() {
    if (end_.exception) std::rethrow_exception(std::exchange(end_.exception, nullptr));
    return std::move(end_);
  }

 private:
  CoTask *const waiter_;
  T *const task_;
  typename T::Ended end_;
};

// The result of wf::own_series(). To await it gives the series at once.
struct [[nodiscard]] CoOwnSeries {
  struct Awaiter {
    CoTask *waiter;
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    SeriesWork *await_resume() const { return series_of(waiter); }
  };
  Awaiter awaiter(CoTask *waiter) const { return {waiter}; }
};

// A task that runs a series which was not started. If the series was cancelled, the task ends with
// SYS_ERROR/ECANCELED.
class CoSeriesTask final : public TaskWithCallback<CoSeriesTask, TaskBase<ParallelTask>> {
 public:
  // Takes the series over, even if this throws std::bad_alloc.
  static CoSeriesTask *create(SeriesWork *series);
  void dispatch() override;

 private:
  explicit CoSeriesTask(SeriesWork *series);
  ~CoSeriesTask() override;
  SubTask *done() override;
  SeriesWork *const series_;
};

// The awaiter of a coroutine, which runs in the series of its caller. An exception that the
// coroutine throws is thrown here.
template <class T, class PROMISE>
class CoChildAwaiter {
 public:
  CoChildAwaiter(CoFrame *caller, PROMISE *child) : caller_(caller), child_(child) {}
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) {
    child_->begin(caller_->task(), caller_);
  }
  typename CoGiven<T>::type await_resume() {
    const CoFrameEnd end{child_};
    if constexpr (kCoIsGranted<T>) {
      return co_give<T>(child_->take());
    } else {
      return child_->take();
    }
  }

 private:
  struct CoFrameEnd {
    CoFrame *frame;
    ~CoFrameEnd() { frame->destroy(); }
  };
  CoFrame *const caller_;
  PROMISE *const child_;
};

template <class T>
class CoPromise;

// Converts a coroutine's promise into what its function returns. It exists because clang 14 would
// need the result itself to be movable.
template <class T>
struct CoReturnObject {
  CoPromise<T> *promise;
};

// Says what may be awaited in a coroutine, and by which awaiter.
class CoAwaits : public CoFrame {
 public:
  template <class T>
  requires std::is_base_of_v<SubTask, T>
  auto await_transform(T *task) {
    if constexpr (requires { typename T::Ended; }) {
      return CoGoAwaiter<T>(this->task(), task);
    } else if constexpr (std::is_base_of_v<WFConditional, T>) {
      return CoConditionalAwaiter(this->task(), task);
    } else if constexpr (!CoHasCallback<T> && std::is_base_of_v<WFGenericTask, T>) {
      return CoGenericAwaiter<T>(this->task(), task);
    } else if constexpr (!CoHasCallback<T> || std::is_void_v<CoValue<T>>) {
      return CoPlainAwaiter<T>(this->task(), task);
    } else {
      return CoValueAwaiter<T>(this->task(), task);
    }
  }
  template <class T>
  auto await_transform(CoWork<T> &&work) {
    return await_transform(work.release());
  }
  // For an object that has an awaiter of its own.
  template <class T>
  requires requires(T work, CoTask *task) { work.awaiter(task); }
  auto await_transform(T work) { return work.awaiter(this->task()); }
  auto await_transform(SeriesWork *series) { return await_transform(CoSeriesTask::create(series)); }
  template <class T>
  auto await_transform(WFCo<T> &&co) {
    CoPromise<T> *const child = CoAccess::release(co);
    if (!child) co_misuse("co_await of a coroutine that was awaited before");
    return CoChildAwaiter<T, CoPromise<T>>(this, child);
  }
  // A coroutine must be awaited in the expression that calls its function, so a variable that holds
  // one is refused.
  template <class T>
  void await_transform(WFCo<T> &) = delete;
  template <class T>
  void await_transform(const WFCo<T> &) = delete;
};

template <class T>
class CoPromise : public CoAwaits {
 public:
  auto initial_suspend() noexcept { return initial<alignof(CoPromise)>(); }
  CoReturnObject<T> get_return_object() noexcept { return {this}; }

  template <class U = T>
  requires std::is_convertible_v<U &&, T>
  void return_value(U &&value) { value_.emplace(std::forward<U>(value)); }

  // Returns what the coroutine has returned, or throws what it has thrown. Called once, after the
  // end.
  T take() {
    if (auto exception = take_exception()) std::rethrow_exception(std::move(exception));
    return *std::move(value_);
  }
  // Returns what take() would return, but throws nothing. Null if the coroutine has thrown.
  T *result() { return value_ ? &*value_ : nullptr; }

 private:
  std::optional<T> value_;
};

template <class T>
class CoPromise<T &> : public CoAwaits {
 public:
  auto initial_suspend() noexcept { return initial<alignof(CoPromise)>(); }
  CoReturnObject<T &> get_return_object() noexcept { return {this}; }
  void return_value(T &value) noexcept { value_ = &value; }
  T &take() {
    if (auto exception = take_exception()) std::rethrow_exception(std::move(exception));
    return *value_;
  }

 private:
  T *value_ = nullptr;
};

template <>
class CoPromise<void> : public CoAwaits {
 public:
  auto initial_suspend() noexcept { return initial<alignof(CoPromise)>(); }
  CoReturnObject<void> get_return_object() noexcept { return {this}; }
  void return_void() noexcept {}
  void take() {
    if (auto exception = take_exception()) std::rethrow_exception(std::move(exception));
  }
};

}  // namespace workflow
