#include "kernel/BlockingScope.h"

#include <new>
#include <utility>

#include "kernel/LeaderThreads.h"
#include "kernel/PendingWork.h"
#include "kernel/ThreadContext.h"
#include "kernel/WorkerPool.h"

namespace workflow {

BlockingScope::BlockingScope(Later /*later*/)
    : pool_(ThreadContext::current().pool),
      own_queue_(ThreadContext::current().own_queue),
      leaders_(ThreadContext::current().running_for),
      nested_(ThreadContext::current().blocking++ > 0) {
  PendingWork::give_all();
}

BlockingScope::BlockingScope() : BlockingScope(kLater) {
  begin();
}

BlockingScope::~BlockingScope() {
  ThreadContext::current().blocking--;
  end();
}

void BlockingScope::begin() {
  if (nested_) return;
  told_ = true;
  if (pool_) {
    pool_->begin_blocking(own_queue_);
  } else if (leaders_) {
    leaders_->begin_blocking();
  }
}

void BlockingScope::end() {
  if (!std::exchange(told_, false)) return;
  if (pool_) {
    pool_->end_blocking(own_queue_);
  }
}

void BlockingScope::open() {
  ThreadContext& context = ThreadContext::current();
  if (context.open_scopes++ == 0) {
    context.opened_scope = new (std::nothrow) BlockingScope;
  }
}

void BlockingScope::close() {
  ThreadContext& context = ThreadContext::current();
  if (context.open_scopes > 0 && --context.open_scopes == 0) {
    delete std::exchange(context.opened_scope, nullptr);
  }
}

}  // namespace workflow
