#pragma once

#include <cassert>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "workflow/Duration.h"

// Results that one thread waits for and another brings: as std::future and std::promise, with two
// differences. A wait on a framework thread lends that thread to other work, so that it cannot
// starve what it waits for. And nothing here throws but WFFuture::get() of a broken promise.
//
// A future and a promise are used by one thread at a time each, by different threads at once. A
// promise may be destroyed as soon as the waiter is awake, although set_value() has not returned.

namespace workflow {

class Countdown;

// What a promise and its future share, except the value. Thread-safe; happens once.
class FutureState {
 public:
  FutureState();
  ~FutureState();
  FutureState(const FutureState &) = delete;
  FutureState &operator=(const FutureState &) = delete;

  void finish();

  // True once finished; waits at most `timeout_ns` for it, without limit if that is negative.
  bool wait(int64_t timeout_ns) const;
  bool finished() const { return wait(0); }

 private:
  const std::unique_ptr<Countdown> countdown_;
};

// The value is written before finish() and read after it.
template <class RES>
struct FutureResult : FutureState {
  std::optional<RES> value;

  bool has_value() const { return value.has_value(); }
  RES take() { return std::move(*value); }
};

template <>
struct FutureResult<void> : FutureState {
  bool value = false;

  bool has_value() const { return value; }
  void take() const {}
};

template <class RES>
class PromiseBase;

}  // namespace workflow

// Movable. All but valid() and moving requires valid().
template <class RES>
class WFFuture {
 public:
  WFFuture() = default;

  // False when default-constructed, moved from, or get() was called.
  bool valid() const { return state_ != nullptr; }

  void wait() const {
    assert(valid());
    state_->wait(-1);
  }

  // std::future_status::ready or timeout; a duration that is not positive does not wait. In a
  // simulation the duration is virtual time.
  template <class REP, class PERIOD>
  std::future_status wait_for(const std::chrono::duration<REP, PERIOD> &duration) const {
    assert(valid());
    return state_->wait(workflow::Duration(duration).positive_ns()) ? std::future_status::ready
                                                                    : std::future_status::timeout;
  }

  // Waits as long as the deadline is away when called: later jumps of CLOCK do not matter.
  template <class CLOCK, class DURATION>
  std::future_status wait_until(const std::chrono::time_point<CLOCK, DURATION> &deadline) const {
    const auto now = CLOCK::now();
    return wait_for(deadline > now ? deadline - now : decltype(deadline - now)::zero());
  }

  // Waits and takes the value out; valid() is false then. Throws std::future_error (broken_promise)
  // when the promise was destroyed without a value.
  RES get() {
    wait();
    const std::shared_ptr<workflow::FutureResult<RES>> state = std::move(state_);
    if (!state->has_value()) throw std::future_error(std::future_errc::broken_promise);
    return state->take();
  }

 private:
  friend class workflow::PromiseBase<RES>;
  explicit WFFuture(std::shared_ptr<workflow::FutureResult<RES>> state)
      : state_(std::move(state)) {}

  std::shared_ptr<workflow::FutureResult<RES>> state_;
};

namespace workflow {

// All of a promise but set_value().
template <class RES>
class PromiseBase {
 public:
  // The future, once; then one that is not valid().
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

// Movable. Destroyed without a value, it is broken: waits for its future end, and get() throws.
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
