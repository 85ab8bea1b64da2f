#include "workflow/detail/CoTask.h"

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "kernel/Runtime.h"

namespace workflow {

namespace {

// Under AddressSanitizer frames are not recycled, so that it sees each use of a frame that is gone.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kRecycles = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kRecycles = false;
#else
constexpr bool kRecycles = true;
#endif
#else
constexpr bool kRecycles = true;
#endif

constexpr size_t kGrain = 16;       // as malloc() rounds
constexpr size_t kClasses = 64;     // frames of up to 1 KiB
constexpr int kBlocksOfAClass = 8;  // so that a thread keeps at most 260 KiB

size_t class_of(size_t size) {
  return (size + kGrain - 1) / kGrain;  // 1 is the smallest
}

// The blocks that a thread keeps. It is a plain object, so that it can be used until the thread is
// gone; what is in it then is given back by end_kept_blocks().
struct KeptBlocks {
  struct Block {
    Block* next;
  };
  std::array<Block*, kClasses + 1> first;
  std::array<int, kClasses + 1> room;  // counts up from 0: how many blocks of the class are kept
  enum : char { kUnused, kUsed, kEnded } stage;
};

thread_local constinit KeptBlocks kept_blocks = {};

void end_kept_blocks(void* /*self*/) {
  kept_blocks.stage = KeptBlocks::kEnded;
  for (KeptBlocks::Block* block : kept_blocks.first) {
    while (block) {
      ::operator delete(std::exchange(block, block->next));
    }
  }
}

// Called when the first block is to be kept. A thread_local object with a destructor would not do:
// glibc ends the process if it has no memory to register the destructor.
[[gnu::noinline]] void use_kept_blocks() {
  struct Key {
    pthread_key_t key = 0;
    bool valid = ::pthread_key_create(&key, &end_kept_blocks) == 0;
  };
  static const Key at_end;
  if (at_end.valid && ::pthread_setspecific(at_end.key, &kept_blocks) == 0) {
    kept_blocks.stage = KeptBlocks::kUsed;
  }
}

}  // namespace

// Coroutines change threads, so nothing here may be inlined into one: a compiler may keep the
// address of a thread's variable over a suspension.
[[gnu::noinline]] void* CoMemory::allocate(size_t size) {
  const size_t block_class = class_of(size);
  if (!kRecycles || block_class > kClasses) {
    return ::operator new(size);
  }
  KeptBlocks& kept = kept_blocks;
  KeptBlocks::Block* const block = kept.first[block_class];
  if (!block || kept.stage != KeptBlocks::kUsed) {
    return ::operator new(block_class* kGrain);
  }
  kept.first[block_class] = block->next;
  kept.room[block_class]--;
  return block;
}

[[gnu::noinline]] void CoMemory::release(void* memory, size_t size) noexcept {
  const size_t block_class = class_of(size);
  KeptBlocks& kept = kept_blocks;
  if (kRecycles && block_class <= kClasses && kept.stage == KeptBlocks::kUnused) {
    use_kept_blocks();
  }
  if (!kRecycles || block_class > kClasses || kept.room[block_class] == kBlocksOfAClass ||
      kept.stage != KeptBlocks::kUsed) {
    ::operator delete(memory);
    return;
  }
  kept.first[block_class] = new (memory) KeptBlocks::Block{kept.first[block_class]};
  kept.room[block_class]++;
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
  task->top_ = this;
}

void CoFrame::returned() noexcept {
  task_->top_ = caller_;
}

void CoFrame::unhandled_exception() noexcept {
  if (!caller_ && !task_->takes_exceptions()) {
    std::terminate();  // here, where it says what was thrown
  }
  exception_ = std::current_exception();
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
  awaited_ = task;
}

// Returns false if there is no frame.
bool CoTask::begin() noexcept {
  try {
    outermost_ = make_frame();
  } catch (...) {
    if (!takes_exceptions()) {
      std::terminate();
    }
    ended(nullptr, std::current_exception());
    return false;
  }
  outermost_->begin(this, nullptr);
  return true;
}

[[gnu::noinline]] void CoTask::run() {
  do {
    top_->resume();
  } while (top_ && !awaited_);
}

// Returns false when it is enough.
bool CoTask::goes_on_after_stop() {
  return !Runtime::current().stopping() || ++late_waits_ < kMaxLateWaits;
}

SubTask* CoTask::done() {
  if (top_ || begin()) {
    run();
    SubTask* const awaited = std::exchange(awaited_, nullptr);
    if (awaited && goes_on_after_stop()) {
      return come_back_after(awaited);
    }
    if (awaited) {
      SubTask::drop_unstarted(awaited);
      destroy_frames();
    } else {
      ended(outermost_, outermost_->take_exception());
      std::exchange(outermost_, nullptr)->destroy();
    }
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
  outermost_ = nullptr;
}

void CoTask::drop_unstarted() {
  destroy_frames();
  frames_gone();
  delete this;
}

}  // namespace workflow
