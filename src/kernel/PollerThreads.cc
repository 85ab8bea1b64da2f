#include <algorithm>
#include <new>
#include <utility>

#include "kernel/Poller.h"

// The threads of a poller: one leads, others have led before.

namespace workflow {

bool Poller::start_thread(bool as_substitute) {
  std::list<Thread> one;
  try {
    one.emplace_back();
    const auto self = one.begin();
    // The new thread looks at *self only under threads_mutex_: it is complete then, and in
    // threads_.
    if (!self->start("wf-poller", ThreadContext::in_same_runtime([this, self, as_substitute] {
                       thread_main(self, as_substitute);
                     }))) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  threads_.splice(threads_.end(), one);
  return true;
}

void Poller::thread_main(std::list<Thread>::iterator self, bool as_substitute) {
  ThreadContext::current().poller = this;
  RunnableList rest;
  if (!as_substitute || leadership_.take_place(rest)) {
    if (as_substitute) {
      note_replacement();
      handlers_.post(rest);
    }
    lead();
  }
  MutexLock lock(threads_mutex_);
  ended_.splice(ended_.end(), threads_, self);
  threads_changed_.notify_all();
}

void Poller::note_replacement() {
  const int64_t now_ns = clock_.now_ns();
  const bool again = hand_over_ns_ > 0 && now_ns - replaced_ns_ < kReplacedAgainNs;
  hand_over_ns_ = again ? std::min(hand_over_ns_ * 2, kMaxHandOverNs) : kMinHandOverNs;
  replaced_ns_ = now_ns;
}

void Poller::replace_leader() {
  join_ended();
  MutexLock lock(threads_mutex_);
  start_substitute();
}

void Poller::start_substitute() {
  // If the thread cannot be started the poller waits for its leader; the watch will try again.
  if (leadership_.callback_epoch() != 0) {
    start_thread(true);
  }
}

void Poller::join_ended() {
  std::list<Thread> to_join;
  {
    MutexLock lock(threads_mutex_);
    to_join.splice(to_join.end(), ended_);
  }
  for (Thread& thread : to_join) {
    thread.join();
  }
}

void Poller::begin_blocking() {
  MutexLock lock(threads_mutex_);
  start_substitute();
}

}  // namespace workflow
