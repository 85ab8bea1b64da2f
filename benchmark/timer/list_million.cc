// Row list_million: lists --n timers of as many names, while a second thread works with other names
// (common/OtherNames.h). Links: workflow.

#include <workflow/WFTimer.h>

#include "common/OtherNames.h"

namespace bench {
namespace {

void run(size_t n) {
  static Tally tally;
  for (size_t i = 0; i < n; ++i)
    start_timer("listed:" + std::to_string(100'000'000'000 + i), tally);

  Line line("list_million", "ours");
  const int64_t call_ns = observe_call(line, [n] {
    size_t listed = 0;
    WFTimer::for_each("listed:", [&listed](const WFTimerInfo&) { return ++listed > 0; });
    if (listed != n) fail("a wrong number of timers");
  });
  line.add("n", n).add("call_ms", static_cast<double>(call_ns) / 1e6);
  line.print();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::run(bench::Options(argc, argv).count("n", 1'000'000));
  _exit(0);
}
