#include "workflow/detail/CoTask.h"

#include <cstdio>
#include <cstdlib>

#include "kernel/Runtime.h"
#include "util/BlockCache.h"

namespace workflow {

// Coroutines change threads, so nothing here may be inlined into one: a compiler may keep the
// address of a thread's variable over a suspension.
[[gnu::noinline]] void* CoMemory::allocate(size_t size) {
  return BlockCache::take(size);
}

[[gnu::noinline]] void CoMemory::release(void* memory, size_t size) noexcept {
  BlockCache::give(memory, size);
}

void co_misuse(const char* what) {
  std::fprintf(stderr, "workflow: %s\n", what);
  std::abort();
}

void co_never_awaited(CoFrame* frame) {
  if (std::uncaught_exceptions() == 0) {
    co_misuse("a coroutine was created, but never awaited nor given away");
  }
  frame->destroy();
}

void CoFrame::begin(CoTask* task, CoFrame* caller) {
  task_ = task;
  caller_ = caller;
  task->turn_->top = this;
}

void CoFrame::returned() noexcept {
  task_->turn_->top = caller_;
}

void CoFrame::unhandled_exception() noexcept {
  if (!caller_ && !task_->takes_exceptions()) {
    std::terminate();  // here, where it says what was thrown
  }
  task_->turn_->exception = std::current_exception();
}

CoTask::~CoTask() = default;

void CoTask::check_awaitable(const SubTask* task) {
  if (!task) {
    co_misuse("co_await of a null task");
  }
  if (!is_unstarted(task)) {
    co_misuse("co_await of a task that was started, or is in a series already");
  }
}

void CoTask::wait_for(SubTask* task) {
  check_awaitable(task);
  turn_->awaited = task;
}

// Returns false if there is no frame.
bool CoTask::begin() noexcept {
  try {
    make_frame()->begin(this, nullptr);
  } catch (...) {
    if (!takes_exceptions()) {
      std::terminate();
    }
    ended(nullptr, std::current_exception());
    return false;
  }
  return true;
}

// Returns the frame that has run last.
[[gnu::noinline]] CoFrame* CoTask::run() {
  CoFrame* ran = nullptr;
  do {
    ran = turn_->top;
    ran->resume();
  } while (turn_->top && !turn_->awaited);
  return ran;
}

// Runs frames. Returns what they wait for, or null if there are none any more.
SubTask* CoTask::run_frames() {
  if (!turn_->top && !begin()) return nullptr;
  CoFrame* const ran = run();
  if (!turn_->top) {  // so it was the outermost one
    ended(ran, ran->take_exception());
    ran->destroy();
  }
  return turn_->awaited;
}

// Returns false when it is enough.
bool CoTask::goes_on_after_stop() {
  return !Runtime::current().stopping() || ++error < kMaxLateWaits;
}

SubTask* CoTask::done() {
  came_back();
  CoTurn turn(top_);
  turn_ = &turn;
  SubTask* const awaited = run_frames();
  top_ = turn.top;
  if (awaited && goes_on_after_stop()) return come_back_after(awaited, true);
  if (awaited) {
    SubTask::drop_unstarted(awaited);
    destroy_frames();
  }
  state = WFT_STATE_SUCCESS;
  frames_gone();
  return delete_and_next();
}

void CoTask::destroy_frames() noexcept {
  while (CoFrame* const frame = top_) {
    top_ = frame->caller_;
    frame->destroy();
  }
}

void CoTask::drop_unstarted() {
  destroy_frames();
  frames_gone();
  delete this;
}

}  // namespace workflow
