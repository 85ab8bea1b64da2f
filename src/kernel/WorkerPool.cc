#include "kernel/WorkerPool.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernel/ThreadContext.h"

namespace workflow {

WorkerPool::WorkerPool(const Options& options)
    : options_(options), wanted_(std::max(options.threads, 1)) {
  if (options.in_order) {
    pace_.hands_over();
  }
  if (VirtualScheduler::current()) {
    pace_.assume_short();
  }
}

WorkerPool::~WorkerPool() = default;

bool WorkerPool::start() {
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < wanted_; i++) {
      if (!spawn()) break;
    }
    if (live_ == 0) return false;
  }
  bool supervised = false;
  try {
    supervised = supervisor_thread_.start("wf-supervisor",
                                          ThreadContext::in_same_runtime([this] { supervise(); }));
  } catch (const std::bad_alloc&) {
    supervised = false;
  }
  mutex_.lock();
  supervised_ = supervised;
  unlock_and_wake();
  return true;
}

bool WorkerPool::spawn() {
  Workers one;
  try {
    one.emplace_back();
    const auto self = one.begin();
    // The new thread first needs mutex_, so *self is complete, and in workers_, when it looks.
    if (!self->thread.start(options_.name,
                            ThreadContext::in_same_runtime([this, self] { worker_main(self); }))) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  workers_.splice(workers_.end(), one);
  live_++;
  return true;
}

void WorkerPool::stop() {
  const bool on_worker = ThreadContext::current().pool == this;
  WorkQueue* const own_queue = ThreadContext::current().own_queue;
  if (on_worker && !is_blocked(own_queue)) {
    begin_blocking(own_queue);  // another thread works in its place, on what is still queued
  }
  Workers to_join;
  {
    MutexLock lock(mutex_);
    lost_ = on_worker ? 1 : lost_;
    stopping_ = true;
    work_.notify_all();
    while (live_ > lost_) {
      ended_.wait(mutex_);
    }
    terminated_ = true;
    // It is closed already, unless all workers are lost. Then nobody is left to run what waits.
    while (!close()) {
      gather();
    }
    watch_.notify_all();
    to_join.splice(to_join.end(), retired_);
  }
  join_all(to_join);
  supervisor_thread_.join();
}

bool WorkerPool::is_blocked(WorkQueue* own_queue) const {
  MutexLock lock(mutex_);
  return worker_of(own_queue).blocked;
}

void WorkerPool::abandon_caller() {
  Wake wake;
  {
    MutexLock lock(mutex_);
    Worker& worker = worker_of(ThreadContext::current().own_queue);
    return_items(worker);
    write_off(worker);
    worker.lost = true;
    lost_ = 1;
    work_.notify_all();
    ended_.notify_all();
    wake = claim_wake();
  }
  notify(wake);
}

bool WorkerPool::has_lost_worker() const {
  MutexLock lock(mutex_);
  return lost_ > 0;
}

uint64_t WorkerPool::wait_quiet() {
  MutexLock lock(mutex_);
  while (!quiet()) {
    quiet_.wait(mutex_);
  }
  return taken_ + unblocked_;
}

std::optional<uint64_t> WorkerPool::quiet_count() const {
  const int callers = ThreadContext::current().pool == this ? 1 : 0;
  MutexLock lock(mutex_);
  if (!quiet(callers)) return std::nullopt;
  return taken_ + unblocked_;
}

void WorkerPool::set_source(Source* source) {
  MutexLock lock(mutex_);
  source_ = source;
}

bool WorkerPool::source_has_more() {
  Source* const source = source_;
  if (!source || stopping_ || !quiet(1)) return false;
  mutex_.unlock();
  const bool more = source->post_more();
  mutex_.lock();
  return more;
}

int WorkerPool::increase_threads() {
  Wake wake;
  {
    MutexLock lock(mutex_);
    if (stopping_) {
      errno = ECANCELED;
      return -1;
    }
    if (surplus() <= 0 && !spawn()) {
      errno = EAGAIN;
      return -1;
    }
    wanted_++;
    spare_.added(surplus());
    wake = claim_wake();
  }
  notify(wake);
  return 0;
}

int WorkerPool::decrease_threads() {
  Wake wake;
  {
    MutexLock lock(mutex_);
    if (stopping_ || wanted_ == 1) {
      errno = stopping_ ? ECANCELED : EINVAL;
      return -1;
    }
    wanted_--;
    spare_.removed(surplus());
    work_.notify_all();
    wake = claim_wake();
  }
  notify(wake);
  return 0;
}

int WorkerPool::configured_threads() const {
  MutexLock lock(mutex_);
  return wanted_;
}

void WorkerPool::join_all(Workers& workers) {
  for (Worker& worker : workers) {
    worker.thread.join();
  }
}

bool WorkerPool::idle() const {
  MutexLock lock(mutex_);
  return quiet();
}

int WorkerPool::thread_count() const {
  MutexLock lock(mutex_);
  return live_;
}

uint64_t WorkerPool::taken() const {
  MutexLock lock(mutex_);
  return taken_;
}

uint64_t WorkerPool::looks() const {
  MutexLock lock(mutex_);
  return supervisor_.looks();
}

bool WorkerPool::is_watched() const {
  MutexLock lock(mutex_);
  return supervisor_.watched() != Watch::kNone;
}

bool WorkerPool::attended() const {
  if (waking_ || napping_) return true;
  if (!may_wake_one()) return supervisor_.watched() != Watch::kNone || room() == 0;
  return supervisor_.is_looking() && awake() > 0 && !worth_a_thread(1);
}

WorkerPool::Wake WorkerPool::claim_wake() {
  Wake wake;
  for (;;) {
    if (work_waits() && !waking_ && !napping_) {
      if (may_wake_one() && (awake() <= 0 || worth_a_thread(work_waiting()))) {
        waking_ = wake.worker = true;
      } else if (may_wake_one()) {
        wake.supervisor |= supervisor_.watch(Watch::kLooks);
      } else if (room() > 0) {
        wake.supervisor |= supervisor_.watch(Watch::kGrowth);
      }
    }
    const bool unattended = !attended();
    if (unattended == unattended_.load(std::memory_order_relaxed)) return wake;
    unattended_.store(unattended, std::memory_order_seq_cst);
    schedule_point();
    // What is posted from now on is the poster's to attend to. What was posted before is seen here.
    if (!unattended || !work_waits()) return wake;
  }
}

void WorkerPool::attend_locked() {
  mutex_.lock();
  unlock_and_wake();
}

void WorkerPool::notify(Wake wake) {
  if (wake.worker) {
    work_.notify_one();
  }
  if (wake.supervisor) {
    watch_.notify_one();
  }
}

void WorkerPool::unlock_and_wake() {
  const Wake wake = claim_wake();
  mutex_.unlock();
  notify(wake);
}

// True if no worker is left that could post, because all others are idle. Other threads may still
// post, until the last worker has closed the pool.
bool WorkerPool::finished() {
  if (!stopping_ || work_waits() || idle_ + 1 + lost_ != live_) return false;
  return idle_ > 0 || close();
}

bool WorkerPool::wait_for_work() {
  if (finished()) {
    work_.notify_all();
    return false;
  }
  if (surplus() > 0) {
    spare_.count(surplus(), idle_ + 1, wait_now_ns());
    if (!stopping_ && spare_.one_leaves(surplus())) return false;
  }
  const bool left_to_others = leaves_work_to_others();
  const bool naps = !left_to_others && !napping_ && !stopping_ && pace_.naps();
  idle_++;
  napping_ = napping_ || naps;
  const Wake wake = claim_wake();
  notify({.supervisor = wake.supervisor});
  if (!work_waits() || (left_to_others && !wake.worker)) {
    if (quiet()) {
      quiet_.notify_all();
    }
    if (naps) {
      nap();
      pace_.rested(WorkPace::Rest::kNap);
    } else {
      sleep();
      pace_.rested(WorkPace::Rest::kSleep);
    }
  }
  idle_--;
  if (naps) {
    napping_ = false;
  }
  waking_ = false;  // also after a nap: the notification may have reached this worker
  if (finished()) {
    work_.notify_all();
    return false;
  }
  return true;
}

void WorkerPool::sleep() {
  if (surplus() > 0) {
    work_.wait_until(mutex_, spare_.count_ends_ns());
  } else {
    work_.wait(mutex_);
  }
}

void WorkerPool::nap() {
  // Virtual time does not pass while a thread could run, so there a nap only lets others go first.
  const int64_t length_ns = VirtualScheduler::current() ? 0 : WorkPace::kNapNs;
  work_.wait_until(mutex_, wait_now_ns() + length_ns);
}

int WorkerPool::most_threads() const {
  return options_.grow_when_starved ? options_.max_threads : wanted_;
}

Runnable* WorkerPool::take_next(Begins begins) {
  Runnable* item = returned_.pop_front();
  return item ? item : next(begins);
}

Runnable* WorkerPool::take_share(Worker& worker) {
  gather();
  const bool one = takes_one();
  if (one && std::exchange(kept_, false)) {
    for (Worker& other : workers_) {
      return_items(other);
    }
  }
  size_t waiting = work_waiting();
  if (waiting == 0) {
    steal();
    waiting = returned_.size();
  }
  pace_.found(waiting);
  if (waiting == 0) return nullptr;
  const size_t share = one ? 1 : pace_.share(waiting, static_cast<size_t>(awake()));
  Runnable* const first = take_next(Begins::kNow);
  size_t taken = 1;
  if (share > 1) {
    RunnableList rest;
    for (; taken < share && work_waits(); taken++) {
      Runnable* const item = take_next(Begins::kLater);
      if (!item) break;
      rest.push_back(item);
    }
    if (!rest.empty()) {
      worker.fill(rest);
      kept_ = true;
    }
  }
  taken_ += taken;
  spare_.took_work(idle_);
  shares_++;
  worker.shares++;
  worker.running = true;
  return first;
}

bool WorkerPool::takes_one() const {
  return options_.one_by_one || !supervised_ || awake() > (options_.in_order ? 1 : wanted_);
}

bool WorkerPool::leaves_work_to_others() const {
  if (working() > wanted_) return true;
  return options_.in_order && awake() > 1 && supervised_ && pace_.better_left_to_one();
}

void WorkerPool::steal() {
  for (Worker& worker : workers_) {
    if (pace_.worth_stealing(worker.size())) {
      worker.take_back(WorkQueue::Part::kHalf, returned_);
      taken_ -= returned_.size();
      if (!returned_.empty()) return;
    }
  }
}

void WorkerPool::return_items(Worker& worker) {
  RunnableList items;
  worker.take_back(WorkQueue::Part::kAll, items);
  taken_ -= items.size();
  items.append(returned_);
  returned_.append(items);
}

void WorkerPool::set_stalled(Worker& worker, bool stalled) {
  if (worker.stalled != stalled) {
    worker.stalled = stalled;
    stalled_ += stalled ? 1 : -1;
  }
}

void WorkerPool::write_off(Worker& worker) {
  if (!worker.written_off && !worker.blocked) {
    worker.written_off = true;
    written_off_++;
    spare_.fell(surplus());
    set_stalled(worker, true);
  }
}

void WorkerPool::goes_on(Worker& worker) {
  if (std::exchange(worker.written_off, false)) {
    written_off_--;
  }
  set_stalled(worker, false);
}

size_t WorkerPool::run_share(Worker& worker, Runnable* item) {
  size_t count = 0;
  do {
    item->run_queued();
    count++;
  } while ((item = worker.pop()) != nullptr);
  return count;
}

void WorkerPool::worker_main(Workers::iterator self) {
  ThreadContext& context = ThreadContext::current();
  context.pool = this;
  context.own_queue = &*self;
  mutex_.lock();
  for (;;) {
    Runnable* item = nullptr;
    if (leaves_work_to_others()) {
      pace_.rested(WorkPace::Rest::kNone);
    } else {
      item = take_share(*self);
    }
    if (item) {
      // The supervisor looks after the items that this worker keeps to itself.
      const bool notifies = self->size() > 0 && supervisor_.watch(Watch::kLooks);
      const int64_t begin_ns = pace_.measures() ? wait_now_ns() : 0;
      Wake wake = claim_wake();
      wake.supervisor |= notifies;
      mutex_.unlock();
      notify(wake);
      const size_t count = run_share(*self, item);
      const int64_t duration_ns = begin_ns ? wait_now_ns() - begin_ns : 0;
      mutex_.lock();
      self->running = false;
      goes_on(*self);
      if (begin_ns) {
        pace_.ran(count, duration_ns);
      }
    } else if (!source_has_more() && !wait_for_work()) {
      break;
    }
  }
  context.pool = nullptr;  // what runs when the thread ends is not the work of a worker
  context.own_queue = nullptr;
  Workers ended_before;
  ended_before.splice(ended_before.end(), retired_);
  retired_.splice(retired_.end(), workers_, self);
  live_--;
  if (quiet()) {
    quiet_.notify_all();
  }
  if (live_ == lost_) {
    // Set here and not in stop(): an item that is posted before stop() wakes up would have no
    // worker left.
    terminated_ = true;
    ended_.notify_all();
  }
  unlock_and_wake();
  join_all(ended_before);
}

void WorkerPool::begin_blocking(WorkQueue* own_queue) {
  Wake wake;
  {
    MutexLock lock(mutex_);
    Worker& worker = worker_of(own_queue);
    return_items(worker);
    goes_on(worker);
    blocked_++;
    worker.blocked = true;
    spare_.fell(surplus());
    if (quiet()) {
      quiet_.notify_all();
    }
    // A terminated pool starts no thread, because no other thread would join it. Its last worker,
    // for which stop() did not wait, still runs while it ends the process.
    if (!terminated_ && surplus() < 0) {
      spawn();
    }
    wake = claim_wake();
  }
  notify(wake);
}

void WorkerPool::end_blocking(WorkQueue* own_queue) {
  Wake wake;
  {
    MutexLock lock(mutex_);
    Worker& worker = worker_of(own_queue);
    blocked_--;
    worker.blocked = false;
    unblocked_++;
    if (worker.lost) {
      write_off(worker);
    }
    wake = claim_wake();
  }
  notify(wake);
}

void WorkerPool::return_stuck_items() {
  for (Worker& worker : workers_) {
    if (worker.running && worker.shares == worker.seen_shares) {
      if (worker.size() > 0) {
        return_items(worker);
        pace_.stuck();
      }
      if (!worker.blocked) {
        set_stalled(worker, true);
      }
    }
    worker.seen_shares = worker.shares;
  }
}

void WorkerPool::look() {
  if (supervisor_.is_looking()) {
    return_stuck_items();
  }
  const auto keeps_items = [](const Worker& worker) { return worker.size() > 0; };
  const PoolSupervisor::View view = {
      .shares = shares_,
      .work_waits = work_waits(),
      .has_idle_worker = may_wake_one(),
      .keeps_items = std::any_of(workers_.begin(), workers_.end(), keeps_items),
      .room = room()};
  const PoolSupervisor::Findings findings = supervisor_.look(view, wait_now_ns());
  if (findings.are_items_long) {
    pace_.stuck();
  }
  if (findings.starves && grow()) {
    supervisor_.grew();
  }
}

bool WorkerPool::grow() {
  for (Worker& worker : workers_) {
    if (working() < wanted_) break;
    if (worker.running) {
      write_off(worker);
    }
  }
  return may_wake_one() || (working() < wanted_ && spawn());
}

void WorkerPool::supervise() {
  wake_promptly();
  MutexLock lock(mutex_);
  // This goes on while the pool stops, because callbacks may still wait for each other.
  while (!terminated_) {
    const Watch watched = supervisor_.watched();
    if (watched == Watch::kNone) {
      watch_.wait(mutex_);
      continue;
    }
    const int64_t look_ns = supervisor_.begin_wait(shares_, wait_now_ns());
    bool in_time = true;
    while (in_time && !terminated_ && supervisor_.watched() == watched) {
      in_time = watch_.wait_until(mutex_, look_ns);
    }
    if (supervisor_.watched() != watched) {
      continue;  // it has to look sooner
    }
    look();
    const Wake wake = claim_wake();
    lock.unlock();
    notify(wake);
    lock.lock();
  }
}

}  // namespace workflow
