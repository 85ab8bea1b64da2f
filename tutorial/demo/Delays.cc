#include "Delays.h"

#include <cerrno>
#include <chrono>
#include <utility>

namespace {

bool was_cancelled(const WFTimerTask* timer) {
  return timer->get_state() == WFT_STATE_SYS_ERROR && timer->get_error() == ECANCELED;
}

const char* name_of_end(const WFTimerTask* timer) {
  if (timer->get_state() == WFT_STATE_SUCCESS) {
    return "expired";
  }
  return was_cancelled(timer) ? "cancelled" : "aborted";
}

}  // namespace

WFTimerTask* Delays::create(const std::optional<std::string>& name, uint64_t ms,
                            Callback callback) {
  const auto began = std::chrono::steady_clock::now();
  auto ended = [this, name, began, callback = std::move(callback)](WFTimerTask* timer) {
    if (!was_cancelled(timer)) {
      subtract(name, 1);
    }
    const auto waited = std::chrono::steady_clock::now() - began;
    callback({name_of_end(timer),
              std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()});
  };
  const auto seconds = static_cast<time_t>(ms / 1000);
  const auto nanoseconds = static_cast<long>(ms % 1000) * 1'000'000;
  const std::lock_guard<std::mutex> lock(mutex_);
  (name ? counts_.names[*name] : counts_.unnamed)++;
  return name ? WFTaskFactory::create_timer_task(*name, seconds, nanoseconds, std::move(ended))
              : WFTaskFactory::create_timer_task(seconds, nanoseconds, std::move(ended));
}

size_t Delays::cancel(const std::string& name, size_t max) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto cancelled = static_cast<size_t>(WFTaskFactory::cancel_by_name(name, max));
  subtract_locked(name, cancelled);
  return cancelled;
}

Delays::Counts Delays::counts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void Delays::subtract(const std::optional<std::string>& name, size_t n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  subtract_locked(name, n);
}

void Delays::subtract_locked(const std::optional<std::string>& name, size_t n) {
  if (!name) {
    counts_.unnamed -= n;
  } else if (n > 0 && (counts_.names[*name] -= n) == 0) {
    counts_.names.erase(*name);
  }
}
