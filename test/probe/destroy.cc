// g++ 15: a coroutine that is destroyed inside await_suspend() is destroyed wrongly, and what a
// structured binding holds leaks if it is destroyed later. WFCoroutine.h destroys suspended
// coroutines only, from outside; with a bound variable, all is right.
#include <tuple>

#include "Probe.h"

using probe::balanced_however_it_ends;
using probe::Co;
using probe::Pause;
using probe::Tracked;

namespace {

// Destroys its own coroutine, as a wait may when it finds that nobody wants the result.
struct Suicide {
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
    handle.destroy();
  }
  void await_resume() const noexcept {}
};

Co ends_itself(Tracked argument) {
  const Tracked local;
  if (!argument.intact()) std::abort();
  co_await Suicide();
  std::abort();
}

struct Two : Pause {
  std::tuple<Tracked, Tracked> await_resume() const { return {}; }
};

Co bound_in_parts() {
  auto [a, b] = co_await Two();
  co_await Pause();
  if (!a.intact() || !b.intact()) std::abort();
}

Co bound_first() {
  auto both = co_await Two();
  auto& [a, b] = both;
  co_await Pause();
  if (!a.intact() || !b.intact()) std::abort();
}

Co moved_out() {
  std::tuple<Tracked, Tracked> both = co_await Two();
  const Tracked mine = std::get<0>(std::move(both));
  co_await Pause();
}

Co caught() {
  try {
    const Tracked local;
    co_await Pause();
    throw Tracked();
  } catch (const Tracked& thrown) {
    if (!thrown.intact()) std::abort();
  }
  co_await Pause();
}

}  // namespace

int main() {
  const auto right = [](Co make()) { return [make] { return balanced_however_it_ends(make); }; };
  probe::relied("bound_first", right(bound_first));
  probe::relied("moved_out", right(moved_out));
  probe::relied("caught", right(caught));
  probe::bug("bound_in_parts", right(bound_in_parts));
  probe::bug("inside_await_suspend", [] {
    Co coroutine = ends_itself(Tracked());
    coroutine.resume();
    coroutine.release();
    return Tracked::balanced();
  });
  return probe::failures;
}
