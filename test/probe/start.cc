// g++ 12.1 and 12.2 are said to break coroutines that start eagerly. Ours start lazily, with
// arguments and local variables of any kind, which are alive between suspensions and destroyed
// once.
#include <array>
#include <string>
#include <vector>

#include "Probe.h"

using probe::balanced_however_it_ends;
using probe::Co;
using probe::Pause;
using probe::Tracked;

namespace {

class Eager {
 public:
  struct promise_type : probe::Promise<Eager> {
    std::suspend_never initial_suspend() noexcept { return {}; }
  };
  Eager(probe::Promise<Eager>*) {}  // NOLINT(google-explicit-constructor)
};

// Resumes the coroutine that suspended last; an eager one has no other handle.
std::coroutine_handle<> paused;
struct Held : Pause {
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
    paused = handle;
  }
};

std::string sum;

template <class Await, class Result>
Result with_everything(std::string text, Tracked argument, const int& number, Await) {
  std::array<char, 100> array = {};
  array[99] = static_cast<char>('0' + number);
  const Tracked outer;
  std::vector<std::string> pieces{"a", "b"};
  co_await Await();
  for (std::string piece : pieces) {
    const Tracked inner;
    piece += text;
    co_await Await();
    if (!inner.intact()) std::abort();
    sum += piece;
  }
  {
    const int outer_hidden = 5;
    std::string text_again(100, array[99]);
    std::string& reference = text_again;
    co_await Await();
    sum += reference.substr(0, outer_hidden);
  }
  if (!outer.intact() || !argument.intact()) std::abort();
}

bool right_sum() {
  return sum == "a long enough not to be inlineb long enough not to be inline33333";
}

Co lazy() {
  static const int number = 3;
  return with_everything<Pause, Co>(" long enough not to be inline", Tracked(), number, Pause());
}

struct Thrown {};

class Throwing {
 public:
  struct promise_type : probe::Promise<Throwing> {
    void unhandled_exception() { caught = std::current_exception(); }
    std::exception_ptr caught;
  };
  Throwing(probe::Promise<Throwing>* made)  // NOLINT(google-explicit-constructor)
      : promise(static_cast<promise_type*>(made)) {}
  promise_type* promise;
};

Throwing throws(Tracked argument) {
  const Tracked local;
  co_await Pause();
  if (argument.intact()) throw Thrown();
}

bool exception_is_kept() {
  const Throwing coroutine = throws(Tracked());
  coroutine.promise->frame.resume();
  coroutine.promise->frame.resume();
  bool right = false;
  try {
    std::rethrow_exception(std::exchange(coroutine.promise->caught, nullptr));
  } catch (const Thrown&) {
    right = true;
  }
  coroutine.promise->frame.destroy();
  return right && Tracked::balanced();
}

}  // namespace

int main() {
  probe::relied("lazy_start", [] {
    Co coroutine = lazy();
    coroutine.run();
    return coroutine.done() && right_sum();
  });
  probe::relied("lazy_start_destroyed", [] { return balanced_however_it_ends(lazy); });
  probe::relied("exception", exception_is_kept);
  probe::bug("eager_start", [] {
    static const int number = 3;
    with_everything<Held, Eager>(" long enough not to be inline", Tracked(), number, Held());
    for (int i = 0; i < 4; i++)
      paused.resume();
    paused.destroy();
    return right_sum() && Tracked::balanced();
  });
  return probe::failures;
}
