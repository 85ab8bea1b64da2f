#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "workflow/WFGlobal.h"

namespace workflow {

class Countdown;

// What a promise and its future share, except the value. Thread-safe. finish() is called at most
// once.
class FutureState {
 public:
  FutureState();
  ~FutureState();
  FutureState(const FutureState &) = delete;
  FutureState &operator=(const FutureState &) = delete;

  void finish();

  // Returns true once finish() was called. Waits for it at most `timeout_ns`, or without limit if
  // that is negative.
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

// Lends the calling thread to other work while it waits for something outside the library.
class LendThread {
 public:
  LendThread() { WFGlobal::sync_operation_begin(); }
  ~LendThread() { WFGlobal::sync_operation_end(); }
  LendThread(const LendThread &) = delete;
  LendThread &operator=(const LendThread &) = delete;
};

}  // namespace workflow
