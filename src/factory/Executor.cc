#include "workflow/Executor.h"

#include <cerrno>
#include <climits>

#include "kernel/ComputePool.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "workflow/WFComputeTask.h"

namespace workflow {

// The threads of an Executor. Shared with who ends them when it is one of them that asks for it.
class OwnedPool final : public Intake, public std::enable_shared_from_this<OwnedPool> {
 public:
  explicit OwnedPool(int threads) : pool_(threads) {}

  ComputePool& pool() { return pool_; }

  // 0, or the errno.
  int start() {
    runtime_ = &Runtime::current();
    if (!pool_.start()) {
      return EAGAIN;
    }
    if (!runtime_->add_intake(this)) {
      stop();
      return ECANCELED;
    }
    return 0;
  }

  // Once; not on one of the threads.
  void end() {
    pool_.abandon();
    BlockingScope blocking;
    // Either the runtime has ended the threads by then, or it will not.
    runtime_->remove_intake(this);
    stop();
  }

  // Instead of end(), on one of the threads.
  void end_elsewhere();

  // Intake
  void close_intake() override { pool_.abandon(); }
  void runtime_stopped() override { stop(); }

 private:
  void stop() {
    if (!stopped_) {
      stopped_ = true;
      pool_.stop();
    }
  }

  ComputePool pool_;
  Runtime* runtime_ = nullptr;
  bool stopped_ = false;             // by the runtime, or after remove_intake()
  std::shared_ptr<OwnedPool> self_;  // the runtime ends the threads, and nobody else has this
};

namespace {

// Ends a pool for one of its own threads, and deletes itself.
class PoolEnd final : public Runnable {
 public:
  explicit PoolEnd(std::shared_ptr<OwnedPool> own) : own_(std::move(own)) {}
  void run() override {
    own_->end();
    delete this;
  }

 private:
  const std::shared_ptr<OwnedPool> own_;
};

}  // namespace

void OwnedPool::end_elsewhere() {
  pool_.abandon();
  if (runtime_->stopping()) {
    self_ = shared_from_this();
  } else {
    runtime_->handlers().post(new PoolEnd(shared_from_this()));
  }
}

ComputePlace ComputePlace::of(ExecQueue* queue, Executor* executor) {
  return {executor->pool_, queue->queue_};
}

}  // namespace workflow

using workflow::OwnedPool;

ExecQueue::ExecQueue() = default;
ExecQueue::~ExecQueue() = default;

int ExecQueue::init() {
  if (queue_ && !own_) {
    return 0;  // one of the library's
  }
  own_ = std::make_unique<workflow::ComputeQueue>();
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
  if (!own_ || ended_) {
    return;
  }
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
