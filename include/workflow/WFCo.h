#pragma once

#include <utility>

#include "workflow/detail/CoAwait.h"

// The type that the function of a coroutine returns. The object must be awaited or given away in
// the expression that has created it. The coroutine begins when it is awaited, and runs in the
// series of its caller.
//
//   int n = co_await count_bytes(url);
//
// T is the type of the value that the coroutine returns. It may be a reference.
template <class T>
class [[nodiscard]] WFCo {
 public:
  using promise_type = workflow::CoPromise<T>;

  WFCo(const WFCo &) = delete;
  WFCo &operator=(const WFCo &) = delete;
  // Aborts the program if the coroutine was never awaited, unless an exception is on its way.
  ~WFCo() {
    if (promise_) workflow::co_never_awaited(promise_);
  }

  // Used by the compiler.
  WFCo(workflow::CoReturnObject<T> born) noexcept : promise_(born.promise) {}

 private:
  friend class workflow::CoAccess;

  promise_type *release() noexcept { return std::exchange(promise_, nullptr); }

  promise_type *promise_;
};
