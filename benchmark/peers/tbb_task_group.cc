// Row go: what a small computation costs as a task of a oneTBB task_group. Links: tbb.
//
// As task/go_task.cc: one thread starts --n tasks and waits for the last. The arena has as many
// threads as there are processors, one of them the one that starts, which helps while it waits.

#include <tbb/task_group.h>

#include "common/GoRow.h"

namespace bench {
namespace {

class TbbGroup {
 public:
  static constexpr const char* kPeer = "tbb";

  template <class Function>
  void start(Function function) {
    group_.run(function);
  }
  void wait() { group_.wait(); }

 private:
  tbb::task_group group_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::TbbGroup group;
  bench::run_go_row(group, argc, argv);
  return 0;
}
