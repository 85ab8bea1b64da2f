// g++ 12: in a coroutine that has no local variable in any block, and a co_await in a condition,
// the frame begins with eight bytes that no handle knows of. So no std::coroutine_handle of it
// works. probe::Frame resumes and destroys it nevertheless, and so does WFCoroutine.h.
#include "Probe.h"

using probe::Co;
using probe::Pause;
using probe::Tracked;

namespace {

int steps = 0;

Pause step(const Tracked& name) {
  steps += name.intact();
  return {};
}

Co in_if() {
  if (co_await step("first") == 7) co_await step("second");
}
Co in_later_if() {
  co_await step("first");
  if (co_await step("second") != 7) co_return;
  co_await step("third");
}
Co in_if_of(int wanted) {
  if (co_await step("first") == wanted) co_return;
  co_await step("second");
}
Co in_while() {
  while (co_await step("name") == 7 && steps < 3) {
  }
}
Co in_endless_loop() {
  while (true) {
    if (co_await step("name") != 7 || steps == 3) co_return;
  }
}
Co in_do() {
  do {
  } while (co_await step("name") == 7 && steps < 3);
}
Co in_switch() {
  switch (co_await step("name")) {
    case 7:
      co_await step("second");
  }
}
Co in_try() {
  try {
    if (co_await step("name") == 7) co_return;
  } catch (...) {
    std::abort();
  }
}
Co with_variable() {
  const int wanted = 7;
  if (co_await step("first") == wanted) co_await step("second");
}

// Each suspension comes, in its order, and what is cut is destroyed.
template <class F>
bool right(F make, int expected) {
  steps = 0;
  {
    Co whole = make();
    if (whole.run() != expected || !whole.done() || steps != expected) return false;
  }
  for (int stop = 0; stop <= expected; stop++) {
    steps = 0;
    Co cut = make();
    if (stop > 0 && cut.run(stop) != stop) return false;
  }
  return Tracked::balanced();
}

// The handle that a promise has of its coroutine, as everybody makes it.
struct Plain {
  struct promise_type {
    Plain get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Plain plain() {
  if (co_await step("first") == 7) co_await step("second");
}

}  // namespace

int main() {
  probe::relied("in_if", [] { return right(in_if, 2); });
  probe::relied("in_later_if", [] { return right(in_later_if, 3); });
  probe::relied("in_if_of_argument", [] { return right([] { return in_if_of(7); }, 1); });
  probe::relied("in_while", [] { return right(in_while, 3); });
  probe::relied("in_endless_loop", [] { return right(in_endless_loop, 3); });
  probe::relied("in_do", [] { return right(in_do, 3); });
  probe::relied("in_switch", [] { return right(in_switch, 2); });
  probe::relied("in_try", [] { return right(in_try, 1); });
  probe::relied("with_variable", [] { return right(with_variable, 2); });
  probe::bug("handle_from_promise", [] {
    const auto handle = plain().handle;
    for (int i = 0; i < 3; i++)
      handle.resume();
    const bool done = handle.done();
    handle.destroy();
    return done && steps == 2 && Tracked::balanced();
  });
  return probe::failures;
}
