#pragma once

#include <functional>
#include <utility>

#include "kernel/ThreadContext.h"
#include "workflow/WFTaskFactory.h"

namespace test_support {

// Runs `body` once, in the callback of a timer that a poller runs on its own thread; `body` may
// block there. A poller runs timers itself if they follow each other closely and there are several
// handler threads.
inline void start_on_poller(std::function<void()> body) {
  WFTaskFactory::create_timer_task(50, [body = std::move(body)](WFTimerTask*) mutable {
    if (workflow::ThreadContext::current().running_for) {
      body();
    } else {
      start_on_poller(std::move(body));
    }
  })->start();
}

}  // namespace test_support
