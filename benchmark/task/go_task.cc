// Row go: what a small computation costs as a go task. Links: workflow.

#include <workflow/WFFacilities.h>
#include <workflow/WFTaskFactory.h>

#include <atomic>
#include <memory>

#include "common/GoRow.h"

namespace bench {
namespace {

// Counts the tasks that have not ended, as a task_group does: each one has a callback, so that the
// wait ends with the last.
class GoTasks {
 public:
  static constexpr const char* kPeer = "ours";

  template <class Function>
  void start(Function function) {
    left_.fetch_add(1, std::memory_order_relaxed);
    WFGoTask* task = WFTaskFactory::create_go_task("queue", function);
    task->set_callback([this](WFGoTask*) { ended(); });
    task->start();
  }

  void wait() {
    ended();
    finished_->wait();
    left_.store(1, std::memory_order_relaxed);
    finished_ = std::make_unique<WFFacilities::WaitGroup>(1);
  }

 private:
  void ended() {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_->done();
  }

  std::atomic<size_t> left_{1};  // one for the wait
  std::unique_ptr<WFFacilities::WaitGroup> finished_ = std::make_unique<WFFacilities::WaitGroup>(1);
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::GoTasks tasks;
  bench::run_go_row(tasks, argc, argv);
  return 0;
}
