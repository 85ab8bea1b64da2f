#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernel/Poller.h"

namespace test_support {

// Timers each of which comes back at once, so that more of them are always due than leave the queue
// in a round; until the poller stops, which they outlive.
class TimerFlood {
 public:
  TimerFlood(workflow::Poller& poller, size_t timers) {
    for (size_t i = 0; i < timers; i++) {
      timers_.push_back(std::make_unique<Restless>(poller));
      poller.timers().schedule(timers_.back().get(), 0);
    }
  }

 private:
  class Restless final : public workflow::TimerNode {
   public:
    explicit Restless(workflow::Poller& poller) : poller_(poller) {}
    void left_queue(bool stopped, workflow::RunnableList&) override {
      if (!stopped) {
        poller_.timers().schedule(this, 0);
      }
    }

   private:
    workflow::Poller& poller_;
  };

  std::vector<std::unique_ptr<Restless>> timers_;
};

}  // namespace test_support
