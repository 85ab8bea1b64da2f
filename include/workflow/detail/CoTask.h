#pragma once

#if !defined(__cpp_impl_coroutine) || __cplusplus < 202002L
#error "workflow/WFCoroutine.h needs C++20 with coroutines: compile with -std=c++20"
#endif

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

namespace workflow {

class CoTask;

// The memory of frames and of their tasks. Each thread keeps a bounded number of freed blocks and
// uses them again. A block is aligned to 16 bytes if its size is a multiple of that, and else to 8.
class CoMemory {
 public:
  static void *allocate(size_t size);  // throws std::bad_alloc
  static void release(void *block, size_t size) noexcept;
};

// Prints why the program is wrong, and aborts it.
[[noreturn]] void co_misuse(const char *what);

// The part of a coroutine's promise that does not depend on its result.
//
// A frame is resumed and destroyed by the task that runs it, and by nobody else. It belongs to the
// object that the coroutine's function has returned until it is begun; then to the awaiter of its
// caller or, if it has none, to the task.
//
// Frames are found by the address that the compiler gives to the first await_suspend(), and
// promises by their own `this`. std::coroutine_handle::promise() and from_promise() are never used:
// g++ 12 lays out a coroutine without local variables in a way that makes them wrong by some bytes.
// For the same reason g++'s frames are resumed through the two functions in them.
//
// g++ 12 gives each awaiter and each temporary of a co_await a place of its own in the frame, so
// they are small: what is needed only while frames run is in CoTurn.
class CoFrame {
 public:
  CoFrame(const CoFrame &) = delete;
  CoFrame &operator=(const CoFrame &) = delete;

  static void *operator new(size_t size) { return CoMemory::allocate(room(size)); }
  static void operator delete(void *block, size_t size) noexcept {
    CoMemory::release(block, room(size));
  }

  void resume() { run(kResume); }
  // The frame is suspended: before its first statement, in an await, or at its end.
  void destroy() { run(kDestroy); }

  // Makes this the frame that `task` resumes next. When this frame has ended, `caller` goes on,
  // unless it is null.
  void begin(CoTask *task, CoFrame *caller);

  CoTask *task() const { return task_; }
  // Returns the exception of the frame that has ended last, or null.
  std::exception_ptr take_exception() noexcept;

  // Used by the compiler --------------------------------------------------------------------------

  // Suspends every coroutine before its first statement. ALIGNMENT is that of its promise.
  template <size_t ALIGNMENT>
  struct Initial {
    bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
      locate(handle.address(), (2 * sizeof(void *) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    void await_resume() const noexcept {}
  };
  // Suspends every coroutine after its last statement.
  std::suspend_always final_suspend() noexcept {
    returned();
    return {};
  }
  void unhandled_exception() noexcept;

 protected:
  CoFrame() = default;
  ~CoFrame() = default;

  template <size_t ALIGNMENT>
  Initial<ALIGNMENT> initial() noexcept {
    where_ = reinterpret_cast<uintptr_t>(this);
    return {};
  }

 private:
  friend class CoTask;

  // Returns the size of the block for a frame. A frame may need an alignment of 16 bytes. Then g++
  // makes its size a multiple of that, and clang does not.
  static constexpr size_t room(size_t size) {
#if defined(__clang__)
    size = (size + 15) / 16 * 16;
#endif
    return size;
  }

  enum Function { kResume, kDestroy };
  using FrameFunction = void (*)(void *);

  static constexpr uintptr_t kShifted = 1;

  // The program and the library may be built by different compilers, so the layout is detected at
  // run time. A frame begins with the functions that resume and destroy it, and the promise, which
  // begins with this object, follows `offset` bytes after `address`. In the other layout all of
  // this begins one word later; then what is read below as where_ is in fact caller_.
  static void locate(void *address, size_t offset) noexcept {
    auto *frame = reinterpret_cast<CoFrame *>(static_cast<char *>(address) + offset);
    const auto begin = reinterpret_cast<uintptr_t>(address);
    uintptr_t first = 0;
    std::memcpy(&first, &frame->where_, sizeof first);
    if (first == reinterpret_cast<uintptr_t>(frame)) {
      frame->where_ = begin;
    } else {
      frame = reinterpret_cast<CoFrame *>(static_cast<char *>(address) + offset + sizeof(void *));
      frame->where_ = begin | kShifted;
    }
  }
#if defined(__clang__)
  // The functions lack what UndefinedBehaviorSanitizer looks for in front of functions.
  __attribute__((no_sanitize("function")))
#endif
  void
  run(Function function) {
    const auto address = reinterpret_cast<void *>(where_ & ~kShifted);
    static_cast<FrameFunction *>(address)[function + (where_ & kShifted)](address);
  }
  void returned() noexcept;

  CoTask *task_ = nullptr;     // null until it is begun
  CoFrame *caller_ = nullptr;  // the frame that awaits this one
  // Before locate() this is the address of this object. After locate() it is the address of the
  // frame, plus kShifted if the functions are one word behind it.
  uintptr_t where_;
};

// Called for a coroutine that is destroyed before it has begun. Aborts the program, unless an
// exception is on its way. Then it destroys the frame.
void co_never_awaited(CoFrame *frame);

// The data that a task needs only while its frames run.
struct CoTurn {
  explicit CoTurn(CoFrame *innermost) : top(innermost) {}

  CoFrame *top;                  // the innermost frame, or null
  SubTask *awaited = nullptr;    // what that frame waits for
  std::exception_ptr exception;  // that of a frame that has ended, until its caller takes it
};

// A coroutine as a step of a series. It runs frames: first the one that begin() makes, and then
// whichever of the frames that await each other is the innermost.
//
// Its turn begins in done(), so that user code runs where callbacks run. Frames are resumed by a
// loop there. An await only stores here what is awaited. The loop acts on that when resume() has
// returned. So the stack does not grow, and nothing touches a frame that runs.
//
// 1. Between two turns the task is in its series, directly behind the task that it awaits. So it
//    goes on in the series' order, when that task has been deleted.
// 2. If the task is dropped between two turns, because its series was cancelled, it destroys its
//    frames, the innermost first. If the coroutine has not begun, there is no frame.
// 3. Between turns top_ is the innermost frame, or null if there is none yet. During a turn the
//    CoTurn has the innermost frame.
// 4. A coroutine that begins kMaxLateWaits waits after the library has begun to stop takes no
//    notice of ABORTED. It is destroyed where it waits, so that the stop does not wait for ever.
//    `error` counts these waits; nobody asks a coroutine for its own error, since it has no
//    callback.
//
// Threads: as every task of a series, it is used by one thread at a time.
class CoTask : public TaskBase<> {
 public:
  static void *operator new(size_t size) { return CoMemory::allocate(size); }
  static void operator delete(void *block, size_t size) noexcept { CoMemory::release(block, size); }
  // Used for functions and arguments that need more alignment than other objects.
  static void *operator new(size_t size, std::align_val_t alignment) {
    return ::operator new(size, alignment);
  }
  static void operator delete(void *block, std::align_val_t alignment) noexcept {
    ::operator delete(block, alignment);
  }

  // Called by awaiters: makes the frame that runs wait for `task`, which must not be started.
  void wait_for(SubTask *task);
  // Aborts the program unless a coroutine may wait for `task`.
  static void check_awaitable(const SubTask *task);
  // Deletes a task that was not started.
  static void drop(SubTask *task) { SubTask::drop_unstarted(task); }

  // Calls `prepare` for a task that is about to be awaited. If it throws, the task is dropped.
  template <class P>
  static void prepare_or_drop(SubTask *task, P prepare) {
    try {
      prepare();
    } catch (...) {
      SubTask::drop_unstarted(task);
      throw;
    }
  }

  // Whether an exception of a coroutine that was just created and has no caller yet will be
  // handled.
  virtual bool takes_exceptions() const { return false; }

 protected:
  CoTask() = default;
  ~CoTask() override;

  // Makes the outermost frame. An exception that it throws is handled like one of that frame.
  virtual CoFrame *make_frame() = 0;
  // Called when the outermost frame has ended, and before it is destroyed. `exception` is what the
  // frame has thrown, or null. If `frame` is null, make_frame() has thrown the exception.
  virtual void ended(CoFrame * /*frame*/, std::exception_ptr /*exception*/) noexcept {}
  // Called when all frames are destroyed, because the coroutine has ended or was dropped, whether
  // it had begun or not.
  virtual void frames_gone() noexcept {}

  void dispatch() override { subtask_done(); }
  SubTask *done() override;
  void drop_unstarted() override;
  ComesBack comes_back() const override { return ComesBack::kLends; }

 private:
  friend class CoFrame;

  static constexpr int kMaxLateWaits = 10000;

  bool begin() noexcept;
  CoFrame *run();
  SubTask *run_frames();
  bool goes_on_after_stop();
  void destroy_frames() noexcept;

  union {
    CoFrame *top_ = nullptr;  // between turns
    CoTurn *turn_;            // during a turn, which is inside done()
  };
};

inline std::exception_ptr CoFrame::take_exception() noexcept {
  return std::exchange(task_->turn_->exception, nullptr);
}

}  // namespace workflow
