#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "kernel/Runtime.h"
#include "store/StoreAlarms.h"
#include "store/StoreBackend.h"
#include "store/StoreKit.h"
#include "store/StoreOpener.h"
#include "store/StoreRuns.h"
#include "util/Time.h"

namespace store_test {

// The alarms of an engine without the engine, and with the clock of a test. They may ring until
// nobody has it any more.
template <class CLOCK>
class AlarmDesk final : public workflow::StoreAlarms::Listener {
 public:
  static std::shared_ptr<AlarmDesk> create() {
    auto desk = std::make_shared<AlarmDesk>();
    desk->alarms.belong_to(desk);
    return desk;
  }
  AlarmDesk() : backend_(open(clock)) {}
  ~AlarmDesk() override { alarms.close(); }

  void on_due(const workflow::StoreAlarms::Due& due) override {
    claims += due.claim ? 1 : 0;
    extensions += due.extend ? 1 : 0;
  }
  void handle_something() { runs.handle("kind", nullptr, {}, backend_->now_us()); }

  CLOCK clock;
  std::atomic<int> claims{0};
  std::atomic<int> extensions{0};

 private:
  static std::unique_ptr<workflow::StoreBackend> open(CLOCK& clock) {
    workflow::StoreBackendOptions options;
    options.clock = &clock;
    int error = 0;
    std::string message;
    return workflow::open_memory_backend(fresh_url(), options, &error, &message);
  }

  const std::unique_ptr<workflow::StoreBackend> backend_;

 public:
  workflow::StoreRuns runs{60 * workflow::kUsPerSec, 1000, "owner"};
  workflow::StoreAlarms alarms{workflow::Runtime::current(), *backend_, runs, *this};
};

}  // namespace store_test
