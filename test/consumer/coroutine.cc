// Coroutines of a program whose compiler need not be that of the library: frames are made by the
// one, and resumed by code that both have compiled.
#include <workflow/WFCoroutine.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using std::chrono::milliseconds;

WFCo<std::string> twice(std::string text) {
  const WFEnd slept = co_await wf::sleep(milliseconds(1));
  co_return slept ? text + text : "";
}

// Without a variable of its own, and with a wait in a condition.
WFCo<bool> sleeps() {
  if (co_await wf::sleep(milliseconds(1))) co_return true;
  co_return false;
}

// Is still waiting when the program ends, and goes on then.
WFCo<> waits_for_the_end() {
  const WFEnd end = co_await wf::sleep(std::chrono::hours(1));
  if (end.state != WFT_STATE_ABORTED) std::abort();
}

WFCo<int> everything() {
  const std::string text = co_await twice("a text that is too long to be stored in place");
  const bool slept = co_await sleeps();
  const auto both = co_await wf::all(twice("a"), sleeps());
  auto counted = co_await wf::go("consumer", [] { return 42; });
  const bool right = text.size() == 90 && slept && std::get<0>(both) == "aa" && std::get<1>(both);
  co_return right ? std::move(counted).get() : -1;
}

}  // namespace

int main() {
  wf::task(waits_for_the_end)->start();
  const int answer = wf::wait(everything);
  std::printf("%d\n", answer);
  return answer == 42 ? 0 : 1;
}
