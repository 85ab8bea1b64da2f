#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "workflow/WFTaskState.h"

// The outcome of a wait of a coroutine. `state` is a WFT_STATE_*. The meaning of `error` depends on
// the state (WFTaskState.h): after SYS_ERROR it is an errno value. A WFEnd converts to true if the
// state is SUCCESS.
struct [[nodiscard]] WFEnd {
  int state = WFT_STATE_UNDEFINED;
  int error = 0;

  explicit operator bool() const { return state == WFT_STATE_SUCCESS; }
  // Throws a WFError unless this is SUCCESS.
  void check() const;

  friend bool operator==(const WFEnd &a, const WFEnd &b) {
    return a.state == b.state && a.error == b.error;
  }
  friend bool operator!=(const WFEnd &a, const WFEnd &b) { return !(a == b); }
};

// The exception that says that something has not ended with SUCCESS. check() and get() throw it.
// Functions that wait for other coroutines, such as wf::wait() and wf::any(), throw it with
// SYS_ERROR and ECANCELED if what they needed was dropped, because its series was cancelled.
struct WFError : std::exception {
  WFEnd end;

  explicit WFError(const WFEnd &how) : end(how) {}
  const char *what() const noexcept override;

 private:
  mutable std::string text_;
};

inline void WFEnd::check() const {
  if (!*this) throw WFError(*this);
}

// A WFEnd with a value. The value is there after SUCCESS, and in a few cases after a failure.
// `exception` is null except in the results of wf::all_ended(): there it is what the work, a
// coroutine or the function of a wf::go(), has thrown.
template <class T>
struct [[nodiscard]] WFEnded : WFEnd {
  std::optional<T> value = std::nullopt;
  std::exception_ptr exception = nullptr;

  // Returns the value, which is moved out. Unless this is SUCCESS, throws the exception, or a
  // WFError.
  T get() && {
    if (exception) std::rethrow_exception(exception);
    check();
    return *std::move(value);
  }
};

// The WFEnded of a coroutine or function that returns a reference.
template <class T>
struct [[nodiscard]] WFEnded<T &> : WFEnd {
  std::optional<std::reference_wrapper<T>> value = std::nullopt;
  std::exception_ptr exception = nullptr;

  T &get() && {
    if (exception) std::rethrow_exception(exception);
    check();
    return *value;
  }
};

template <>
struct [[nodiscard]] WFEnded<void> : WFEnd {
  std::exception_ptr exception = nullptr;

  void get() && {
    if (exception) std::rethrow_exception(exception);
    check();
  }
};
