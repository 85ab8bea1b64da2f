#include "kernel/Leadership.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "kernel/ThreadContext.h"
#include "util/UniqueFd.h"

namespace workflow {

bool Leadership::run_callbacks(RunnableList& batch, HandlerPool& handlers, LeaderWatch& watch,
                               int64_t until_ns) {
  {
    MutexLock lock(mutex_);
    rest_.append(batch);
  }
  uint64_t callback_epoch = word_.load(std::memory_order_relaxed) + 1;
  word_.store(callback_epoch, std::memory_order_seq_cst);
  watch.leader_runs_callbacks();
  while (Runnable* item = next(callback_epoch)) {
    item->run_queued();
    if (monotonic_ns() >= until_ns) {
      RunnableList late;
      {
        MutexLock lock(mutex_);
        if (word_.load(std::memory_order_relaxed) == callback_epoch) {
          late.append(rest_);
        }
      }
      handlers.post(late);
    }
  }
  return word_.compare_exchange_strong(callback_epoch, callback_epoch + 1,
                                       std::memory_order_acq_rel);
}

Runnable* Leadership::next(uint64_t& callback_epoch) {
  MutexLock lock(mutex_);
  if (word_.load(std::memory_order_relaxed) != callback_epoch) {
    return nullptr;
  }
  Runnable* item = rest_.pop_front();
  if (item) {
    callback_epoch += 2;
    word_.store(callback_epoch, std::memory_order_relaxed);
  }
  return item;
}

bool Leadership::take_place(RunnableList& rest) {
  MutexLock lock(mutex_);
  uint64_t callback_epoch = word_.load(std::memory_order_relaxed);
  if (callback_epoch % 2 == 0 || !word_.compare_exchange_strong(callback_epoch, callback_epoch + 1,
                                                                std::memory_order_acq_rel)) {
    return false;
  }
  rest.append(rest_);
  return true;
}

uint64_t Leadership::callback_epoch() const {
  const uint64_t word = word_.load(std::memory_order_seq_cst);
  return word % 2 == 0 ? 0 : word;
}

void Leadership::attach() {
  thread_id_.store(::gettid(), std::memory_order_relaxed);
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  ::pthread_getcpuclockid(::pthread_self(), &clock);
  cpu_clock_.store(clock, std::memory_order_relaxed);
}

int64_t Leadership::cpu_ns() const {
  struct timespec used = {};
  ::clock_gettime(cpu_clock_.load(std::memory_order_relaxed), &used);
  return static_cast<int64_t>(used.tv_sec) * kNsPerSec + used.tv_nsec;
}

// proc(5), /proc/pid/stat: the state follows the name, which is in parentheses.
bool Leadership::sleeps() const {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat",
                static_cast<int>(thread_id_.load(std::memory_order_relaxed)));
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t n = fd.valid() ? ::read(fd.get(), text, sizeof text) : -1;
  const std::string_view stat(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t name_end = stat.rfind(')');
  // If the state is unknown, the safe assumption is that the leader sleeps.
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ||
         stat[name_end + 2] != 'R';
}

void LeaderWatch::add(const Leadership* leadership, std::function<void()> replace) {
  posts_.push_back(Post{leadership, std::move(replace)});
}

bool LeaderWatch::start() {
  return thread_.start("wf-watch", ThreadContext::in_same_runtime([this] { run(); }));
}

void LeaderWatch::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void LeaderWatch::wake() {
  MutexLock lock(mutex_);
  awake_.store(true, std::memory_order_seq_cst);
  changed_.notify_one();
}

bool LeaderWatch::look() {
  bool away = false;
  for (Post& post : posts_) {
    const uint64_t callback_epoch = post.leadership->callback_epoch();
    if (callback_epoch != 0 && callback_epoch == post.seen) {
      if (post.leadership->cpu_ns() - post.cpu_ns >= kTickNs || post.leadership->sleeps()) {
        post.replace();
      }
    } else if (callback_epoch != 0) {
      post.cpu_ns = post.leadership->cpu_ns();
    }
    away |= callback_epoch != 0;
    post.seen = callback_epoch;
  }
  return away;
}

void LeaderWatch::run() {
  MutexLock lock(mutex_);
  for (int quiet = 0; !stopping_;) {
    if (!awake_.load(std::memory_order_seq_cst)) {
      changed_.wait(mutex_);
      quiet = 0;
      continue;
    }
    changed_.wait_until(mutex_, monotonic_ns() + kTickNs);
    lock.unlock();
    quiet = look() ? 0 : quiet + 1;
    if (quiet > kQuietTicks) {
      // A leader that becomes absent now either sees that the watch sleeps, or is seen by this
      // look().
      awake_.store(false, std::memory_order_seq_cst);
      if (look()) {
        awake_.store(true, std::memory_order_seq_cst);
        quiet = 0;
      }
    }
    lock.lock();
  }
}

}  // namespace workflow
