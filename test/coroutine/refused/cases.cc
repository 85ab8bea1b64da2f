// Each line that ends in "refused" must not compile, and every other line must: see check. Warnings
// are errors here, as they are for careful users.

#include <coroutine>
#include <utility>

#include "workflow/WFCoroutine.h"

using namespace std::chrono_literals;

WFCo<int> child();

WFCo<> forgets_a_coroutine() {
  child();  // refused
  const int n = co_await child();
  static_cast<void>(n);
}

WFCo<> keeps_a_coroutine() {
  auto kept = child();
  const int n = co_await kept;  // refused
  static_cast<void>(n);
}

WFCo<> copies_a_coroutine() {
  WFCo<int> kept = child();
  WFCo<int> copied = std::move(kept);  // refused
  co_return;
}

WFCo<> forgets_to_wait() {
  wf::sleep(1s);  // refused
  (void)co_await wf::sleep(1s);
}

WFCo<> waits_twice() {
  auto kept = wf::sleep(1s);
  (void)co_await kept;  // refused
}

WFCo<> holds_twice() {
  auto kept = wf::hold("name");
  const auto held = co_await kept;  // refused
  static_cast<void>(held);
}

WFCo<> detaches_a_function_that_refers_to_a_variable() {
  int n = 0;
  const auto takes_a_value = [](int) {};
  (void)co_await wf::go_detached("queue", 1s, takes_a_value, n);
  const auto refers_to_it = [](int&) {};
  (void)co_await wf::go_detached("queue", 1s, refers_to_it, std::ref(n));  // refused
}

WFCo<> awaits_a_number() {
  co_await 5;  // refused
}

WFCo<> awaits_what_goes_on_by_itself() {
  co_await std::suspend_always();  // refused
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
  co_await wf::sleep(1s);  // refused
}

Foreign awaits_a_child_in_a_foreign_coroutine() {
  co_await child();  // refused
}
