#include "kernel/FiberScheduler.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernel/Activity.h"

namespace workflow {

FiberScheduler::FiberScheduler(uint64_t seed, const Options& options)
    : seed_(seed), options_(options), interleaving_(seed) {
  auto main = std::make_unique<VirtualThread>();
  main->name = "main";
  main->state = State::kRunning;
  main->priority = interleaving_.new_priority();
  main->fiber = std::make_unique<Fiber>();
  main->scheduler = this;
  current_ = main.get();
  threads_.push_back(std::move(main));
  if (VirtualScheduler::current()) {
    fail("a simulation inside a simulation");
  }
  set_current(this);
}

FiberScheduler::~FiberScheduler() {
  if (!on_main_thread()) {
    fail("destroyed by a thread of its own");
  }
  set_current(nullptr);
  // Abandoned threads stay reachable, for leak checkers: what they own cannot be known.
  static thread_local std::vector<std::unique_ptr<VirtualThread>>* abandoned = nullptr;
  for (auto& thread : threads_) {
    if (thread->state != State::kEnded && thread->id != 0) {
      if (!abandoned) {
        // Out of memory may end it all: NOLINTNEXTLINE(bugprone-unhandled-exception-at-new)
        abandoned = new std::vector<std::unique_ptr<VirtualThread>>;
      }
      abandoned->push_back(std::move(thread));
    }
  }
}

void FiberScheduler::fail(const char* what) {
  std::fprintf(stderr, "workflow: simulation of seed %" PRIu64 ", thread %" PRIu64 " (%s): %s\n%s",
               seed_, current_->id, current_->name, what, describe({}).c_str());
  std::abort();
}

void FiberScheduler::count_step(Step step, uint64_t detail) {
  steps_++;
  trace_hash_ = Interleaving::mix(trace_hash_ ^ (static_cast<uint64_t>(step) << 56) ^
                                  (current_->id << 40) ^ detail);
}

void FiberScheduler::point() {
  count_step(Step::kPoint, 0);
  if (over_limit()) [[unlikely]] {
    point_over_limit();
    return;
  }
  if (options_.spurious_wakeups && waiting_ > 0) {
    maybe_wake_spuriously();
  }
  if (ready_.empty()) return;
  if (interleaving_.by_priority()) {
    if (interleaving_.preempt()) {
      current_->priority = interleaving_.lowest_priority();
    }
    if (ready_[choose_ready()]->priority > current_->priority) {
      yield_to(take_next());
    }
  } else if (interleaving_.preempt()) {
    yield_to(take_next());
  }
}

// Only thread 0 goes on, until the limit is reported. If it needs the other threads for that, they
// get the same number of steps once more.
void FiberScheduler::point_over_limit() {
  VirtualThread* main = threads_[0].get();
  if (main->state == State::kReady || main->state == State::kResting) {
    std::erase(ready_, main);
    yield_to(main);
  } else if (steps_ > 2 * options_.max_steps) {
    fail("the step limit was exceeded while the main thread is not in run()");
  }
}

void FiberScheduler::yield_to(VirtualThread* next) {
  current_->state = State::kReady;
  ready_.push_back(current_);
  switch_to(next);
}

void FiberScheduler::maybe_wake_spuriously() {
  if (!interleaving_.one_in_power_of_two(kSpuriousBits)) return;
  const size_t first = interleaving_.below(threads_.size());
  for (size_t i = 0; i < threads_.size(); i++) {
    VirtualThread* thread = threads_[(first + i) % threads_.size()].get();
    if (thread->state == State::kWaiting) {
      make_ready(thread, false);
      return;
    }
  }
}

void FiberScheduler::make_ready(VirtualThread* thread, bool timed_out) {
  if (thread->state == State::kWaiting) {
    waiting_--;
  } else if (thread->state == State::kLocking) {
    locking_--;
  }
  thread->timed_out = timed_out;
  thread->state = State::kReady;
  ready_.push_back(thread);
}

size_t FiberScheduler::choose_ready() {
  if (!interleaving_.by_priority()) return interleaving_.below(ready_.size());
  size_t best = 0;
  for (size_t i = 1; i < ready_.size(); i++) {
    if (ready_[i]->priority > ready_[best]->priority) {
      best = i;
    }
  }
  return best;
}

// The thread to run when current_ cannot go on: a ready thread, a thread whose deadline has been
// reached, or thread 0.
FiberScheduler::VirtualThread* FiberScheduler::take_next() {
  while (ready_.empty()) {
    if (!advance_time()) return threads_[0].get();
  }
  const size_t i = choose_ready();
  VirtualThread* next = ready_[i];
  ready_[i] = ready_.back();
  ready_.pop_back();
  return next;
}

// Returns false if thread 0 must go on because nothing can happen any more, or nothing before
// run_until_ns_.
bool FiberScheduler::advance_time() {
  int64_t next_ns = kNever;
  for (const auto& thread : threads_) {
    if (thread->state == State::kWaiting) {
      next_ns = std::min(next_ns, thread->deadline_ns);
    }
  }
  const bool resting = threads_[0]->state == State::kResting;
  if (next_ns == kNever || (resting && next_ns > run_until_ns_)) {
    if (!resting) {
      fail("the main thread is blocked for ever outside run()");
    }
    return false;
  }
  now_ns_ = std::max(now_ns_, next_ns);
  count_step(Step::kTime, static_cast<uint64_t>(now_ns_));
  for (const auto& thread : threads_) {
    if (thread->state == State::kWaiting && thread->deadline_ns <= now_ns_) {
      make_ready(thread.get(), true);
    }
  }
  return true;
}

void FiberScheduler::block() {
  VirtualThread* next = take_next();
  // Its own time may have come first.
  if (next == current_) {
    current_->state = State::kRunning;
  } else {
    switch_to(next);
  }
}

void FiberScheduler::switch_to(VirtualThread* next) {
  VirtualThread* previous = current_;
  previous->context = ThreadContext::current();
  current_ = next;
  next->state = State::kRunning;
  ThreadContext::current() = next->context;
  count_step(Step::kSwitch, 0);
  previous->fiber->switch_to(*next->fiber);
  ended_fiber_.reset();
}

FiberScheduler::HeldMutex* FiberScheduler::find_held(const void* mutex) {
  for (HeldMutex& held : held_) {
    if (held.mutex == mutex) return &held;
  }
  return nullptr;
}

void FiberScheduler::acquire(const void* mutex) {
  while (const HeldMutex* held = find_held(mutex)) {
    if (held->owner == current_) {
      fail("locks a mutex that it holds already");
    }
    current_->state = State::kLocking;
    current_->object = mutex;
    locking_++;
    block();
  }
  held_.push_back({mutex, current_});
}

void FiberScheduler::release(const void* mutex) {
  HeldMutex* held = find_held(mutex);
  if (!held || held->owner != current_) {
    fail(held ? "unlocks a mutex that another thread holds" : "unlocks a mutex that is not locked");
  }
  *held = held_.back();
  held_.pop_back();
  if (locking_ > 0) {
    for (const auto& thread : threads_) {
      if (thread->state == State::kLocking && thread->object == mutex) {
        make_ready(thread.get(), false);
      }
    }
  }
}

void FiberScheduler::lock(const void* mutex) {
  point();
  acquire(mutex);
}

bool FiberScheduler::try_lock(const void* mutex) {
  point();
  if (find_held(mutex)) return false;
  held_.push_back({mutex, current_});
  return true;
}

void FiberScheduler::unlock(const void* mutex) {
  release(mutex);
  point();
}

bool FiberScheduler::wait(const void* condition, const void* mutex, int64_t deadline_ns) {
  release(mutex);
  if (deadline_ns <= now_ns_) {
    point();
    acquire(mutex);
    return false;
  }
  current_->state = State::kWaiting;
  current_->object = condition;
  current_->deadline_ns = deadline_ns;
  waiting_++;
  block();
  const bool notified = !current_->timed_out;
  acquire(mutex);
  return notified;
}

void FiberScheduler::notify(const void* condition, bool all) {
  VirtualThread* chosen = nullptr;
  size_t found = 0;
  for (size_t i = 0; waiting_ > 0 && i < threads_.size(); i++) {
    VirtualThread* thread = threads_[i].get();
    if (thread->state != State::kWaiting || thread->object != condition) continue;
    if (all) {
      make_ready(thread, false);
    } else if (interleaving_.below(++found) == 0) {
      chosen = thread;  // each with the same probability
    }
  }
  if (chosen) {
    make_ready(chosen, false);
  }
  point();
}

VirtualScheduler::ThreadId FiberScheduler::spawn(const char* name, std::function<void()> body) {
  auto thread = std::make_unique<VirtualThread>();
  const ThreadId id = threads_.size();
  thread->id = id;
  thread->name = name;
  thread->priority = interleaving_.new_priority();
  thread->context.runtime = ThreadContext::current().runtime;
  thread->body = std::move(body);
  thread->fiber = std::make_unique<Fiber>(&FiberScheduler::thread_main, thread.get());
  thread->scheduler = this;
  ready_.push_back(thread.get());
  threads_.push_back(std::move(thread));
  count_step(Step::kSpawn, 0);
  point();
  return id;
}

void FiberScheduler::thread_main(void* argument) {
  auto* self = static_cast<VirtualThread*>(argument);
  FiberScheduler* scheduler = self->scheduler;
  scheduler->ended_fiber_.reset();
  self->body();
  self->body = nullptr;
  self->state = State::kEnded;
  scheduler->count_step(Step::kEnd, 0);
  for (const auto& thread : scheduler->threads_) {
    if (thread->state == State::kJoining && thread->joined == self->id) {
      scheduler->make_ready(thread.get(), false);
    }
  }
  VirtualThread* next = scheduler->take_next();
  scheduler->current_ = next;
  next->state = State::kRunning;
  ThreadContext::current() = next->context;
  scheduler->ended_fiber_ = std::move(self->fiber);
  scheduler->ended_fiber_->exit_to(*next->fiber);
}

void FiberScheduler::join(ThreadId thread) {
  point();
  while (!ended(thread)) {
    current_->state = State::kJoining;
    current_->joined = thread;
    block();
  }
}

void FiberScheduler::sleep_until(int64_t deadline_ns) {
  while (now_ns_ < deadline_ns) {
    current_->state = State::kWaiting;
    current_->object = current_;
    current_->deadline_ns = deadline_ns;
    waiting_++;
    block();
  }
  point();
}

void FiberScheduler::run_others(int64_t until_ns) {
  if (!on_main_thread()) {
    fail("run() belongs to the thread that made the simulation");
  }
  if (over_limit()) return;
  run_until_ns_ = until_ns;
  current_->state = State::kResting;
  block();
  if (until_ns != kNever && !over_limit()) {
    now_ns_ = std::max(now_ns_, until_ns);
  }
}

// A thread that waits for work inside the library is not in a BlockingScope.
bool FiberScheduler::is_stuck(const VirtualThread& thread) {
  return thread.state == State::kLocking || thread.state == State::kJoining ||
         (thread.state == State::kWaiting && thread.context.blocking > 0);
}

bool FiberScheduler::any_stuck() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return is_stuck(*thread); });
}

std::string FiberScheduler::label(ThreadId id) const {
  return "thread " + std::to_string(id) + " (" + threads_[id]->name + ")";
}

std::string FiberScheduler::mutex_of(const VirtualThread& thread) const {
  std::string text = "waits for a mutex";
  for (const HeldMutex& held : held_) {
    if (held.mutex == thread.object) {
      text += " that " + label(held.owner->id) + " holds";
    }
  }
  return text;
}

std::string FiberScheduler::wait_of(const VirtualThread& thread) const {
  const WaitNote* const note = thread.context.waiting_for;
  if (!note) {
    return thread.context.blocking > 0 ? "waits in a call of the library" : "waits to be notified";
  }
  std::string text = std::string("waits in ") + note->how;
  if (note->subject) {
    text += " for " + note->describe(note->subject);
    for (const auto& other : threads_) {
      if (Activity::is_in(other->context.activity, note->subject)) {
        text += ", which " + label(other->id) + " runs";
      }
    }
  }
  return text;
}

std::string FiberScheduler::describe(const std::vector<ThreadId>& listed) const {
  std::string text;
  for (const auto& thread : threads_) {
    const bool wanted = std::find(listed.begin(), listed.end(), thread->id) != listed.end();
    std::string what;
    if (thread->state == State::kLocking) {
      what = mutex_of(*thread);
    } else if (thread->state == State::kJoining) {
      what = "waits for the end of " + label(thread->joined);
    } else if (thread->state == State::kReady) {
      what = "could run";
    } else if (thread->state == State::kWaiting && (wanted || is_stuck(*thread))) {
      what = wait_of(*thread);
    }
    if (!what.empty()) {
      const Activity* const inside = thread->context.activity;
      text += "  " + label(thread->id) + (inside ? ", in " + inside->text() + "," : "") + " " +
              what + "\n";
    }
  }
  return text;
}

}  // namespace workflow
