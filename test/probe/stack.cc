// g++ without optimisation, and under AddressSanitizer: a handle returned by await_suspend() is
// resumed by a call and not by a jump, so the stack grows with each. WFCoroutine.h resumes in a
// loop instead.
#include "Probe.h"

namespace {

constexpr int kAwaits = 1000;
constexpr size_t kLittle = 8192;

const char* lowest = nullptr;
const char* highest = nullptr;

[[gnu::noinline]] void note_stack() {
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  if (lowest == nullptr || here < lowest) lowest = here;
  if (highest == nullptr || here > highest) highest = here;
}

bool constant_stack() {
  return static_cast<size_t>(highest - lowest) < kLittle;
}

// A child that is resumed by jumps: to it, and from it to its parent. It has a local variable, so
// its handle is right.
class Jumping {
 public:
  struct promise_type;
  struct End {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
      return handle.promise().parent;
    }
    void await_resume() const noexcept {}
  };
  struct promise_type {
    std::coroutine_handle<promise_type> get_return_object() {
      return std::coroutine_handle<promise_type>::from_promise(*this);
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    End final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
    std::coroutine_handle<> parent = std::noop_coroutine();
  };
  Jumping(std::coroutine_handle<promise_type> handle)  // NOLINT(google-explicit-constructor)
      : handle_(handle) {}
  Jumping(const Jumping&) = delete;
  Jumping& operator=(const Jumping&) = delete;
  ~Jumping() { handle_.destroy(); }
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> parent) noexcept {
    handle_.promise().parent = parent;
    return handle_;
  }
  void await_resume() const noexcept {}
  void resume() { handle_.resume(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

Jumping jumping_child() {
  const bool noted = (note_stack(), true);
  if (!noted) co_return;
}

Jumping jumping() {
  for (int i = 0; i < kAwaits; i++) {
    note_stack();
    co_await jumping_child();
  }
}

// Resumes frames in a loop: a frame that suspends names the next one.
probe::Frame next;
bool has_next = false;

void run_next(probe::Frame frame) {
  next = frame;
  has_next = true;
}

class Looped {
 public:
  struct promise_type : probe::Promise<Looped> {
    struct End {
      promise_type* promise;
      bool await_ready() const noexcept { return false; }
      [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) const noexcept {
        if (promise->parent != nullptr) run_next(promise->parent->frame);
      }
      void await_resume() const noexcept {}
    };
    struct Child {
      promise_type* parent;
      promise_type* child;
      bool await_ready() const noexcept { return false; }
      [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) const noexcept {
        child->parent = parent;
        run_next(child->frame);
      }
      void await_resume() const noexcept {}
    };
    End final_suspend() noexcept { return {this}; }
    Child await_transform(Looped&& child) noexcept { return {this, child.promise_}; }
    promise_type* parent = nullptr;
  };
  Looped(probe::Promise<Looped>* promise)  // NOLINT(google-explicit-constructor)
      : promise_(static_cast<promise_type*>(promise)) {}
  Looped(const Looped&) = delete;
  Looped& operator=(const Looped&) = delete;
  ~Looped() { promise_->frame.destroy(); }
  void run() {
    run_next(promise_->frame);
    while (std::exchange(has_next, false))
      next.resume();
  }

 private:
  promise_type* promise_;
};

Looped looped_child() {
  note_stack();
  co_return;
}

Looped looped() {
  for (int i = 0; i < kAwaits; i++) {
    note_stack();
    co_await looped_child();
  }
}

}  // namespace

int main() {
  probe::relied("loop", [] {
    looped().run();
    return constant_stack();
  });
  probe::bug("jump", [] {
    jumping().resume();
    return constant_stack();
  });
  return probe::failures;
}
