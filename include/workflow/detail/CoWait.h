#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "workflow/detail/CoCall.h"
#include "workflow/detail/CoJoin.h"
#include "workflow/detail/FutureState.h"

// The parts of wf::wait(): a task that runs a coroutine, and the thread that waits for that.

namespace workflow {

// A coroutine for which a thread waits.
template <class F, class T, class... A>
class CoWaitedCall final : public CoTask {
 public:
  class Shared {
   public:
    CoSlot<T> slot;

    void finish() {
      const std::lock_guard<std::mutex> lock(mutex_);
      finished_ = true;
      changed_.notify_all();
    }
    // The end of a scope does not end this wait, because the coroutine may use variables of the
    // caller.
    void wait() {
      const LendThread lend;
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return finished_; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool finished_ = false;
  };

  CoWaitedCall(std::shared_ptr<Shared> shared, F &&f, A &&...args)
      : shared_(std::move(shared)), call_(std::in_place, std::move(f), std::move(args)...) {}

 private:
  ~CoWaitedCall() override = default;

  bool takes_exceptions() const override { return true; }
  CoFrame *make_frame() override {
    decltype(auto) co = call_->call();
    return frame_ = CoAccess::release(co);
  }
  void ended(CoFrame * /*frame*/, std::exception_ptr exception) noexcept override {
    if (exception) {
      shared_->slot.exception = std::move(exception);
    } else {
      shared_->slot.fill(frame_);
    }
  }
  void frames_gone() noexcept override {
    call_.reset();  // its destructors may use what the caller has
    shared_->finish();
  }

  const std::shared_ptr<Shared> shared_;
  std::optional<CoCallable<F, A...>> call_;
  CoPromise<T> *frame_ = nullptr;
};

}  // namespace workflow
