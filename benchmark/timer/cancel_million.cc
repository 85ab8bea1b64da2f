// Row cancel_million: one call cancels --n timers of one name, while a second thread works with
// other names (common/OtherNames.h). Links: workflow.

#include "common/OtherNames.h"

namespace bench {
namespace {

void run(size_t n) {
  static Tally tally;
  for (size_t i = 0; i < n; ++i)
    start_timer("one name for them all", tally);

  Line line("cancel_million", "ours");
  int64_t call_ns = 0;
  const int64_t all_ns = observe_call(line, [&] {
    const int64_t begin_ns = now_ns();
    const int cancelled = WFTaskFactory::cancel_by_name("one name for them all");
    call_ns = now_ns() - begin_ns;
    tally.wait_for(n);
    if (cancelled != static_cast<int>(n) || tally.cancelled() != n) fail("a wrong cancel count");
  });
  line.add("n", n).add("call_ms", static_cast<double>(call_ns) / 1e6);
  line.add("callbacks_ms", static_cast<double>(all_ns) / 1e6);
  line.print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv).count("n", 1'000'000));
  _exit(0);
}
