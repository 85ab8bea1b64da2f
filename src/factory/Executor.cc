#include "workflow/Executor.h"

#include <atomic>
#include <cerrno>
#include <climits>

#include "kernel/BlockingScope.h"
#include "kernel/ComputePool.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "workflow/WFComputeTask.h"

namespace workflow {

// The threads of an Executor. Shared by the executor, by the threads that are just posting to it,
// and by PoolEnd, which ends these threads when one of them has asked for that.
class OwnedPool final : public Service, public std::enable_shared_from_this<OwnedPool> {
 public:
  explicit OwnedPool(int threads) : pool_(threads) {}

  ComputePool& pool() { return pool_; }

  // Returns 0 or an errno.
  int start() {
    runtime_ = &Runtime::current();
    if (!pool_.start()) return EAGAIN;
    if (!runtime_->add_service(this)) {
      stop();
      return ECANCELED;
    }
    return 0;
  }

  // Ends the threads. Called once, and not on one of them.
  void end() {
    // When stopped_ is true, the runtime may be gone.
    if (!stopped_.load(std::memory_order_acquire) && runtime_->belongs_to_parent_process()) {
      self_ = shared_from_this();  // never freed: a child of fork(2) does not have the threads
      return;
    }
    pool_.abandon();
    BlockingScope blocking;
    if (!stopped_.load(std::memory_order_acquire)) {
      // When this returns, the runtime has ended the threads or will never do so.
      runtime_->remove_service(this);
      stop();
      drop_self();
    }
    if (pool_.has_lost_worker()) {
      self_ = shared_from_this();  // never freed: a thread of the pool is ending the process
    }
  }

  // Called instead of end() on one of the threads.
  void end_elsewhere();

  // Service
  void refuse_new_work() override { pool_.abandon(); }
  bool finish_work() override {
    // end() does not wait for this call once stopped_ is set, and its caller may free the executor.
    const auto kept = shared_from_this();
    stop();
    drop_self();
    return false;
  }
  void runtime_stopped() override {}

 private:
  // The last use of this object. It is kept if a thread of the pool is ending the process, because
  // that thread still uses it.
  void drop_self() {
    if (!pool_.has_lost_worker()) {
      const auto last = std::move(self_);
    }
  }

  void stop() {
    if (!stopped_.load(std::memory_order_relaxed)) {
      pool_.stop();
      stopped_.store(true, std::memory_order_release);
    }
  }

  ComputePool pool_;
  Runtime* runtime_ = nullptr;
  // Release and acquire: all that the threads have done happens before end() reads true. The load
  // in stop() may be relaxed: remove_service() waits for finish_work() before end() calls stop().
  std::atomic<bool> stopped_{false};  // set by finish_work(), or after remove_service()
  std::shared_ptr<OwnedPool> self_;   // set from end_elsewhere() until the threads have ended
};

namespace {

// Ends a pool for one of its own threads, and deletes itself.
class PoolEnd final : public Runnable {
 public:
  explicit PoolEnd(std::shared_ptr<OwnedPool> own) : own_(std::move(own)) {}
  void run_queued() override {
    // On that very thread when the handler threads have ended: then the runtime, which stops, ends
    // it.
    if (ThreadContext::current().pool != &own_->pool()) {
      own_->end();
    }
    delete this;
  }

 private:
  const std::shared_ptr<OwnedPool> own_;
};

}  // namespace

void OwnedPool::end_elsewhere() {
  pool_.abandon();
  self_ = shared_from_this();
  if (!runtime_->stopping()) {
    runtime_->handlers().post(new PoolEnd(self_));
  }
}

ComputePlace ComputePlace::named(const std::string& queue_name) {
  ComputePool& pool = Runtime::current().compute();
  return {.pool = &pool, .queue = pool.queue(queue_name)};
}

ComputePlace ComputePlace::of(ExecQueue* queue, Executor* executor) {
  return {.own_queue = queue, .own_executor = executor};
}

ComputePlace::Kept ComputePlace::keep_own() const {
  return {own_executor->pool_, own_queue->queue_, own_executor->own_, own_queue->own_};
}

size_t ComputePlace::threads() const {
  return static_cast<size_t>(pool->configured_threads());
}

}  // namespace workflow

using workflow::OwnedPool;

ExecQueue::ExecQueue() = default;
ExecQueue::~ExecQueue() = default;

int ExecQueue::init() {
  if (queue_) {
    return 0;  // done before, or one of the library's
  }
  own_ = std::make_shared<workflow::ComputeQueue>();
  queue_ = own_.get();
  return 0;
}

void ExecQueue::deinit() {
  if (own_) {
    own_.reset();
    queue_ = nullptr;
  }
}

Executor::Executor() = default;

Executor::~Executor() {
  deinit();
}

int Executor::init(size_t nthreads) {
  if (pool_ && (!own_ || !ended_)) {
    errno = EALREADY;
    return -1;
  }
  if (nthreads == 0 || nthreads > INT_MAX) {
    errno = EINVAL;
    return -1;
  }
  auto own = std::make_shared<OwnedPool>(static_cast<int>(nthreads));
  if (const int error = own->start()) {
    errno = error;
    return -1;
  }
  own_ = std::move(own);
  pool_ = &own_->pool();
  ended_ = false;
  return 0;
}

void Executor::deinit() {
  if (!own_ || ended_) return;
  ended_ = true;
  if (workflow::ThreadContext::current().pool == pool_) {
    own_->end_elsewhere();
  } else {
    own_->end();
  }
}

int Executor::increase_thread() {
  if (!pool_) {
    errno = EINVAL;
    return -1;
  }
  return pool_->increase_threads();
}

int Executor::decrease_thread() {
  if (!pool_) {
    errno = EINVAL;
    return -1;
  }
  return pool_->decrease_threads();
}
