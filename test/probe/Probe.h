#pragma once

// What every probe for a compiler bug needs: a coroutine, an object that notices when it is
// destroyed too often or not at all, and a list of questions. Nothing of the library.
//
// A program asks its questions one after the other, each in a process of its own, because what the
// compiler got wrong may crash. There are two kinds. bug() asks whether a known bug is there: the
// answer is printed and fails nothing, so that a compiler that gets better breaks no build.
// relied() asks for what WFCoroutine.h counts on: it fails when the answer is no.

#include <sys/wait.h>
#include <unistd.h>

#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

namespace probe {

// Knows its address, so a copy that no constructor has made is noticed.
class Tracked {
 public:
  Tracked() : self_(this) { made++; }
  Tracked(const char*) : Tracked() {}  // NOLINT(google-explicit-constructor): as std::string has it
  Tracked(const Tracked& other) : Tracked() { wrong += other.self_ != &other; }
  Tracked(Tracked&& other) noexcept : Tracked() { wrong += other.self_ != &other; }
  Tracked& operator=(const Tracked&) = default;
  ~Tracked() {
    wrong += self_ != this;
    self_ = nullptr;
    destroyed++;
  }
  bool intact() const { return self_ == this; }

  // Every object that was made has been destroyed, each once.
  static bool balanced() { return made > 0 && made == destroyed && wrong == 0; }

  static inline int made = 0;
  static inline int destroyed = 0;
  static inline int wrong = 0;

 private:
  const void* volatile self_;
};

// Resumes and destroys a coroutine, knowing only where its frame and its promise are.
//
// In front of a promise are the functions that resume and destroy the coroutine.
// std::coroutine_handle looks for them at the beginning of the frame, which is the same place,
// unless g++ 12 has put eight bytes there: see frames.cc. WFCoroutine.h resumes in this way, too.
class Frame {
 public:
  template <class Promise>
  Frame(std::coroutine_handle<> handle, const Promise* promise) : frame_(handle.address()) {
    auto* begin = static_cast<char*>(frame_);
#if defined(__GNUC__) && !defined(__clang__)
    constexpr size_t kAlign = alignof(Promise) > 8 ? alignof(Promise) : 8;
    constexpr size_t kUsual = (2 * sizeof(void*) + kAlign - 1) / kAlign * kAlign;
    const size_t offset = static_cast<size_t>(reinterpret_cast<const char*>(promise) - begin);
    if (offset != kUsual) begin += sizeof(void*);
#else
    (void)promise;
#endif
    functions_ = reinterpret_cast<Function**>(begin);
  }
  Frame() = default;

#if defined(__GNUC__) && !defined(__clang__)
  void resume() const {
    functions_[0](frame_);
  }
  void destroy() const {
    functions_[1](frame_);
  }
#else
  void resume() const {
    std::coroutine_handle<>::from_address(frame_).resume();
  }
  void destroy() const {
    std::coroutine_handle<>::from_address(frame_).destroy();
  }
#endif
  bool done() const {
    return functions_[0] == nullptr;
  }

 private:
  using Function = void(void*);

  void* frame_ = nullptr;
  Function** functions_ = nullptr;
};

// What the promises of all coroutines here have.
template <class Object>
struct Promise {
  struct Start {
    Promise* promise;
    bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
      promise->frame = Frame(handle, promise);
    }
    void await_resume() const noexcept {}
  };
  // For clang 14, an object that cannot be moved is made of something else.
  Promise* get_return_object() { return this; }
  Start initial_suspend() noexcept { return {this}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() {}
  void unhandled_exception() { std::terminate(); }

  Frame frame;
};

// Starts lazily; is destroyed with the object.
class Co {
 public:
  struct promise_type : Promise<Co> {};
  Co(Promise<Co>* promise)  // NOLINT(google-explicit-constructor)
      : promise_(promise) {}
  Co(const Co&) = delete;
  Co& operator=(const Co&) = delete;
  ~Co() {
    if (promise_ != nullptr) promise_->frame.destroy();
  }
  Frame release() { return std::exchange(promise_, nullptr)->frame; }
  void resume() { promise_->frame.resume(); }
  bool done() const { return promise_->frame.done(); }

  // Runs it from one suspension to the next, at the latest until it has suspended `most` times.
  int run(int most = 1000) {
    int suspensions = 0;
    for (resume(); !done() && suspensions < most; suspensions++) {
      if (suspensions + 1 < most) resume();
    }
    return suspensions;
  }

 private:
  Promise<Co>* promise_;
};

// An awaiter that suspends, has no destructor and is resumed by whoever runs the coroutine.
struct Pause {
  bool await_ready() const noexcept { return false; }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) const noexcept {}
  int await_resume() const noexcept { return 7; }
};

// The answer of a function that runs in a child: what it returns, or no if it crashes or hangs.
template <class F>
bool in_child(F question) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    // What a sanitizer has to say about a known bug is not interesting.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(2);
    ::alarm(20);
    ::_exit(question() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

inline int failures = 0;

// Whether the compiler has a bug; `right` returns true where it has not.
template <class F>
void bug(const char* name, F right) {
  std::printf("bug %s %s\n", name, in_child(right) ? "absent" : "present");
}

// Something that must hold.
template <class F>
void relied(const char* name, F right) {
  const bool holds = in_child(right);
  std::printf("relied %s %s\n", name, holds ? "holds" : "BROKEN");
  failures += !holds;
}

// Whether the objects of a coroutine are destroyed once each: when it runs to its end, and when it
// is destroyed at each of its suspensions.
template <class F>
bool balanced_however_it_ends(F make) {
  int suspensions = 0;
  {
    Co whole = make();
    suspensions = whole.run();
    if (!whole.done()) return false;
  }
  bool balanced = Tracked::balanced();
  for (int stop = 0; stop <= suspensions; stop++) {
    {
      Co cut = make();
      if (stop > 0) cut.run(stop);
    }
    balanced = balanced && Tracked::balanced();
  }
  return balanced;
}

}  // namespace probe
