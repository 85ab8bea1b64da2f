// g++ 12: a temporary of a class without constructors, such as a lambda that captures a string, is
// copied bit by bit and destroyed twice if its expression has a co_await. Other temporaries are
// right.
#include "Probe.h"

using probe::balanced_however_it_ends;
using probe::Co;
using probe::Pause;
using probe::Tracked;

namespace {

// As wf::sleep(name, due): consumes the name before it suspends.
Pause by_reference(const Tracked& name) {
  if (!name.intact()) std::abort();
  return {};
}

// As wf::go(queue, f): consumes both before it suspends.
template <class F>
Pause by_value(Tracked queue, F f) {
  if (!queue.intact() || !f()) std::abort();
  return {};
}

template <class F>
Pause forwarded(const Tracked& queue, F&& f) {
  if (!queue.intact() || !f()) std::abort();
  return {};
}

struct Reading {  // refers to its argument until it is resumed
  const Tracked* name;
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) const noexcept {}
  bool await_resume() const noexcept { return name->intact(); }
};
Reading reads(const Tracked& name) {
  return {&name};
}

struct Owning : Pause {
  explicit Owning(Tracked&& name) : name_(std::move(name)) {}
  Tracked name_;
};
Owning owning(Tracked name) {
  return Owning(std::move(name));
}

struct Aggregate {
  Tracked name;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  void await_resume() const noexcept {}
};

struct Awaitable {
  Tracked name;
  Owning operator co_await() && { return Owning(std::move(name)); }
};
Awaitable awaitable() {
  return {};
}

struct Giving : Pause {
  Tracked await_resume() const { return Tracked(); }
};

// A child that cannot be moved, and runs in the caller's await_suspend; it has no suspensions.
class [[nodiscard]] Child {
 public:
  struct promise_type : probe::Promise<Child> {};
  Child(probe::Promise<Child>* promise)  // NOLINT(google-explicit-constructor)
      : promise_(promise) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { promise_->frame.destroy(); }
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) noexcept {
    promise_->frame.resume();
  }
  void await_resume() const noexcept {}

 private:
  probe::Promise<Child>* promise_;
};

Child child(Tracked argument) {
  if (!argument.intact()) std::abort();
  co_return;
}

bool asked_for(bool wanted) {
  return wanted;
}

Co name_by_reference() {
  co_await by_reference("name");
}
Co name_read_on_resuming() {
  if (!co_await reads("name")) std::abort();
}
Co lambda_by_value() {
  Tracked mine;
  co_await by_value("queue", [mine] { return mine.intact(); });
}
Co lambda_forwarded() {
  Tracked mine;
  co_await forwarded("queue", [mine] { return mine.intact(); });
}
Co lambda_with_references() {
  Tracked mine;
  co_await by_value("queue", [&mine] { return mine.intact(); });
}
Co lambda_without_await() {
  Tracked mine;
  by_value("queue", [mine] { return mine.intact(); });
  co_await Pause();
}
Co bound_lambda_by_value() {
  Tracked mine;
  auto function = [mine] { return mine.intact(); };
  co_await by_value("queue", function);
}
Co two_in_one() {
  const int sum = co_await by_reference("first") + co_await by_reference("second");
  if (sum != 14) std::abort();
}
Co conditions() {
  if (co_await by_reference("first") == 7 && co_await by_reference("second") == 7) {
    co_await by_reference("third");
  }
  if (co_await by_reference("fourth") == 0 || co_await by_reference("fifth") == 0) std::abort();
}
Co choice() {
  co_await Pause();
  const int got = asked_for(true) ? co_await by_reference("first") : co_await by_reference("other");
  if (got != 7) std::abort();
}
Co loop_condition() {
  int rounds = 0;
  while (co_await by_reference("name") == 7 && rounds < 2)
    rounds++;
}
Co result_used() {
  if (!(co_await Giving()).intact()) std::abort();
}
Co result_bound() {
  const Tracked result = co_await Giving();
  co_await Pause();
  if (!result.intact()) std::abort();
}
Co result_dropped() {
  co_await Giving();
}
Co result_as_argument() {
  co_await by_reference(co_await Giving());
}
Co awaiter_of_a_call() {
  co_await owning("name");
}
Co awaiter_in_place() {
  co_await Owning(Tracked());
}
Co awaiter_aggregate() {
  co_await Aggregate{Tracked()};
}
Co awaiter_by_operator() {
  co_await awaitable();
}
Co child_with_argument() {
  co_await child("argument");
  co_await Pause();
}
Co child_with_moved_argument() {
  Tracked mine;
  co_await child(std::move(mine));
  co_await Pause();
}
Co child_of_a_lambda() {
  Tracked mine;
  co_await [mine]() -> Child {
    if (!mine.intact()) std::abort();
    co_return;
  }();
  co_await Pause();
}
Co child_of_a_bound_lambda() {
  Tracked mine;
  auto function = [mine]() -> Child {
    if (!mine.intact()) std::abort();
    co_return;
  };
  co_await function();
  co_await Pause();
}

}  // namespace

int main() {
  using probe::bug;
  using probe::relied;
  const auto right = [](Co make()) { return [make] { return balanced_however_it_ends(make); }; };
  relied("name_by_reference", right(name_by_reference));
  relied("two_in_one", right(two_in_one));
  relied("conditions", right(conditions));
  relied("choice", right(choice));
  relied("loop_condition", right(loop_condition));
  relied("result_bound", right(result_bound));
  relied("lambda_with_references", right(lambda_with_references));
  relied("lambda_without_await", right(lambda_without_await));
  relied("bound_lambda_by_value", right(bound_lambda_by_value));
  relied("child_with_argument", right(child_with_argument));
  relied("child_with_moved_argument", right(child_with_moved_argument));
  relied("child_of_a_bound_lambda", right(child_of_a_bound_lambda));
  bug("child_of_a_lambda", right(child_of_a_lambda));
  bug("name_read_on_resuming", right(name_read_on_resuming));
  bug("lambda_by_value", right(lambda_by_value));
  bug("lambda_forwarded", right(lambda_forwarded));
  bug("result_used", right(result_used));
  bug("result_dropped", right(result_dropped));
  bug("result_as_argument", right(result_as_argument));
  bug("awaiter_of_a_call", right(awaiter_of_a_call));
  bug("awaiter_in_place", right(awaiter_in_place));
  bug("awaiter_aggregate", right(awaiter_aggregate));
  bug("awaiter_by_operator", right(awaiter_by_operator));
  return probe::failures;
}
