#include "util/Fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "util/Sanitizers.h"

#if defined(WORKFLOW_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(WORKFLOW_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) && !defined(__ILP32__) && !defined(WF_FIBER_UCONTEXT)
#define WF_FIBER_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

namespace workflow {

namespace {

// With sanitizers, stack frames are several times larger.
#if defined(WORKFLOW_ADDRESS_SANITIZER) || defined(WORKFLOW_THREAD_SANITIZER)
constexpr size_t kStackSize = 1024 * 1024;
#else
constexpr size_t kStackSize = 256 * 1024;
#endif

// Stacks that no fiber of this thread uses. They are kept because mapping one costs more than a
// short simulation.
class StackPool {
 public:
  static char* take() {
    StackPool* const pool = of_thread();
    if (!pool || pool->free_.empty()) return map();
    char* const stack = pool->free_.back();
    pool->free_.pop_back();
    return stack;
  }

  static void give_back(char* stack) {
#if defined(WORKFLOW_ADDRESS_SANITIZER)
    // Frames that never returned have left their red zones behind.
    __asan_unpoison_memory_region(stack, kStackSize);
#endif
    StackPool* const pool = of_thread();
    if (pool && pool->free_.size() < kMaxFree) {
      pool->free_.push_back(stack);
    } else {
      unmap(stack);
    }
  }

 private:
  explicit StackPool(bool* ended) : ended_(ended) {}
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool() {
    *ended_ = true;
    for (char* stack : free_) {
      unmap(stack);
    }
  }

  // Null once what is local to the thread was destroyed. At exit a simulation may outlive that.
  static StackPool* of_thread() {
    static thread_local bool ended = false;
    if (ended) return nullptr;
    static thread_local StackPool pool(&ended);  // NOLINT(clang-diagnostic-exit-time-destructors)
    return &pool;
  }

  static constexpr size_t kMaxFree = 64;

  static size_t guard_size() {
    static const size_t size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    return size;
  }

  // An access to the page below the stack faults, so that an overflow crashes where it happens.
  static char* map() {
    const size_t guard = guard_size();
    void* memory = ::mmap(nullptr, guard + kStackSize, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || ::mprotect(memory, guard, PROT_NONE) != 0) {
      std::fprintf(stderr, "workflow: no memory for the stack of a virtual thread: %s\n",
                   std::strerror(errno));
      std::abort();
    }
    char* stack = static_cast<char*>(memory) + guard;
#if defined(WORKFLOW_ADDRESS_SANITIZER)
    __lsan_register_root_region(stack, kStackSize);
#endif
    return stack;
  }

  static void unmap(char* stack) {
#if defined(WORKFLOW_ADDRESS_SANITIZER)
    __lsan_unregister_root_region(stack, kStackSize);
#endif
    ::munmap(stack - guard_size(), guard_size() + kStackSize);
  }

  bool* const ended_;
  std::vector<char*> free_;
};

// The fiber that begin() starts in.
constinit thread_local Fiber* starting = nullptr;

}  // namespace

#if defined(WF_FIBER_ASSEMBLY)

// Pushes the registers that the System V ABI requires callees to preserve onto the stack, stores
// the stack pointer in *save, and continues where `load` was saved. swapcontext(3) makes a system
// call per switch for the signal mask.
extern "C" void workflow_fiber_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl workflow_fiber_switch
.hidden workflow_fiber_switch
.type workflow_fiber_switch, @function
workflow_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size workflow_fiber_switch, .-workflow_fiber_switch
)");

namespace {

void* make_context() {
  return nullptr;
}
void free_context(void*) {}

// Prepares the stack as if begin() had called workflow_fiber_switch as its first action.
void prepare_context(void** context, char* stack, void (*begin)()) {
  auto* slot = reinterpret_cast<uint64_t*>(stack + kStackSize);
  *--slot = 0;  // where begin() would return to: ends backtraces, and aligns as a call does
  *--slot = reinterpret_cast<uint64_t>(begin);
  for (int i = 0; i < 6; i++) {
    *--slot = 0;
  }
  uint32_t sse_control = 0;
  uint16_t x87_control = 0;
  asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(sse_control), "=m"(x87_control));
  *--slot = sse_control | uint64_t{x87_control} << 32;
  *context = slot;
}

[[gnu::always_inline]] inline void switch_context(void** from, void* to) {
  workflow_fiber_switch(from, to);
}

}  // namespace

#else

namespace {

void* make_context() {
  return new ucontext_t;
}
void free_context(void* context) {
  delete static_cast<ucontext_t*>(context);
}

void prepare_context(void** context, char* stack, void (*begin)()) {
  auto* prepared = static_cast<ucontext_t*>(*context);
  ::getcontext(prepared);
  prepared->uc_stack.ss_sp = stack;
  prepared->uc_stack.ss_size = kStackSize;
  prepared->uc_link = nullptr;
  ::makecontext(prepared, begin, 0);
}

[[gnu::always_inline]] inline void switch_context(void** from, void* to) {
  ::swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}

}  // namespace

#endif

Fiber::Fiber() : context_(make_context()) {
#if defined(WORKFLOW_THREAD_SANITIZER)
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(void*), void* argument)
    : entry_(entry),
      argument_(argument),
      stack_(StackPool::take()),
      context_(make_context()),
      bounds_bottom_(stack_),
      bounds_size_(kStackSize) {
  prepare_context(&context_, stack_, &Fiber::begin);
#if defined(WORKFLOW_THREAD_SANITIZER)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  free_context(context_);
  if (stack_) {
#if defined(WORKFLOW_THREAD_SANITIZER)
    __tsan_destroy_fiber(tsan_fiber_);
#endif
    StackPool::give_back(stack_);
  }
}

void Fiber::begin() {
  Fiber* self = starting;
  self->arrive();
  self->entry_(self->argument_);
  std::abort();
}

inline void Fiber::leave_for(Fiber& next, [[maybe_unused]] bool for_ever) {
  saved_errno_ = errno;
  std::memcpy(&exceptions_, abi::__cxa_get_globals(), sizeof exceptions_);
  next.previous_ = this;
  starting = &next;
#if defined(WORKFLOW_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, next.bounds_bottom_,
                                 next.bounds_size_);
#endif
#if defined(WORKFLOW_THREAD_SANITIZER)
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
}

void Fiber::arrive() {
#if defined(WORKFLOW_ADDRESS_SANITIZER)
  // The bounds of an adopted stack become known only here.
  __sanitizer_finish_switch_fiber(fake_stack_, &previous_->bounds_bottom_,
                                  &previous_->bounds_size_);
#endif
  std::memcpy(abi::__cxa_get_globals(), &exceptions_, sizeof exceptions_);
  errno = saved_errno_;
}

void Fiber::switch_to(Fiber& next) {
  leave_for(next, false);
  switch_context(&context_, next.context_);
  arrive();
}

void Fiber::exit_to(Fiber& next) {
  leave_for(next, true);
  switch_context(&context_, next.context_);
  std::abort();
}

}  // namespace workflow
