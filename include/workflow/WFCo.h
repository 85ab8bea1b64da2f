#pragma once

#include <utility>

#include "workflow/detail/CoAwait.h"

// What a coroutine's function returns. It must be awaited or given away in the expression that has
// created it. The coroutine begins when it is awaited, and lives in the series of its caller.
//
//   int n = co_await count_bytes(url);
//
// T is the type of the value that it returns. It may be a reference.
template <class T>
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
  WFCo(workflow::CoReturnObject<T> born) noexcept : promise_(born.promise) {}

 private:
  friend class workflow::CoAccess;

  promise_type *release() noexcept { return std::exchange(promise_, nullptr); }

  promise_type *promise_;
};
