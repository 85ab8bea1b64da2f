#pragma once

#include <cstddef>
#include <cstdint>

namespace workflow {

// A flow of control with a stack of its own, which the program switches explicitly. Virtual threads
// are built on it. All fibers that switch to each other run on one system thread; a fiber never
// moves to another.
//
// Each fiber has its own errno and its own state of exceptions that are being handled, but the
// signal mask belongs to the system thread. Each switch is announced to the sanitizers.
//
// Invariants:
// 1. Exactly one of the fibers of a thread runs. All others that have begun are inside a call of
//    their switch_to() or have left through exit_to().
// 2. A fiber's stack is freed when the Fiber is destroyed, without unwinding. If the fiber has not
//    left through exit_to(), the objects on its stack are then never destroyed.
class Fiber {
 public:
  // Adopts the calling flow of control, so that others can switch back to it.
  Fiber();
  // Creates a new flow, which begins with entry(argument) at the first switch to it. `entry` must
  // not return; it ends with exit_to().
  Fiber(void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // To be called by the running fiber. Returns when another fiber switches back to this one.
  void switch_to(Fiber& next);
  // To be called by the running fiber, which never runs again. `next` may destroy it.
  [[noreturn]] void exit_to(Fiber& next);

 private:
  // The layout of __cxa_eh_globals (Itanium C++ ABI, 2.2.2).
  struct ExceptionState {
    void* caught;
    unsigned int uncaught;
  };

  static void begin();
  // Inlined even without optimisation, because ThreadSanitizer requires that a function is entered
  // and left on the same fiber, and this function tells it to change to the next one.
  [[gnu::always_inline]] void leave_for(Fiber& next, bool for_ever);
  void arrive();

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  char* stack_ = nullptr;      // lowest address; null for an adopted flow
  void* context_ = nullptr;    // saved stack pointer, or a ucontext_t
  Fiber* previous_ = nullptr;  // the fiber that switched to this one last
  int saved_errno_ = 0;
  ExceptionState exceptions_ = {};

  // Used with sanitizers only.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] const void* bounds_bottom_ = nullptr;
  [[maybe_unused]] size_t bounds_size_ = 0;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace workflow
