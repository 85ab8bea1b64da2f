// clang 14: of a list in braces of which some elements have been awaited, these are not destroyed
// when the coroutine is destroyed while it waits for the next. Waits are arguments of functions
// instead: wf::all(a(), b()), in which nothing has a destructor.
#include <array>
#include <tuple>

#include "Probe.h"

using probe::balanced_however_it_ends;
using probe::Co;
using probe::Pause;
using probe::Tracked;

namespace {

struct Giving : Pause {
  Tracked await_resume() const { return Tracked(); }
};

struct Pair {
  Tracked first, second;
};

void use(const Tracked& first, const Tracked& second) {
  if (!first.intact() || !second.intact()) std::abort();
}

Co one_by_one() {
  const Tracked first = co_await Giving();
  const Tracked second = co_await Giving();
  const Pair pair{first, second};
  co_await Pause();
}
Co aggregate() {
  const Pair pair{co_await Giving(), co_await Giving()};
  co_await Pause();
}
Co array() {
  const Tracked both[] = {co_await Giving(), co_await Giving()};
  co_await Pause();
}
Co standard_array() {
  const std::array<Tracked, 2> both = {co_await Giving(), co_await Giving()};
  co_await Pause();
}
Co arguments() {
  use(co_await Giving(), co_await Giving());
  co_await Pause();
}
Co constructor() {
  const std::tuple<Tracked, Tracked> both(co_await Giving(), co_await Giving());
  co_await Pause();
}

// As wf::all(): takes waits that are not begun, and waits for them one after the other.
struct Both : Pause {};
Both all(Giving, Giving) {
  return {};
}
Co in_all() {
  co_await all(Giving(), Giving());
  co_await Pause();
}

}  // namespace

int main() {
  const auto right = [](Co make()) { return [make] { return balanced_however_it_ends(make); }; };
  probe::relied("one_by_one", right(one_by_one));
  probe::relied("in_all", [] {
    Co coroutine = in_all();
    return coroutine.run() == 2;
  });
  probe::bug("aggregate", right(aggregate));
  probe::bug("array", right(array));
  probe::bug("standard_array", right(standard_array));
  probe::bug("arguments", right(arguments));
  probe::bug("constructor", right(constructor));
  return probe::failures;
}
