#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "Reply.h"
#include "workflow/WFTimerStore.h"

// The reminders: timers in a store, which are there again after the demo was killed. When one is
// due, a line of JSON is printed.
//
// Thread-safe. Owns the store.
class Reminders {
 public:
  // Timers with longer names cannot be stored.
  static constexpr size_t kMaxName = 1024;

  explicit Reminders(std::unique_ptr<WFTimerStore> store);

  // Each of these pushes tasks on the series of a request. When the store has answered, `answered`
  // is called with what it said. If it could not carry out the request, that is replied.
  using Answered = std::function<void(const json&)>;
  void store(WFHttpTask* task, const std::string& name, uint64_t ms, const std::string& payload,
             Answered answered);
  // The oldest `max` of that name. Replies `body` with the verdicts, or with what has failed.
  void cancel(WFHttpTask* task, const std::string& name, size_t max, const json& body);
  // How many there are, and the first `max` of them by name; without a list if it is 0.
  void show(WFHttpTask* task, size_t max, Answered answered);

  std::string metrics() const { return store_->to_prometheus("demo"); }

  // Waits for what is under way, but not longer than that.
  void close(std::chrono::seconds limit) { store_->close(limit); }

 private:
  const std::unique_ptr<WFTimerStore> store_;
};
