#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "workflow/WFTaskState.h"

// How what a coroutine waited for has ended. `state` is a WFT_STATE_*, and `error` is what the
// state makes of it (WFTaskState.h): after SYS_ERROR an errno value. True if it ended with SUCCESS.
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

// Says that something has not ended with SUCCESS. Thrown by check() and get() only.
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

// A WFEnd with a value, which is there after SUCCESS, and in a few cases after a failure.
// `exception` is set by wf::all_ended() only, for a coroutine that has thrown.
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
