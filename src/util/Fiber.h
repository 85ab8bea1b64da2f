#pragma once

#include <cstddef>
#include <cstdint>

namespace workflow {

// A flow of control with a stack of its own, switched by hand: the stuff virtual threads are made
// of. Everything happens on one system thread; a fiber never moves to another.
//
// What the C++ runtime keeps per thread goes with the fiber: errno and exceptions being handled.
// The signal mask does not. Sanitizers are told of each switch.
//
// Invariants:
// 1. Of the fibers of a thread exactly one runs: the one that is `this` in no pending switch_to().
// 2. A fiber's stack is given back when the Fiber is destroyed, without unwinding. Objects on the
//    stack of a fiber that has not left through exit_to() are then never destroyed.
class Fiber {
 public:
  // Stands for the flow that calls it, so that one can switch back to it.
  Fiber();
  // A new flow, which begins with entry(argument) when it is first switched to. `entry` does not
  // return; it ends with exit_to().
  Fiber(void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Called by the running fiber. Returns when somebody switches back to this one.
  void switch_to(Fiber& next);
  // Called by the running fiber, which never runs again. `next` may destroy it.
  [[noreturn]] void exit_to(Fiber& next);

 private:
  // The layout of __cxa_eh_globals (Itanium C++ ABI, 2.2.2).
  struct ExceptionState {
    void* caught;
    unsigned int uncaught;
  };

  static void begin();
  // Part of its callers even unoptimised: ThreadSanitizer has a function's entry and its exit
  // belong to one fiber, and in here it is told to go to the next.
  [[gnu::always_inline]] void leave_for(Fiber& next, bool for_ever);
  void arrive();

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* stack_ = nullptr;      // lowest address; null for an adopted flow
  void* context_ = nullptr;    // saved stack pointer, or a ucontext_t
  Fiber* previous_ = nullptr;  // who switched to this one last
  int saved_errno_ = 0;
  ExceptionState exceptions_ = {};

  // Sanitizers only.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* bounds_bottom_ = nullptr;
  [[maybe_unused]] size_t bounds_size_ = 0;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace workflow
