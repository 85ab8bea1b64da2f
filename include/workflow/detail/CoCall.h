#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "workflow/WFCo.h"
#include "workflow/WFComputeTask.h"
#include "workflow/WFScope.h"
#include "workflow/detail/CoTask.h"
#include "workflow/detail/Duration.h"

namespace workflow {

// A function and the arguments for its one call. The function gets a reference for a
// std::reference_wrapper.
template <class F, class... A>
class CoCallable {
 public:
  explicit CoCallable(F &&f, A &&...args) : f_(std::move(f)), args_(std::move(args)...) {}

  decltype(auto) call() {
    return std::apply(
        [this](A &...args) -> decltype(auto) { return std::invoke(f_, std::move(args)...); },
        args_);
  }

  template <class FIRST>
  decltype(auto) call_with(FIRST &&first) {
    return std::apply(
        [this, &first](A &...args) -> decltype(auto) {
          return std::invoke(f_, std::forward<FIRST>(first), std::move(args)...);
        },
        args_);
  }

 private:
  F f_;
  std::tuple<A...> args_;
};

// The type that a WFCo<T> returns.
template <class T>
struct CoResultOf {
  static constexpr bool kIsCoroutine = false;
};
template <class T>
struct CoResultOf<WFCo<T>> {
  static constexpr bool kIsCoroutine = true;
  using type = T;
};

// Makes the coroutine that a call returns. This is a function of its own, so that the compiler
// refuses every wrong function with this message.
template <class CALL>
CoFrame *co_frame_of(CALL call) {
  using Made = CoResultOf<std::invoke_result_t<CALL>>;
  static_assert(Made::kIsCoroutine, "the function must be a coroutine: it must return a WFCo");
  if constexpr (Made::kIsCoroutine) {
    decltype(auto) co = call();
    return CoAccess::release(co);
  } else {
    return nullptr;
  }
}

// A task that calls a function when its turn has come, and runs the coroutine that the function
// returns.
template <class F, class... A>
class CoCall : public CoTask {
 public:
  explicit CoCall(F &&f, A &&...args) : call_(std::move(f), std::move(args)...) {}

 protected:
  ~CoCall() override = default;

  CoFrame *make_frame() override {
    return co_frame_of([this]() -> decltype(auto) { return call_.call(); });
  }

 private:
  CoCallable<F, A...> call_;
};

// A computation that calls a function, and keeps what that has returned or thrown.
template <class F, class... A>
class CoComputation : public WFGoTask {
 public:
  static constexpr bool kTakesToken = std::is_invocable_v<F, std::stop_token, A...>;
  using Result =
      typename std::conditional_t<kTakesToken, std::invoke_result<F, std::stop_token, A...>,
                                  std::invoke_result<F, A...>>::type;
  using Ended = WFEnded<Result>;

  // Called in the callback. After an early end the function may still be running.
  void take(Ended *ended) {
    static_cast<WFEnd &>(*ended) = {state, error};
    if (state == WFT_STATE_SUCCESS) {
      if constexpr (!std::is_void_v<Result>) {
        if (result_.value) ended->value.emplace(*std::move(result_.value));
      }
      ended->exception = std::exchange(result_.exception, nullptr);
    }
  }

 protected:
  CoComputation(const std::string &queue, const TimeSpan &limit, F &&f, A &&...args)
      : WFGoTask(ComputePlace::named(queue), limit, nullptr) {
    call_.emplace(std::move(f), std::move(args)...);
  }
  ~CoComputation() override = default;

  // Used if the function takes a token.
  virtual std::stop_token stop_token() const = 0;

 private:
  void compute() override {
    try {
      if constexpr (std::is_void_v<Result>) {
        call();
      } else {
        result_.value.emplace(call());
      }
    } catch (...) {
      result_.exception = std::current_exception();
    }
  }
  void forget_computation() override { call_.reset(); }
  decltype(auto) call() {
    if constexpr (kTakesToken) {
      return call_->call_with(stop_token());
    } else {
      return call_->call();
    }
  }

  std::optional<CoCallable<F, A...>> call_;
  Ended result_;
};

// The task of wf::go().
template <class F, class... A>
class CoGoTask final : public CoComputation<F, A...> {
 public:
  CoGoTask(const std::string &queue, F &&f, A &&...args)
      : CoComputation<F, A...>(queue, TimeSpan::never(), std::move(f), std::move(args)...) {
    this->runs_on_ = WFGoTask::RunsOn::kAfterNothing;
  }

 private:
  ~CoGoTask() override = default;

  std::stop_token stop_token() const override { return WFScope::current().stop_token(); }
};

// The task of wf::go_detached().
template <class F, class... A>
class CoDetachedTask final : public CoComputation<F, A...> {
 public:
  CoDetachedTask(const std::string &queue, Duration limit, F &&f, A &&...args)
      : CoComputation<F, A...>(queue, TimeSpan::of(limit), std::move(f), std::move(args)...) {
    this->runs_on_ = WFGoTask::RunsOn::kAfterAnything;
    if constexpr (CoDetachedTask::kTakesToken) stop_ = std::stop_source();
  }

  // Called in the callback.
  void take(typename CoDetachedTask::Ended *ended) {
    CoComputation<F, A...>::take(ended);
    if (!*ended) stop_.request_stop();
  }

 private:
  ~CoDetachedTask() override = default;

  std::stop_token stop_token() const override { return stop_.get_token(); }

  std::stop_source stop_{std::nostopstate};
};

template <class T>
struct CoIsReference : std::false_type {};
template <class T>
struct CoIsReference<std::reference_wrapper<T>> : std::true_type {};
// Holds for the arguments of a function that may outlive its caller: none of them is a std::ref().
template <class... T>
concept CoCopies = (!CoIsReference<T>::value && ...);

}  // namespace workflow
