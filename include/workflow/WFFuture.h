#pragma once

#include <cassert>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>

#include "workflow/WFGlobal.h"
#include "workflow/detail/Duration.h"
#include "workflow/detail/FutureState.h"

// Results that one thread waits for and another one brings, like std::future and std::promise, with
// three differences. A wait on a thread of the library lends that thread to other work, so it
// cannot starve what it waits for. A wait in the function of a go or thread task ends when the
// scope of the task ends (WFScope.h), unless the future was made from a std::future. Misuse is not
// reported by exceptions. WFFuture::get() throws if the promise is broken, creating a promise may
// throw std::bad_alloc, and set_value() throws what copying or moving the value throws.
//
// A future and its promise may be used by different threads at once, but each by one thread at a
// time. A promise may be destroyed as soon as the waiter is awake, even if set_value() has not
// returned.

// Movable. Every member requires valid(), except valid() itself and moving.
template <class RES>
class WFFuture {
 public:
  WFFuture() = default;

  // Takes over a std::future and waits for that one. get() throws what its get() throws. Not usable
  // in a simulation, which would wait for ever.
  WFFuture(std::future<RES> &&future) : future_(std::move(future)) {}

  // False if it was default-constructed or moved from, or if get() was called.
  bool valid() const { return state_ != nullptr || future_.valid(); }

  void wait() const {
    assert(valid());
    if (state_) {
      state_->wait(-1);
    } else if (!is_ready(future_.wait_for(std::chrono::seconds(0)))) {
      const workflow::LendThread lend;
      future_.wait();
    }
  }

  // Returns std::future_status::ready or timeout; for a future that was made from a deferred
  // std::future, returns deferred and does not wait. A duration that is not positive does not wait.
  // In a simulation the duration is virtual time.
  template <class REP, class PERIOD>
  std::future_status wait_for(const std::chrono::duration<REP, PERIOD> &duration) const {
    assert(valid());
    const int64_t timeout_ns = workflow::Duration(duration).positive_ns();
    if (state_) {
      return state_->wait(timeout_ns) ? std::future_status::ready : std::future_status::timeout;
    }
    return wait_for_future(timeout_ns);
  }

  // Waits for the time that remains until the deadline when this is called. Later jumps of CLOCK
  // have no effect.
  template <class CLOCK, class DURATION>
  std::future_status wait_until(const std::chrono::time_point<CLOCK, DURATION> &deadline) const {
    const auto now = CLOCK::now();
    return wait_for(deadline > now ? deadline - now : decltype(deadline - now)::zero());
  }

  // Waits and moves the value out; valid() is false afterwards. Throws std::future_error
  // (broken_promise) if there is no value: the promise was destroyed without one, or the wait ended
  // with the scope of the computation that called this.
  RES get() {
    wait();
    if (!state_) return future_.get();
    const std::shared_ptr<workflow::FutureResult<RES>> state = std::move(state_);
    if (!state->finished() || !state->has_value())
      throw std::future_error(std::future_errc::broken_promise);
    return state->take();
  }

 private:
  friend class workflow::PromiseBase<RES>;
  explicit WFFuture(std::shared_ptr<workflow::FutureResult<RES>> state)
      : state_(std::move(state)) {}

  static bool is_ready(std::future_status status) { return status == std::future_status::ready; }
  std::future_status wait_for_future(int64_t timeout_ns) const {
    const std::future_status now = future_.wait_for(std::chrono::seconds(0));
    if (now != std::future_status::timeout || timeout_ns == 0) return now;
    const workflow::LendThread lend;
    // A longer timeout could overflow when the present time is added.
    constexpr int64_t longest_ns = INT64_MAX / 2;
    return future_.wait_for(
        std::chrono::nanoseconds(timeout_ns < longest_ns ? timeout_ns : longest_ns));
  }

  // At most one of the two is set.
  std::shared_ptr<workflow::FutureResult<RES>> state_;
  std::future<RES> future_;
};

namespace workflow {

// Everything that a promise has, except set_value().
template <class RES>
class PromiseBase {
 public:
  // Returns the future on the first call, and a future that is not valid() on later ones.
  WFFuture<RES> get_future() {
    return std::exchange(future_taken_, true) ? WFFuture<RES>() : WFFuture<RES>(state_);
  }

 protected:
  using Result = FutureResult<RES>;

  PromiseBase() : state_(std::make_shared<Result>()) {}
  PromiseBase(PromiseBase &&) noexcept = default;
  PromiseBase &operator=(PromiseBase &&other) noexcept {
    std::swap(state_, other.state_);
    std::swap(future_taken_, other.future_taken_);
    return *this;
  }
  ~PromiseBase() {
    if (state_ && !state_->finished()) state_->finish();
  }

  // Keeps the state alive while set_value() uses it: the waiter may destroy the promise meanwhile.
  std::shared_ptr<Result> state() const { return state_; }

 private:
  std::shared_ptr<Result> state_;
  bool future_taken_ = false;
};

}  // namespace workflow

// Movable. If it is destroyed without a value, it is broken: waits for its future end, and get()
// throws.
template <class RES>
class WFPromise : public workflow::PromiseBase<RES> {
 public:
  // The first value counts; later ones are dropped.
  template <class VALUE = RES>
  void set_value(VALUE &&value) {
    const auto result = this->state();
    if (!result->finished()) {
      result->value.emplace(std::forward<VALUE>(value));
      result->finish();
    }
  }
};

template <>
class WFPromise<void> : public workflow::PromiseBase<void> {
 public:
  void set_value() {
    const auto result = state();
    if (!result->finished()) {
      result->value = true;
      result->finish();
    }
  }
};
