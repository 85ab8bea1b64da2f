#pragma once

#if !defined(__cpp_impl_coroutine) || __cplusplus < 202002L
#error "workflow/WFCoroutine.h needs C++20 with coroutines: compile with -std=c++20"
#endif

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

namespace workflow {

class CoTask;

// The memory of frames. Each thread keeps a bounded number of freed blocks and uses them again.
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
class CoFrame {
 public:
  CoFrame(const CoFrame &) = delete;
  CoFrame &operator=(const CoFrame &) = delete;

  static void *operator new(size_t size) { return CoMemory::allocate(size); }
  static void operator delete(void *block, size_t size) noexcept { CoMemory::release(block, size); }

  void resume() { run(kResume); }
  // The frame is suspended: before its first statement, in an await, or at its end.
  void destroy() { run(kDestroy); }

  // Makes this the frame that `task` resumes next. When it has ended, `caller` goes on, which may
  // be null.
  void begin(CoTask *task, CoFrame *caller);

  CoTask *task() const { return task_; }
  std::exception_ptr take_exception() noexcept { return std::exchange(exception_, nullptr); }

  // For the compiler --------------------------------------------------------------------------

  // Suspends every coroutine before its first statement.
  struct Initial {
    CoFrame *frame;
    size_t offset;
    bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) const noexcept {
      frame->locate(handle.address(), offset);
    }
    void await_resume() const noexcept {}
  };
  // Suspends it behind its last one.
  struct Final {
    CoFrame *frame;
    bool await_ready() const noexcept { return false; }
    [[gnu::noinline]] void await_suspend(std::coroutine_handle<>) const noexcept {
      frame->returned();
    }
    void await_resume() const noexcept {}
  };
  Final final_suspend() noexcept { return {this}; }
  void unhandled_exception() noexcept;

 protected:
  CoFrame() = default;
  ~CoFrame() = default;

  // `promise`: the promise that this is the base of. `alignment`: of its type.
  Initial initial(const void *promise, size_t alignment) noexcept {
    promise_ = promise;
    return {this, (2 * sizeof(void *) + alignment - 1) / alignment * alignment};
  }

 private:
  friend class CoTask;

  enum Function { kResume, kDestroy };
  using FrameFunction = void (*)(void *);

  // The program and the library may be of different compilers, so all do the same here. A frame
  // begins with the functions that resume and destroy it, and the promise follows.
  void locate(void *address, size_t offset) noexcept {
    const auto distance =
        reinterpret_cast<uintptr_t>(promise_) - reinterpret_cast<uintptr_t>(address);
    address_ = address;
    functions_ = static_cast<FrameFunction *>(address) + (distance == offset ? 0 : 1);
  }
#if defined(__clang__)
  // The functions lack what UndefinedBehaviorSanitizer looks for in front of functions.
  __attribute__((no_sanitize("function")))
#endif
  void
  run(Function function) {
    functions_[function](address_);
  }
  void returned() noexcept;

  CoTask *task_ = nullptr;     // null until it is begun
  CoFrame *caller_ = nullptr;  // the frame that awaits this one
  void *address_ = nullptr;
  union {
    const void *promise_ = nullptr;  // until locate()
    FrameFunction *functions_;       // after it, with g++: to resume and to destroy
  };
  std::exception_ptr exception_;
};

// For a coroutine that is thrown away before it has begun: aborts the program, or destroys the
// frame if an exception is on its way.
void co_never_awaited(CoFrame *frame);

// A coroutine as a step of a series. It runs frames: first the one that begin() makes, and then
// whichever of the frames that await each other is the innermost.
//
// Its turn begins in done(), so that user code runs where callbacks run. Frames are resumed by a
// loop there. An await only notes here what is awaited, and the loop acts when resume() has
// returned, so the stack does not grow, and nothing touches a frame that runs.
//
// 1. Between two turns the task is in its series, directly behind the task that it awaits. So it
//    goes on in the series' order, when that task has been deleted.
// 2. If it is dropped then, because the series was cancelled, it destroys its frames, innermost
//    first. If it was not begun yet, there is no frame.
// 3. top_ is null before begin() and after the end of the outermost frame.
// 4. A coroutine that begins kMaxLateWaits waits after the library has begun to stop takes no
// notice
//    of ABORTED. It is destroyed where it waits, so that the stop does not wait for ever.
//
// Threads: as for every task of a series, one at a time.
class CoTask : public TaskBase<> {
 public:
  // For awaiters: the frame that runs waits for `task`, which must be unstarted.
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

  // A new coroutine that throws before it has a caller: whether somebody takes the exception.
  virtual bool takes_exceptions() const { return false; }

 protected:
  CoTask() = default;
  ~CoTask() override;

  // Makes the outermost frame. What it throws is handled like an exception of that frame.
  virtual CoFrame *make_frame() = 0;
  // The outermost frame has ended, and will be destroyed when this returns. `exception`: what it
  // has thrown, or null. If `frame` is null, make_frame() has thrown.
  virtual void ended(CoFrame * /*frame*/, std::exception_ptr /*exception*/) noexcept {}
  // The frames are gone: of a coroutine that has ended, or was dropped, begun or not.
  virtual void frames_gone() noexcept {}

  void dispatch() override { subtask_done(); }
  SubTask *done() override;
  void drop_unstarted() override;

 private:
  friend class CoFrame;

  static constexpr int kMaxLateWaits = 10000;

  bool begin() noexcept;
  void run();
  bool goes_on_after_stop();
  void destroy_frames() noexcept;

  CoFrame *top_ = nullptr;
  CoFrame *outermost_ = nullptr;
  SubTask *awaited_ = nullptr;
  int late_waits_ = 0;
};

}  // namespace workflow
