// Each line that ends in "refused: TEXT" must not compile, with an error that TEXT matches, and
// every other line must compile: see check. Warnings are errors here, as they are for careful
// users.

#include <coroutine>
#include <utility>

#include "workflow/WFCoroutine.h"

using namespace std::chrono_literals;

WFCo<int> child();

WFCo<> forgets_a_coroutine() {
  child();  // refused: nodiscard
  const int n = co_await child();
  static_cast<void>(n);
}

WFCo<> keeps_a_coroutine() {
  auto kept = child();
  const int n = co_await kept;  // refused: deleted .*await_transform
  static_cast<void>(n);
}

WFCo<> copies_a_coroutine() {
  WFCo<int> kept = child();
  WFCo<int> copied = std::move(kept);  // refused: deleted .*WFCo<(T|int)>
  co_return;
}

WFCo<> forgets_to_wait() {
  wf::sleep(1s);  // refused: nodiscard
  (void)co_await wf::sleep(1s);
}

WFCo<> waits_twice() {
  auto kept = wf::sleep(1s);
  (void)co_await kept;  // refused: no matching .*await_transform
}

WFCo<> holds_twice() {
  auto kept = wf::hold("name");
  const auto held = co_await kept;  // refused: deleted .*CoGrant<workflow::CoReleaseGuard>
  static_cast<void>(held);
}

WFCo<> detaches_a_function_that_refers_to_a_variable() {
  int n = 0;
  const auto takes_a_value = [](int) {};
  (void)co_await wf::go_detached("q", 1s, takes_a_value, n);
  const auto f = [](int&) {};
  (void)co_await wf::go_detached("q", 1s, f, std::ref(n));  // refused: no matching .*go_detached
}

WFCo<> awaits_a_number() {
  co_await 5;  // refused: no matching .*await_transform
}

WFCo<> awaits_what_goes_on_by_itself() {
  co_await std::suspend_always();  // refused: no matching .*await_transform
}

struct Foreign {
  struct promise_type {
    Foreign get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};

Foreign awaits_in_a_foreign_coroutine() {
  co_await wf::sleep(1s);  // refused: no member .*await_ready.*CoWork<WFTimerTask>
}

Foreign awaits_a_child_in_a_foreign_coroutine() {
  co_await child();  // refused: no member .*await_ready.*WFCo<int>
}
