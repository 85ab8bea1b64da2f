// clang 14: what await_suspend() keeps may lie in the frame if the function is inlined, and is
// written after await_suspend() has let another thread resume, and so free, the coroutine. In
// WFCoroutine.h no await_suspend() is inlined, and publishing is its last act.
#include "Probe.h"

using probe::Co;

namespace {

// Frames stay readable after they are freed, and full of a pattern.
constexpr size_t kMemory = 4096;
constexpr unsigned char kFreed = 0xa5;
alignas(16) unsigned char memory[kMemory];
bool freed = false;

class Kept {
 public:
  struct promise_type : probe::Promise<Kept> {
    static void* operator new(size_t size) {
      if (size > kMemory) std::abort();
      return memory;
    }
    static void operator delete(void*) {
      std::memset(memory, kFreed, kMemory);
      freed = true;
    }
  };
  Kept(probe::Promise<Kept>* made)  // NOLINT(google-explicit-constructor)
      : promise(made) {}
  probe::Promise<Kept>* promise;
};

probe::Frame frame;

[[gnu::noinline]] void take(std::coroutine_handle<>* handle) {
  asm volatile("" : : "r"(handle) : "memory");
}

// Stands for the thread that resumes the coroutine to its end before await_suspend() goes on.
[[gnu::noinline]] void publish(std::coroutine_handle<>) {
  frame.destroy();
}

[[gnu::noinline]] std::coroutine_handle<> publish_and_choose(std::coroutine_handle<> handle) {
  publish(handle);
  std::coroutine_handle<> next = std::noop_coroutine();
  take(&next);
  return next;
}

[[gnu::noinline]] int length(const int* number) {
  asm volatile("" : : "r"(number) : "memory");
  return *number;
}

bool untouched() {
  if (!freed) return false;
  for (const unsigned char byte : memory) {
    if (byte != kFreed) return false;
  }
  return true;
}

struct Inlined {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) const noexcept {
    std::coroutine_handle<> copy = handle;
    take(&copy);
    publish(copy);
    int number = 1;
    number += length(&number);
    length(&number);
  }
  void await_resume() const noexcept {}
};

// Others resume after it; a handle to resume is returned through the frame.
struct Jumping {
  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> handle) const noexcept {
    return publish_and_choose(handle);
  }
  void await_resume() const noexcept {}
};

struct JumpingApart {
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] std::coroutine_handle<> await_suspend(
      std::coroutine_handle<> handle) const noexcept {
    return publish_and_choose(handle);
  }
  void await_resume() const noexcept {}
};

struct Answering {
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> handle) const noexcept {
    publish(handle);
    return true;
  }
  void await_resume() const noexcept {}
};

struct AnsweringApart {
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> handle) const noexcept {
    publish(handle);
    return true;
  }
  void await_resume() const noexcept {}
};

struct Apart {
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
    std::coroutine_handle<> copy = handle;
    take(&copy);
    publish(copy);
  }
  void await_resume() const noexcept {}
};

template <class Awaiter>
Kept waits() {
  int local = 1;
  length(&local);
  co_await Awaiter();
  length(&local);
}

template <class Awaiter>
bool leaves_the_frame_alone() {
  const Kept coroutine = waits<Awaiter>();
  frame = coroutine.promise->frame;
  frame.resume();
  return untouched();
}

}  // namespace

int main() {
  probe::relied("apart", leaves_the_frame_alone<Apart>);
  probe::bug("answer_apart", leaves_the_frame_alone<AnsweringApart>);
  probe::bug("answer", leaves_the_frame_alone<Answering>);
  probe::bug("inlined", leaves_the_frame_alone<Inlined>);
  probe::bug("jump_apart", leaves_the_frame_alone<JumpingApart>);
  probe::bug("jump", leaves_the_frame_alone<Jumping>);
  return probe::failures;
}
