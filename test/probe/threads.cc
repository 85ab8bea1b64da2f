// clang 14 with optimisation: the address of a thread-local variable, or of errno, is kept over a
// suspension, although another thread may have resumed the coroutine. WFCoroutine.h reads what
// belongs to a thread in functions that are not inlined; users read errno before they wait, or
// after.
#include <cerrno>
#include <thread>

#include "Probe.h"

using probe::Co;
using probe::Pause;

namespace {

thread_local int of_thread = 0;

[[gnu::noinline]] int read_apart() {
  asm volatile("");
  return of_thread;
}

int before = 0;
int after = 0;

Co reads_apart() {
  before = read_apart();
  co_await Pause();
  after = read_apart();
}

Co reads_here() {
  before = of_thread;
  co_await Pause();
  after = of_thread;
}

Co writes_here() {
  of_thread++;
  before = of_thread - 1;
  co_await Pause();
  of_thread++;
  after = of_thread - 1;
}

// The address is kept where it is used again and again.
Co adds_here() {
  int* here = &of_thread;
  before = *here;
  for (int i = 0; i < 1; i++)
    co_await Pause();
  here = &of_thread;
  after = *here;
}

Co reads_errno() {
  before = errno;
  co_await Pause();
  after = errno;
}

// The first half on this thread, the second half on another one.
bool sees_both(Co make()) {
  of_thread = 1;
  errno = 1;
  Co coroutine = make();
  coroutine.resume();
  std::thread other([&coroutine] {
    of_thread = 2;
    errno = 2;
    coroutine.resume();
  });
  other.join();
  return before == 1 && after == 2;
}

}  // namespace

int main() {
  probe::relied("function", [] { return sees_both(reads_apart); });
  probe::bug("thread_local", [] { return sees_both(reads_here); });
  probe::bug("thread_local_written", [] { return sees_both(writes_here); });
  probe::bug("thread_local_address", [] { return sees_both(adds_here); });
  probe::bug("errno", [] { return sees_both(reads_errno); });
  return probe::failures;
}
