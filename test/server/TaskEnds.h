#pragma once

#include <atomic>

#include "support/TestServer.h"

namespace server_test {

// How the tasks of a server ended: how many, and how the last one did. Thread-safe.
struct TaskEnds {
  std::atomic<int> tasks{0};
  std::atomic<int> state{-1};
  std::atomic<int> error{-1};
  std::atomic<int> hooks{0};  // that have run; the test counts them

  void note(WFHttpTask* task) {
    task->set_callback([this](WFHttpTask* ended) {
      state = ended->get_state();
      error = ended->get_error();
      tasks++;
    });
  }
  bool reached(int count) {
    return eventually([&] { return tasks == count; });
  }
};

}  // namespace server_test
